"""Copies that only change the layout of tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.replay.edits import DropWork, Insert, Resize
from traceanalyzer.roofline.gpus import Gpus, Peaks
from traceanalyzer.roofline.lower_bounds import bound_of, reached_ns
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Work, gpu_time_evidence, op_times, rule
from traceanalyzer.rule.consistency import ASSUMED
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.strides import adds_transposed, layout_of, turned_layout, turns
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, signatures_of, tensors
from traceanalyzer.timeline import kernel_families as families

# cause -> (message, advice)
TEXTS = {
    "growing-buffer": (
        "torch.cat copies a whole buffer to append {new} to it, {times_a_step}",
        "Allocate the whole buffer once, and write only the new rows: cache[:, :, n:n + 1] = new. In transformers, "
        "that is StaticCache, or generate(cache_implementation='static').",
    ),
    "concatenation": (
        "torch.cat copies all of its inputs into its output {times_a_step}",
        "Compute each part directly into one common buffer (out=, or slices of an existing tensor), or put the code "
        "under {torch.compile}, which fuses a cat with the elementwise ops around it.",
    ),
    "repetition": (
        "{times_a_step}, the same data is written {often} in one op ({ops})",
        "Let the next op broadcast: expand() without contiguous(), instead of repeat. For attention with fewer key "
        "heads than query heads: {F.scaled_dot_product_attention}(enable_gqa=True), or reshape the "
        "queries of a group to rows of one product.",
    ),
    "carried": (
        "{times_a_step}, {ops} copies a tensor that lies transposed in memory{turned}, and sums hand its layout on to "
        "the next layer",
        "Call .contiguous() once, after the transpose() or permute() that makes this tensor, before the first layer.",
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
    calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None, limits: Limits
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
    Bad: cache = torch.cat([cache, new]) for each token. Good: a buffer of the final size that is written in place.
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
    times, in_order = write_counts(moved, inputs), inputs.meets(_keeps_order)[moved.entries]
    # Where no strides are recorded, whoever asks for copy_ itself, or for `x[i] = y`, is taken to write a part.
    whole = inputs.meets(_is_whole)[moved.entries] | ~moved.outer_op.name.one_of("aten::copy_")
    once = (times == 1) & whole
    # A sum has the strides of its inputs: one transposed view before the first residual connection transposes what
    # all layers read.
    added = {layout_of(op, 0) for op in inputs.signatures if adds_transposed(op)}
    read_on = inputs.meets(lambda op: op.name == "aten::copy_" and layout_of(op, 1) in added)[moved.entries]
    passed_on = once & ~in_order & read_on
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
                hits = with_readers(hits, on_device, work, inputs, gpus, limits.memory_share)
            if cause == "carried":
                hits = replace(hits, evidence={**hits.evidence, **turned_at(calls, on_device, inputs)})
            yield hits


def _hits(cause: str, copies: Work, inputs: WorkInputs, share: float, flow: Flow | None, limits: Limits) -> Hits:
    grows = cause == "growing-buffer"
    joins = grows or cause == "concatenation"  # its inputs are written in place: an op and a small write stay
    stays = np.minimum(copies.dur_ns, limits.append_ns if joins else 0)
    certain = grows or cause == "carried" or (flow is not None and flow.is_read_once(copies.op))
    turned = inputs.meets(lambda op: _keeps_order(op) is False)[copies.entries]
    sure = turned | copies.outer_op.name.matches(_ASKED)
    guessed = cause == "transposition" and 2 * copies[sure].total_ns < copies.total_ns
    what, advice = TEXTS[cause]
    last = inputs.signatures[int(inputs.number[copies.entries[-1]])]
    in_place = (Resize(copies.entries, stays.astype(np.float64)), Insert(copies.op.distinct().rows, _VIEWS_NS))
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
            "new": shape_text(min(tensors(last), key=math.prod)) if grows else "",
            "often": write_count_text(copies, inputs) if cause == "repetition" else "",
            **({ASSUMED: "the order of dimensions"} if guessed else {}),
        },
        normal_share=limits.usual_share if cause == "concatenation" else 0.0,
        fault_key="transposed-tensor" if cause == "carried" else "",
    )


# The write count is not recorded.
SEVERAL = 0
# Damaged files have shapes with larger counts.
_MAX_COUNT = 2**31
_REPEATING = r"^aten::(repeat|repeat_interleave|tile|expand_copy)$"


def write_counts(copies: Work, inputs: WorkInputs) -> Rows:
    """How often each copy writes each element of what it reads, or `SEVERAL` where only its name says so; int64."""
    times = np.array([_write_count(op) for op in inputs.signatures], np.int64)[inputs.number[copies.entries]]
    by_name = np.where(copies.outer_op.name.matches(_REPEATING), SEVERAL, 1)
    return np.where(times < 0, by_name, times)


def write_count_text(copies: Work, inputs: WorkInputs) -> str:
    """`4 times` or `several times`: the write count of the copies that take most of the time."""
    values, number = np.unique(write_counts(copies, inputs), return_inverse=True)
    most = int(values[np.argmax(np.bincount(number, copies.dur_ns))])
    return "several times" if most == SEVERAL else "twice" if most == 2 else f"{most:,} times"


def turned_at(calls: Calls, copies: Work, inputs: WorkInputs) -> dict[str, str]:
    """Evidence: the line whose transpose() or permute() makes the layout that these copies read."""
    read = {layout_of(inputs.signatures[which], 1) for which in distinct(inputs.number[copies.entries]).tolist()}
    views = calls[calls.is_top_op & calls.name.meets(turns)]
    number, signatures = signatures_of(calls.events.trace, views.rows)
    makes = np.array([turned_layout(op) in read for op in signatures], bool)[number]
    line = next(iter(views[makes].line.sums(views[makes].dur_ns)), "")
    return {"turned": f" (made at {line})", "turned_at": line} if line else {"turned": ""}


def _write_count(op: Signature) -> int:
    """How often `copy_(written, read)` writes each element that it reads, -1 if unknown."""
    written, read = (layout_of(op, position) for position in (0, 1))
    if op.name != "aten::copy_" or written is None or read is None or 0 in read[0]:
        return -1
    elements = math.prod(size for size, step in zip(*read, strict=True) if step)
    # One number for all is a fill.
    times = math.prod(written[0]) // elements if elements > 1 else 1
    return min(max(times, 1), _MAX_COUNT)


def _keeps_order(op: Signature) -> bool | None:
    """Whether a copy keeps the order of dimensions, None if its strides are not recorded."""
    written, read = (layout_of(op, position) for position in (0, 1))
    if op.name != "aten::copy_" or written is None or read is None or written[0] != read[0] or not any(read[1]):
        return None
    return _dimension_order(*written) == _dimension_order(*read)


def _is_whole(op: Signature) -> bool:
    """True if `copy_` writes a tensor without gaps, in any order of its dimensions."""
    written = layout_of(op, 0)
    if written is None or 0 in written[0]:
        return False
    return math.prod(written[0]) == 1 + sum((size - 1) * step for size, step in zip(*written, strict=True))


def _dimension_order(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Dimensions with more than one element, largest stride first."""
    return tuple(sorted((dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -steps[dim]))


def growing_cats(work: Work, concatenations: Mask, times: float) -> Mask:
    """Which concatenations append to another's result, `times` as large as all else, or make it; bool (work,)."""
    number, signatures = signatures_of(work.events.trace, work[concatenations].op.rows)
    grows = [_growth(op, times) if op.name == "aten::cat" else None for op in signatures]
    before, after = ({growth[side] for growth in grows if growth} for side in (0, 1))
    growing = concatenations.copy()
    chained = [growth is not None and (growth[1] in before or growth[0] in after) for growth in grows]
    growing[concatenations] = np.array(chained, bool)[number]
    return growing


def _growth(op: Signature, times: float) -> tuple[Shape, Shape] | None:
    """(shape of a cat's largest input, shape of its result) if the other inputs are small; else None."""
    joins = op.dims[0] if op.dims and isinstance(op.dims[0], list) else []  # what `out=` names is no input
    shapes = [tuple(shape) for shape in joins if isinstance(shape, list)]
    largest, *small_inputs = sorted(shapes, key=math.prod, reverse=True) or [()]
    small = 0 < times * sum(map(math.prod, small_inputs)) <= math.prod(largest)
    if not small or any(len(other) != len(largest) for other in small_inputs):
        return None
    differ = [dim for dim, sizes in enumerate(zip(largest, *small_inputs, strict=True)) if len(set(sizes)) > 1]
    if len(differ) != 1:
        return None
    (dim,) = differ
    joined = largest[dim] + sum(other[dim] for other in small_inputs)
    return largest, (*largest[:dim], joined, *largest[dim + 1 :])


# Products of few rows with many: their queries, or rows, of a group fold into one product. Pointwise ops are left out:
# with a broadcast operand they reach 0.60 of the memory's rate instead of 0.86, which takes what fewer bytes give.
_FOLDING = ("attention", "matmul")


@dataclass(frozen=True, slots=True)
class Repeated:
    """A tensor that a copy wrote several times."""

    elements: int
    last: int
    repeated: frozenset[int]
    kept: frozenset[int]

    @classmethod
    def of(cls, copy: Signature) -> Self | None:
        """The tensor that `copy_` of an expanded tensor writes, None if unknown."""
        written, steps = layout_of(copy, 1) or ((), ())
        if not steps or not math.prod(written) or not steps[-1] or copy.dims[0] != list(written):
            return None
        sizes = [(size, bool(step)) for size, step in zip(written, steps, strict=True) if size > 1]
        unrepeated = frozenset(size for size, differs in sizes[:-1] if differs)
        repeated = frozenset(size for size, differs in sizes if not differs)
        return cls(math.prod(written), written[-1], repeated - unrepeated - {written[-1]}, unrepeated)

    def may_be_read_as(self, shape: Shape) -> bool:
        """True if a tensor of this shape may be it, with repeats as further heads or batches."""
        same = math.prod(shape) == self.elements and self.last in shape[-2:]
        return same and not self.kept.isdisjoint(shape[-3:]) and self.repeated.isdisjoint(shape)


def with_readers(hits: Hits, copies: Work, work: Work, inputs: WorkInputs, gpus: Gpus, least_share: float) -> Hits:
    """The hits, with attention and products, bound by memory, that are the next to read what each copy wrote."""
    times, numbers = write_counts(copies, inputs), inputs.number[copies.entries]
    reads: list[tuple[int, int, float]] = []
    for number in distinct(numbers).tolist():
        repeated = Repeated.of(inputs.signatures[number])
        written = np.flatnonzero((numbers == number) & (times > 1))
        if repeated is None or len(written) == 0:
            continue
        takes = np.array([sum(map(repeated.may_be_read_as, tensors(op))) for op in inputs.signatures])
        counts = takes[inputs.number[work.entries]]
        reading = np.flatnonzero((counts > 0) & ~np.isin(work.entries, copies.entries))
        for place, copy, count in _next_readers(copies[written], work[reading], counts[reading]):
            reader, position = int(reading[place]), int(written[copy])
            spared = count * repeated.elements * (1 - 1 / int(times[position]))
            op = inputs.signatures[int(inputs.number[work.entries[reader]])]
            needed = _needed_ns(op, spared, int(work.dur_ns[reader]), gpus[int(work.device[reader])].peaks, least_share)
            if needed is not None:
                reads.append((reader, position, needed))
    if not reads:
        return hits
    place_of, copy_of, needed_ns = map(np.array, zip(*reads, strict=True))
    readers = work[place_of]
    excess_ns = (readers.dur_ns - needed_ns).astype(np.int64)
    return replace(
        hits,
        lost=LostTime.joined([LostTime.excess(copies, copies.dur_ns), LostTime.excess(readers, excess_ns, copy_of)]),
        fix=(DropWork(copies.entries), Resize(readers.entries, needed_ns)),
        message=hits.message + ". {readers} reads all that is written, and takes {read} longer for it",
        evidence={**hits.evidence, "readers": next(iter(op_times(readers))), "read_ns": int(excess_ns.sum())},
    )


def _next_readers(copies: Work, reading: Work, takes: Rows) -> list[tuple[int, int, int]]:
    """(position of what reads, position of the last copy before, how many copies it reads), each copy once."""
    begin = np.append(copies.launch.start_ns, reading.launch.start_ns)
    thread = np.append(copies.launch.thread, reading.launch.thread)
    reads: list[tuple[int, int, int]] = []
    waiting: list[int] = []
    lane = -1
    for places in np.lexsort((begin, thread)).tolist():
        if thread[places] != lane:
            lane, waiting = thread[places], []
        if places < len(copies):
            waiting.append(places)
        elif waiting:
            place = places - len(copies)
            count = min(int(takes[place]), len(waiting))
            reads.append((place, waiting[-1], count))
            waiting = waiting[: len(waiting) - count]
    return reads


def _needed_ns(op: Signature, spared: float, dur_ns: int, peaks: Peaks | None, least_share: float) -> float | None:
    """Time in ns without the spared elements; None if the op folds no repeats or memory does not bound it."""
    bound = bound_of(op)
    if bound is None or not bound.bytes or peaks is None or bound.kind not in _FOLDING or "backward" in op.name:
        return None
    reached = bound.bytes / peaks.gbps / max(dur_ns, 1)
    if not least_share <= reached <= 1:
        return None
    needed_ns = dur_ns * (1 - spared * op.item_bytes(0) / bound.bytes)
    return min(max(needed_ns, reached_ns(replace(bound, bytes=0), peaks, None)), float(dur_ns))
