"""Forward work that backward does again, and the checks of anomaly mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import distinct, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rule.views.selection import Mask

_NODE = r"Backward\d*$"
_CHECKPOINT = r"Checkpoint\w*Backward"
_CHECKS = ("aten::ne", "aten::isnan", "aten::any", "aten::item", "aten::is_nonzero")


@dataclass(frozen=True, slots=True)
class Limits:
    choice_share: float = limit(
        0.10, "of GPU time up to which checkpointing is the user's choice and no finding"
    )
    min_checked_share: float = limit(
        0.5, "of backward nodes with a check for NaN: anomaly mode checks all of them"
    )


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def recomputation(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Backward computes parts of forward again.

    What it looks for: ops within nodes of backward that record gradients themselves, thus carry a sequence number,
    beside ops of the same node that do not: a checkpoint's second forward. And, after most nodes, a check of the
    gradients for NaN: torch.autograd.detect_anomaly.
    Why it costs: checkpointing trades time for memory, up to a third of a step; anomaly mode checks every gradient,
    and waits for each answer.
    Bad: checkpoints around every block with half of the memory free. Good: none, or around those alone whose
    activations are large and cheap (selective checkpointing); anomaly mode only while looking for a NaN.
    How sure: the sequence numbers are recorded. Gradients of gradients (create_graph=True) number every op of a node,
    and are not meant.
    When it is wrong: checkpointing is right where memory needs it; up to a tenth of the GPU's time it is no finding.
    Source: torch.utils.checkpoint and "Anomaly detection" in PyTorch's documentation.
    """
    yield from _again(calls, work, limits)
    yield from _anomaly_mode(calls, limits)


def _again(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    ops = calls[calls.is_op & calls.name.matches("^aten::|^torch|::")]
    parent = ops.parent
    inner = ops[parent.name.matches(_NODE)]
    numbered = pick(ints(work.events.trace.cpu, "sequence"), inner.rows) != NULL_INT
    plain = inner[~numbered]
    owner = work.launch.owner(plain)
    own = plain[distinct(owner[owner >= 0])].parent.rows  # nodes that compute gradients without recording any
    again = inner[numbered & (np.isin(inner.parent.rows, own) | inner.parent.name.matches(_CHECKPOINT))]
    again = again[~again.name.matches("^autograd::")]
    mine = work.launch.owner(again) if len(again) else np.full(len(work), -1)
    spent = work[mine >= 0]
    share = spent.total_ns / max(work.total_ns, 1)
    if len(spent) == 0:
        return
    yield Hits(
        at=again,
        cause="checkpoint",
        lost=Lost.all_of(spent, mine[mine >= 0]),
        fix=Drop(again.rows),
        message="backward computes forward again, {in_steps}: {gpu} of GPU time, in {repeated}",
        advice="Where memory allows, checkpoint fewer blocks, or only what is large and cheap to compute again "
        "(torch.utils.checkpoint.create_selective_checkpoint_contexts).",
        evidence={**told(spent), "gpu_share": share, "repeated": again.name.sums(again.dur_ns)},
        info=share < limits.choice_share,
    )


def _anomaly_mode(calls: Calls, limits: Limits) -> Iterator[Hits]:
    nodes = calls[calls.name.matches(r"^autograd::engine::evaluate_function")]
    checks = calls[calls.is_op & calls.name.one_of(*_CHECKS)]
    checks = checks[np.isin(checks.parent.rows, nodes.rows)]
    asks = checks[checks.name.one_of("aten::item", "aten::is_nonzero")]
    if len(nodes) == 0 or len(asks) < limits.min_checked_share * _with_work(nodes).sum():
        return
    spent, owner = checks.launched() if calls.events.work else (None, None)
    yield Hits(
        at=checks,
        cause="anomaly-mode",
        lost=Lost.none() if spent is None or owner is None else Lost.all_of(spent, owner),
        fix=Drop(checks.rows),
        message="anomaly mode: every gradient is checked for NaN and the CPU waits for the answer, {times_a_step}",
        advice="Turn torch.autograd.detect_anomaly off; use it only while looking for a NaN.",
        evidence={"checks": len(asks)},
    )


def _with_work(nodes: Calls) -> Mask:
    """Nodes that compute something: AccumulateGrad and views have nothing to check."""
    return ~nodes.name.matches(r"AccumulateGrad|View|Expand|Transpose|Permute|^.*: T+Backward")
