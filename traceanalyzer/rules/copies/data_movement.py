"""Work that only moves or converts data."""

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import DropWork
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.evidence_texts import called_ops, gpu_time_evidence
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.names import COMPILED_RUN, GRAPH_LAUNCH

# Ops that compute nothing: whatever kernel they launch, it moves data.
_MOVES = (
    r"^aten::(copy_|_to_copy|clone|contiguous|cat|stack|expand_copy|repeat|repeat_interleave|roll|flip|constant_pad_nd"
    r"|pad|reflection_pad\dd|replication_pad\dd|unfold|im2col|col2im|tril|triu|one_hot|pixel_shuffle|pixel_unshuffle"
    r"|_foreach_copy_|split_with_sizes_copy|slice_scatter|select_scatter|slice_backward|select_backward|index_copy_)$"
)
_GATHERS = r"^aten::(index_select|gather|take|take_along_dim|embedding|index|_unsafe_index)$"
# One order of the data, whichever op changes it to and fro: fftshift, ifftshift, gradients.
_SHIFTS = "aten::roll"
_KEEPS = r"^aten::(index_select|index_copy_|copy_|clone|cat|zero_|fill_|to|b?mm|matmul|.*attention.*)$|^autograd::"
# cuFFT overwrites the spectrum, so torch copies it first.
_OVERWRITES = "aten::_fft_c2r"
# Conversions of gradients, which follow conversions in forward.
_MIRRORS = r"ToCopyBackward"
_DOES = {
    "copies": "moves or converts data",
    "gathers": "picks elements by index",
    "reorderings": "puts all rows of a tensor in another order, again and again,",
    "graph-inputs": "copies inputs into the fixed buffers of a CUDA graph",
}
_ADVICE = {
    "reorderings": "Keep the order in a small index, and apply it when the result is read. Or reorder only the part in "
    "which rows differ: what the exchanged rows have in common, such as the cross-attention cache of all beams of one "
    "input, and what is not filled yet, can stay.",
    "gathers": "Let {torch.compile} fuse the gathers into the ops that read the result, or use one op that reads by "
    "index (a sparse product, embedding_bag). Often the program needs its gathers, so the severity is only info.",
    "graph-inputs": "Call torch._dynamo.mark_static_address(tensor) for inputs that keep their address from step to "
    "step: the CUDA graph of {torch.compile} (mode='reduce-overhead' or 'max-autotune') then reads them where they "
    "are. If the GPU is the limit, compile without a graph (mode='max-autotune-no-cudagraphs', or the default mode).",
    "copies": "Find the op that needs this layout or dtype, and create the data that way. Or use a view, or let "
    "{torch.compile} fuse conversions into the ops that read them. Strided views save less than predicted, because ops "
    "read them more slowly.",
}


class Limits:
    min_gpu_share: float = 0.10
    """an op is reported only if its copies take at least this share of GPU time; in healthy H200 traces, only
    gathers reach this share"""
    min_row_bytes: int = 65_536
    """gathers of all rows are regarded as reordered state if each row has at least this size; chosen"""
    min_times: int = 4
    """state is reported only if all rows of a tensor are reordered at least this many times in a step; a
    shuffle of the data happens only once; chosen"""


