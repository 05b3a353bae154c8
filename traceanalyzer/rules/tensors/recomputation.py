"""Forward work that backward does again, and the checks of anomaly mode."""

from collections.abc import Iterator

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.replay.edits import CapOps, Drop
from traceanalyzer.rule import Calls, Claims, Hits, Kind, LostTime, Work, gpu_time_evidence, rule
from traceanalyzer.rule.messages import times
from traceanalyzer.timeline.backward_nodes import directly_inside, recomputed_ops

_CHECKS = ("aten::ne", "aten::isnan", "aten::any", "aten::_is_any_true", "aten::item", "aten::is_nonzero")
_ASKS = ("aten::item", "aten::is_nonzero")
_NOTHING_TO_CHECK = r"AccumulateGrad|View|Expand|Transpose|Permute|^.*: T+Backward"


class Limits:
    min_checked_share: float = 0.5
    """anomaly mode is on if at least this share of the backward nodes is checked for NaN; in anomaly mode all
    nodes are checked"""
    usual_op_ns: int = 15_000
    """for the saving: without anomaly mode an op takes this CPU time, not counting other ops that it calls;
    with anomaly mode a forward op takes 100 µs, because it keeps the Python stack; H200 host"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits, causes=("checkpoint", "anomaly-mode"), kind=Kind.CHOICE)
def recomputation(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """The backward pass computes parts of the forward pass again.

    What it looks for: forward ops that activation checkpointing runs again in the backward pass. The rule
    also finds anomaly mode (torch.autograd.detect_anomaly), which checks gradients for NaN.
    Why it costs: checkpointing saves memory, but takes up to a third of a step. Anomaly mode checks every
    gradient, and the CPU waits for each result.
    Bad: checkpoints around every layer while half of the memory is free. Good: no checkpoints, or selective
    checkpoints of large activations that are cheap to recompute. Anomaly mode only while you look for a NaN.
    How sure: in the backward pass, recorded sequence numbers show which ops belong to forward and run again.
    When it is wrong: checkpointing is right if memory is short. The trace does not show this, so a finding
    about checkpointing is always info.
    Source: torch.utils.checkpoint and "Anomaly detection" in PyTorch's documentation.
    """
    again = recomputed_ops(calls.events)
    spent, owner = again.launched()
    if len(spent):
        yield Hits(
            occurrences=again,
            cause="checkpoint",
            lost=LostTime.all_of(spent, owner),
            fix=Drop(again.rows),
            message="checkpoints repeat the forward pass in backward, {in_steps}: it takes {gpu} of GPU "
            "time, in {repeated}",
            advice="With memory to spare, checkpoint fewer blocks, or only large activations that are cheap to "
            "recompute (torch.utils.checkpoint.create_selective_checkpoint_contexts). Checkpoints save memory: they "
            "may be deliberate.",
            evidence={
                **gpu_time_evidence(spent),
                "gpu_share": spent.total_ns / max(work.total_ns, 1),
                "repeated": again.name.sums(again.dur_ns),
            },
            info=True,
        )
    nodes = calls.name.matches(f"^{ENGINE}")
    checks = calls[calls.is_op & calls.name.one_of(*_CHECKS) & directly_inside(calls, nodes)]
    asks = int(checks.name.one_of(*_ASKS).sum())
    to_check = int((nodes & ~calls.name.matches(_NOTHING_TO_CHECK)).sum())
    in_steps = len(distinct(checks.step[checks.step >= 0])) if calls.events.steps.marked else 0
    asked = f"{times(round(asks / in_steps))} a step" if in_steps else f"{times(asks)} in the whole recording"
    if asks / max(to_check, 1) >= limits.min_checked_share:
        yield Hits(
            occurrences=checks,
            cause="anomaly-mode",
            lost=LostTime.all_of(*checks.launched()),
            fix=(Drop(checks.rows), CapOps(float(limits.usual_op_ns))),
            message="anomaly mode checks gradients for NaN, {checked}; the CPU waits for each result",
            advice="Turn torch.autograd.detect_anomaly off; use it only while looking for a NaN.",
            evidence={"checks": asks, "checked": asked},
        )
