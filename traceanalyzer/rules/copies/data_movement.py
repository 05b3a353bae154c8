"""All work that only moves or converts data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropWork
from traceanalyzer.rule import Calls, Claims, Hits, Work, limit, rule
from traceanalyzer.rule.evidence import called_ops, told
from traceanalyzer.timeline import kernel_families as families

# Ops that compute nothing: whatever kernel they launch, it moves data.
_MOVES = (
    r"^aten::(copy_|_to_copy|clone|contiguous|cat|stack|expand_copy|repeat|repeat_interleave|roll|flip|constant_pad_nd"
    r"|pad|reflection_pad\dd|replication_pad\dd|unfold|im2col|col2im|tril|triu|one_hot|pixel_shuffle|pixel_unshuffle"
    r"|_foreach_copy_|split_with_sizes_copy|slice_scatter|select_scatter|slice_backward|select_backward|index_copy_)$"
)
_GATHERS = r"^aten::(index_select|gather|take|take_along_dim|embedding|index|_unsafe_index)$"
_AVOID = (
    "Find the op that needs this layout or dtype and create the data that way; or use a view; or let {torch.compile} "
    "fuse conversions into their readers. Strided views save less than predicted, because their readers run slower."
)
_READ_IN_PLACE = (
    "Let {torch.compile} fuse them into the ops that read the result, or let one op read by index (a sparse product, "
    "embedding_bag). Often gathers are the work itself."
)
_OVERWRITES = "aten::_fft_c2r"  # cuFFT writes into the spectrum, which torch copies before
_MIRRORS = r"ToCopyBackward"  # conversions of gradients, which follow those of forward


@dataclass(frozen=True, slots=True)
class Limits:
    min_gpu_share: float = limit(
        0.10, "minimum share of GPU time in one op's copies; on healthy H200 traces only gathers reach it"
    )


@rule(since="0.1", claims=Claims.CATCH_ALL, min_share=0.03, limits=Limits, causes=("gathers", "copies"))
def data_movement(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Much of the GPU's time goes into work that only moves or converts data.

    What it looks for: copies, conversions, concatenations, gathers, pads and expansions, whatever their kernels are
    called, summed by the op that the user called.
    Why it costs: moving data computes nothing; each pass reads and writes all of it.
    Bad: a layout, dtype or order that every op changes back. Good: data in the layout that its readers need.
    Transposing copies and concatenations belong to strided-copy. The copy of the spectrum in an inverse real transform
    is torch's own and does not count.
    How sure: the ops compute nothing. Whether they can be avoided, the trace does not say.
    When it is wrong: gathers are the work itself in recommenders and graph networks, so they are info.
    Saving: the maximum, as if none of it were needed and all readers stayed as fast. Expect less: where views replaced
    torch.roll, the measured saving was just over half of the predicted one (H200), because ops run slower on strided
    views.
    Source: the roofline model: work without arithmetic is bound by memory.
    """
    name = work.name
    gathers = work.op.name.matches(_GATHERS)
    moving = (
        work.op.name.matches(_MOVES) | gathers | name.matches(families.COPY) | work.kind.one_of("copy_d2d")
    )
    moving &= ~name.matches(families.STRIDED_COPY) & ~name.matches(families.CONCATENATION)
    moving &= ~work.kind.one_of("memset", "copy_h2d", "copy_d2h", "communication")
    moving &= ~work.outer_op.name.matches(_MIRRORS)
    moving &= ~work.op.inside(calls[calls.name.one_of(_OVERWRITES)])
    yield from _by_op(work, work[moving & ~gathers], limits, gathers=False)
    yield from _by_op(work, work[moving & gathers], limits, gathers=True)


def _by_op(work: Work, found: Work, limits: Limits, *, gathers: bool) -> Iterator[Hits]:
    for device, mine in found.by(found.device):
        whole = max(work[work.device == device].total_ns, 1)
        for op, some in mine.by(called_ops(mine)):
            if some.total_ns >= limits.min_gpu_share * whole:
                yield _hits(op, some, some.total_ns / whole, gathers)


def _hits(op: str, found: Work, share: float, gathers: bool) -> Hits:
    return Hits(
        occurrences=found,
        named_by=op,
        cause="gathers" if gathers else "copies",
        info=gathers,
        fix=DropWork(found.entries),
        message="{by} "
        + ("picks elements by index" if gathers else "moves or converts data")
        + " and computes nothing: {gpu} of GPU time, {times_a_step}, in {kernels}{where}",
        advice=_READ_IN_PLACE if gathers else _AVOID,
        confidence=Confidence.LOW,
        evidence={**told(found), "gpu_share": share, "spent_ns": found.total_ns},
    )
