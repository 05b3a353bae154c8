"""Copies that only change the layout of tensors."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.replay.edits import DropWork, Insert, Resize
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, gpu_time_evidence, op_times, rule
from traceanalyzer.rule.consistency import ASSUMED
from traceanalyzer.rules.copies.strided_copy.copied_tensors import (
    appended_shape,
    carried,
    growing_cats,
    order_kept,
    write_count_text,
    write_counts,
    writes_slices,
)
from traceanalyzer.rules.copies.strided_copy.repeated_readers import readers_of
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.timeline import kernel_families as families

# cause -> (message, advice)
TEXTS = {
    "growing-buffer": (
        "torch.cat copies a whole buffer to append {new} to it, {times_a_step}",
        "Allocate the whole buffer once, and write only the new rows: cache[:, :, n:n + 1] = new.",
    ),
    "concatenation": (
        "torch.cat copies all of its inputs into its output {times_a_step}",
        "Compute each part directly into one common buffer (out=, or slices of an existing tensor).",
    ),
    "repetition": (
        "{times_a_step}, the same data is written {often} in one op ({ops})",
        "Let the next op broadcast: expand() without contiguous(), instead of repeat. For attention with fewer key "
        "heads than query heads: {F.scaled_dot_product_attention}(enable_gqa=True), or reshape the "
        "queries of a group to rows of one product.",
    ),
    "carried": (
        "{times_a_step}, {ops} copies a tensor that lies transposed in memory, and sums hand its layout on to "
        "the next layer",
        "Call .contiguous() once, after the transpose() or permute() that makes this tensor, before the first "
        "layer.",
    ),
    "transposition": (
        "copies that change the order of dimensions run {times_a_step}, in {ops}",
        "Keep the layout that the next op reads: drop .contiguous() and .clone() where a view is enough, or create "
        "the tensor with its dimensions in the order that the next op reads.",
    ),
    "slices": (
        "copies of slices of larger tensors run {times_a_step}, in {ops}",
        "Read the slice as a view: drop .contiguous() and .clone() where the next op takes any strides, or compute "
        "the slice as a tensor of its own.",
    ),
}
_MOVES = ("transposition", "slices")
# Ops with which the program asks for a copy.
_ASKED = r"contiguous|clone|reshape|flatten|view|copy_|channel_shuffle|unfold"
# CPU time that writing in place takes more than a cat: Python's indexing makes a view for each write, and often one for
# each read. 0.7 to 4 us without the profiler; torch 2.11.
_VIEWS_NS = 2_500.0


class Limits:
    min_gpu_share: float = 0.05
    """concatenations must take at least this share of GPU time"""
    min_moved_share: float = 0.10
    """transposing copies must take at least this share of GPU time. In healthy models the copies of attention
    (from batch x heads x tokens to batch x tokens x heads) take up to 7 %, H200"""
    min_carried_share: float = 0.02
    """copies of a transposed tensor whose layout sums hand on must take at least this share of GPU time: one
    line avoids them; chosen"""
    grown_times: float = 8.0
    """a cat is regarded as appending to a buffer if one input is at least this many times as large as all
    other inputs together"""
    append_ns: int = 3_000
    """for the saving: writing a few rows in place takes this time; H200, torch 2.11"""
    memory_share: float = 0.5
    """memory limits attention or a product that reads repeated data if the op reaches at least this share of
    the memory's peak rate. Such an op gets faster if it reads the data only once; 0.90 was measured on an
    H100, the limit itself is lower; chosen"""
    usual_share: float = 0.10
    """a saving below this share of the step is info, because healthy models have such copies, too
    (concatenations take up to 5.5 % of the step, H200)"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits, causes=tuple(TEXTS))
