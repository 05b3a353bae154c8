"""Ops that read data which a copy wrote several times."""

import math
from dataclasses import replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import bound_of, reached_ns
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.rule import Work
from traceanalyzer.rules.copies.strided_copy.copied_tensors import write_counts
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.strides import layout_of
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

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


def readers_of(
    copies: Work, work: Work, inputs: WorkInputs, gpus: Gpus, least_share: float
) -> tuple[Work, Rows, Floats]:
    """(the readers' work, which copy each reads by its position, the time of each in ns if it read all data once).

    Readers are attention and products, bound by memory, that are the next to read what each of the copies wrote.

    Args:
        least_share: of the memory's peak rate, that such an op reaches.
    """
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
            needed = _needed_ns(
                op, spared, int(work.dur_ns[reader]), gpus[int(work.device[reader])].peaks, least_share
            )
            if needed is not None:
                reads.append((reader, position, needed))
    readers, read = (np.array([item[which] for item in reads], np.int64) for which in (0, 1))
    return work[readers], read, np.array([needed for _, _, needed in reads], np.float64)


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


def _needed_ns(
    op: Signature, spared: float, dur_ns: int, peaks: Peaks | None, least_share: float
) -> float | None:
    """Time in ns without the spared elements; None if the op folds no repeats or memory does not bound it."""
    bound = bound_of(op)
    if (
        bound is None
        or not bound.bytes
        or peaks is None
        or bound.kind not in _FOLDING
        or "backward" in op.name
    ):
        return None
    reached = bound.bytes / peaks.gbps / max(dur_ns, 1)
    if not least_share <= reached <= 1:
        return None
    needed_ns = dur_ns * (1 - spared * op.item_bytes(0) / bound.bytes)
    return min(max(needed_ns, reached_ns(replace(bound, bytes=0), peaks, None)), float(dur_ns))