@rule(since="0.1", claims=Claims.CATCH_ALL, min_share=0.03, limits=Limits, causes=tuple(_ADVICE))
def data_movement(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Much of the GPU's time goes into work that only moves or converts data.

    What it looks for: copies, conversions, gathers, pads and expansions, summed by the op that the user
    called. Two cases have findings of their own:
    - State, such as a key/value cache in beam search, is reordered several times a step: a gather reads all
      rows of a tensor, in another order.
    - Inputs of a compiled region are copied into the fixed buffers of its CUDA graph.
    Why it costs: each of these ops reads and writes all of its data, but computes nothing.
    Bad: a layout, dtype or order that the next op changes back. Good: data that is created in the layout that
    the next ops need.
    How sure: these ops only move or convert data. The trace does not show whether they can be avoided.
    Concatenations and transposing copies do not count here: the rule strided-copy reports them.
    When it is wrong: in recommenders and graph networks, gathers are often needed. So findings on gathers are info.
    Saving: an upper bound, computed as if none of this work was needed. Expect less.
    Source: the roofline model: work without arithmetic is bound by memory.
    """
    name = work.name
    gathers = work.op.name.matches(_GATHERS)
    moving = work.op.name.matches(_MOVES) | gathers | name.matches(families.COPY) | work.kind.one_of("copy_d2d")
    moving &= ~name.matches(families.STRIDED_COPY) & ~name.matches(families.CONCATENATION)
    moving &= ~work.kind.one_of("memset", "copy_h2d", "copy_d2h", "communication")
    moving &= ~work.outer_op.name.matches(_MIRRORS)
    moving &= work.launch.there | (work.step >= 0)  # what was queued before the recording is of no op
    moving &= ~work.op.inside(calls[calls.name.one_of(_OVERWRITES)])
    selects = calls[calls.name.one_of("aten::index_select")]
    number, signatures = signatures_of(calls.events.trace, selects.rows)
    # A tensor that pointwise ops compute with is no state.
    computing = calls[calls.is_top_op & ~calls.name.meets(is_view) & ~calls.name.matches(_KEEPS)]
    computing_ops = signatures_of(calls.events.trace, computing.rows)[1]
    computed = {shape for op in computing_ops for shape in tensors(op)}
    state = [_reorders(op, limits) and tensors(op)[0] not in computed for op in signatures]
    selects = selects[np.array(state, bool)[number]]
    reorders = gathers & work.op.inside(selects)
    frequent = np.bincount(work.step[reorders & (work.step >= 0)]).max(initial=0) >= limits.min_times
    reorders &= frequent
    inputs = moving & ~gathers & _into_graphs(calls, work)
    for cause, which in (
        ("copies", moving & ~gathers & ~inputs),
        ("graph-inputs", inputs),
        ("reorderings", moving & reorders),
        ("gathers", moving & gathers & ~reorders),
    ):
        for device, copies in work[which].by_device():
            whole = max(work[work.device == device].total_ns, 1)
            # Of shifts the op itself, because one order makes all needless.
            names = copies.op.name
            shifts = Texts(np.where(names.one_of(_SHIFTS), names.code, -1), names.names)
            for op, some in copies.by(shifts.or_else(called_ops(copies))):
                if some.total_ns >= limits.min_gpu_share * whole:
                    yield _hits(op, some, some.total_ns / whole, cause)


def _into_graphs(calls: Calls, work: Work) -> Mask:
    """Copies of a graph's inputs: work that a compiled region launches before the graph."""
    graphs = calls[calls.is_call & calls.name.matches(GRAPH_LAUNCH)]
    graphs = graphs[graphs.outer_op.name.matches(COMPILED_RUN)]
    if len(graphs) == 0:
        return np.zeros(len(work), bool)
    regions, first = np.unique(graphs.outer_op.rows, return_index=True)
    place = find(regions, work.outer_op.rows)
    inside = (place >= 0) & work.launch.there & ~work.in_graph
    return np.asarray(inside & (work.launch.start_ns < graphs.start_ns[first][place]))


def _reorders(op: Signature, limits: Limits) -> bool:
    """True for each index_select of as many large rows as its input has: state in another order."""
    try:
        table, index, along = op.shape(0), op.shape(2), op.scalars[1]
        row_bytes = math.prod(table[1:]) * op.item_bytes(0)
    except LookupError:
        return False
    large = len(table) > 2 and row_bytes >= limits.min_row_bytes
    return large and along in ("0", "") and index == table[:1]


def _hits(op: str, copies: Work, share: float, cause: str) -> Hits:
    return Hits(
        occurrences=copies,
        named_by=op,
        cause=cause,
        info=cause == "gathers",
        fix=DropWork(copies.entries),
        message="{by} "
        + _DOES[cause]
        + " and computes nothing; it runs {times_a_step} and takes {gpu} of all GPU work, in {kernels}{where}",
        advice=_ADVICE[cause],
        confidence=Confidence.LOW,
        evidence={**gpu_time_evidence(copies), "gpu_share": share, "spent_ns": copies.total_ns},
    )