def strided_copy(
    work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    """Tensors are copied only to change their layout in memory.

    What it looks for: copies (contiguous, clone, reshape, copy_) of transposed, sliced or expanded data,
    without a change of dtype. Concatenations (cat, stack) are reported, too. In four cases, the finding's
    title says which case it is:
    - `carried`: the layers of a model each copy a transposed tensor, since sums keep the strides of their inputs;
    - `growing-buffer`: a buffer grows by cat;
    - `repetition`: repeat, or contiguous() of an expanded tensor, writes data several times. The next op may
      take longer to read the larger data;
    - `slices`: contiguous() of a part of a tensor, in the same order of dimensions.
    Why it costs: these copies read and write all data before the next work can begin. Transposing copies
    reach only a quarter of the peak rate.
    Bad: cache = torch.cat([cache, new]) for each token. Good: a buffer of the final size that is written in
    place.
    Bad: x = conv(x).transpose(1, 2) before a transformer's layers. Good: conv(x).transpose(1, 2).contiguous().
    Bad: x.permute(...).contiguous() back and forth. Good: one layout for the whole network.
    How sure: kernel names identify such copies. Without strides, copies that ops make of their inputs are low at
    most. Confidence is high if an execution trace shows that one op reads each copy, and takes any strides.
    When it is wrong: a later kernel needs the new layout. Or many ops read the result, so that the copy is
    worth its time.
    Saving: the time of these copies. For a cat, the time of writing the new part into a buffer is subtracted.
    Source: "Tensor Views" in PyTorch's documentation; measured on an H200.
    """
    # an op that adds a product to its bias copies the bias: hidden-dtod-copy reports it
    copied = work.name.matches(families.STRIDED_COPY) & ~work.op.parent.name.matches(families.ADDS_PRODUCT)
    by_cat = copied & work.op.name.one_of("aten::cat")
    concatenations = work.name.matches(families.CONCATENATION) | by_cat
    growing = growing_cats(work, concatenations, limits.grown_times)
    moved = work[copied & ~by_cat]
    times, in_order = write_counts(moved, inputs), order_kept(moved, inputs) == 1
    once = (times == 1) & ~writes_slices(moved, inputs)
    passed_on = once & ~in_order & carried(moved, inputs)
    for cause, copies in (
        ("growing-buffer", work[growing]),
        ("concatenation", work[concatenations & ~growing & (work.op.there | ~growing.any())]),
        ("repetition", moved[times != 1]),
        ("carried", moved[passed_on]),
        ("transposition", moved[once & ~in_order & ~passed_on]),
        ("slices", moved[once & in_order]),
    ):
        least = limits.min_moved_share if cause in _MOVES else limits.min_gpu_share
        least = limits.min_carried_share if cause == "carried" else least
        for on_device, share in copies.device_shares(least):
            hits = _hits(cause, on_device, inputs, share, flow, limits)
            if cause == "repetition":
                readers = readers_of(on_device, work, inputs, gpus, limits.memory_share)
                hits = _read_once(hits, on_device, *readers)
            yield hits


def _hits(
    cause: str, copies: Work, inputs: WorkInputs, share: float, flow: Flow | None, limits: Limits
) -> Hits:
    grows = cause == "growing-buffer"
    joins = grows or cause == "concatenation"  # its inputs are written in place: an op and a small write stay
    stays = np.minimum(copies.dur_ns, limits.append_ns if joins else 0)
    certain = grows or cause == "carried" or (flow is not None and flow.is_read_once(copies.op))
    sure = (order_kept(copies, inputs) == 0) | copies.outer_op.name.matches(_ASKED)
    guessed = cause == "transposition" and 2 * copies[sure].total_ns < copies.total_ns
    what, advice = TEXTS[cause]
    in_place = (
        Resize(copies.entries, stays.astype(np.float64)),
        Insert(copies.op.distinct().rows, _VIEWS_NS),
    )
    return Hits(
        occurrences=copies,
        cause=cause,
        lost=LostTime.excess(copies, copies.dur_ns - stays),
        fix=in_place if joins else DropWork(copies.entries),
        message=what + ": {gpu} of all GPU work{where}",
        advice=advice,
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(copies),
            "gpu_share": share,
            "spent_ns": copies.total_ns,
            "new": appended_shape(copies) if grows else "",
            "often": write_count_text(copies, inputs) if cause == "repetition" else "",
            **({ASSUMED: "the order of dimensions"} if guessed else {}),
        },
        normal_share=limits.usual_share if cause == "concatenation" else 0.0,
        fault_key="transposed-tensor" if cause == "carried" else "",
    )


def _read_once(hits: Hits, copies: Work, readers: Work, copy: Rows, needed_ns: Floats) -> Hits:
    """The hits, with the ops that read the repeated data."""
    if len(readers) == 0:
        return hits
    excess_ns = np.asarray(readers.dur_ns - needed_ns, np.int64)
    read = LostTime.excess(readers, excess_ns, copy)
    return replace(
        hits,
        lost=LostTime.joined([LostTime.excess(copies, copies.dur_ns), read]),
        fix=(DropWork(copies.entries), Resize(readers.entries, needed_ns)),
        message=hits.message + ". {readers} reads all that is written, and takes {read} longer for it",
        evidence={**hits.evidence, "readers": next(iter(op_times(readers))), "read_ns": int(excess_ns.sum())},
    )
