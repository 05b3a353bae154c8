"""A tensor is computed in full, and then a small part of it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.short_names import short_ops
from traceanalyzer.roofline.results import product_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.rule.recorders import recorders
from traceanalyzer.rules.kernels.partly_used.chains import Chain, Thresholds, chains
from traceanalyzer.rules.kernels.partly_used.readers import Readers
from traceanalyzer.rules.kernels.partly_used.sources import is_diagonal
from traceanalyzer.tensors.signatures import signatures_of
from traceanalyzer.timeline.names import VIEWING_OP


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.5,
        "reported only if at most this share of the result is used; if more is used, computing only the "
        "used part saves too little; chosen",
    )
    near_ops: int = limit(
        8,
        "the op that makes a tensor is looked for among this many ops before the op that reads the "
        "tensor, views not counted; chosen",
    )
    calls: int = limit(
        4,
        "for each op and its input shapes, the results of this many calls are checked; reported only if "
        "each of these results is used only in part; chosen",
    )
    min_gpu_share: float = limit(0.05, "such ops must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("averaged",))
def partly_used(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A tensor is computed in full, but only a small part of it is used.

    What it looks for: a select, slice, index or diagonal that takes at most half of a tensor. The rule
    reports the ops before it that computed the whole tensor. They can be a whole network, if only a part of
    its batch is used.
    A second case (cause `averaged`, named in the finding's title): a linear layer is applied to many rows,
    and its result is then averaged or summed over the rows.
    Why it costs: the rest of the tensor is computed for nothing, forward and backward. For `averaged`: the
    layer applied to the mean of the rows gives the same.
    Bad: lm_head(hidden).float()[:, -1]; resize(normalise(frames))[:, ::4]; linear(x).mean(1). Good:
    lm_head(hidden[:, -1:]).float(); resize(normalise(frames[:, ::4])); linear(x.mean(1)). With sum(1),
    multiply the bias by the number of rows.
    How sure: shapes and slice bounds are recorded. The slice and the result are matched only by their shape,
    so confidence is medium.
    When it is wrong: the slice is taken from another tensor of the same shape. Or the whole result is read
    by a custom kernel, which the trace does not show as an op.
    Saving: the unused share of the time of these ops and of their backward ops.
    Source: algebra: a row of a product needs only the same row of the input. Not measured.
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True shows what is sliced")
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    readers = Readers.of(number, signatures, ops.name.meets(VIEWING_OP.search), ops.thread)
    own, recorder = work.op.index_of_enclosing(ops), recorders(calls, ops, work)
    moves = work.kind.one_of("compute", "copy_d2d", "copy_h2d", "memset")
    spent = np.zeros(len(ops))
    for at in (own, recorder):
        spent += np.bincount(at[moves & (at >= 0)], work.dur_ns[moves & (at >= 0)], len(ops))
    devices = max(len(np.unique(work.device)), 1)
    least = Thresholds(
        limits.max_used_share,
        limits.near_ops,
        limits.calls,
        limits.min_gpu_share * work.total_ns / devices,
    )
    for chain in chains(readers, spent, least):
        maker, either = np.zeros((2, len(ops) + 1), bool)
        maker[chain.makers] = either[chain.makers] = either[chain.cuts] = True
        for _, found in work[moves & (maker[own] | either[recorder])].by_device():
            yield _hits(chain, found)


def _hits(chain: Chain, found: Work) -> Hits:
    return Hits(
        **quicker(found, np.asarray(found.dur_ns * chain.part)),
        cause="averaged" if chain.averaged else "",
        named_by="x".join(map(str, chain.cut.shape(0))),
        message="{by} is computed in full, "
        + ("and then averaged or summed" if chain.averaged else "but {cut} takes only {kept} of it")
        + ": this takes {spent_a_step} on the GPU, in {ops}{where}",
        advice=_advice(chain),
        confidence=Confidence.MEDIUM,
        evidence={
            **told(found),
            "cut": chain.cut.name,
            "kept": f"{100 * chain.part:.2g} %",
            "spent_ns": found.total_ns,
        },
    )


def _advice(chain: Chain) -> str:
    if chain.averaged:
        return (
            "Average the rows before the product: linear(x.mean(1)) instead of linear(x).mean(1). For a sum, "
            "multiply a bias by the number of rows."
        )
    if is_diagonal(chain.cut):
        return "Multiply row by row: (a * b).sum(-1) instead of (a @ b.mT).diagonal(dim1=-2, dim2=-1)."
    if product_of(chain.first) is not None:
        return (
            "Slice the rows before the product, not after it: head(hidden[:, -1:]) instead of "
            "head(hidden)[:, -1]."
        )
    begin = f" of {'x'.join(map(str, chain.begin))}" if chain.begin else ""
    return f"Take the part{begin} before {short_ops(chain.first.name)}, and compute only that."
