"""Chains of eager pointwise kernels over one size, one after the other on a stream: what a compiler would fuse."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick, starts_of_runs
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.shapes import elements_of, product_of, shapes_of
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import OPTIMIZER_MARK
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

_SMALL = 1 / 16  # of the chain's size: a row's mean between kernels over rows of 16 and more
_SAME_SIZE = 1.0  # times: shapes are exact
_SAME_GRID = 4.0  # without shapes: elements of a thread differ by type and alignment
PAUSE_NS = 200_000  # of CPU time under the profiler; between eager ops it is 5 to 60 us, H200 host, torch 2.11
_PER_THREAD = regex(r"elementwise_kernel<(?:128, )?(\d{1,4})\b")


@dataclass(frozen=True, slots=True, eq=False)
class KernelChains:
    """Arrays of shape (kernels,), kernel by kernel of every chain, chains in the order of device, stream and start.

    Attributes:
        entry: int64, entry of `DeviceWork`.
        chain: int64, number of the chain, from 0.
        whole: bool, pointwise and over the chain's size; the others are reductions and what works on their results.
        sized: whether sizes are from recorded shapes, not from grids.
    """

    entry: Rows
    chain: Rows
    whole: Mask
    sized: bool

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, nesting: Nesting, steps: Steps) -> Self:
        order = np.lexsort((work.start_ns, work.stream, work.device))
        name = Texts.column(trace.lanes.gpu, "name", work.row[order])
        pointwise = name.matches(families.POINTWISE) & ~name.matches(r"^triton_")
        # A compiler fuses a softmax with what stands next to it.
        pointwise |= name.matches(families.SOFTMAX_OF_ROWS)
        pointwise &= work.kind[order] == KINDS.index("compute")
        for other in (families.FILL, families.STRIDED_COPY, families.INDEXED, families.COMPLEX):
            pointwise &= ~name.matches(other)
        reduction = name.matches(families.EAGER_REDUCTION)
        fusible = (pointwise | reduction) & ~launched_apart(trace, nesting, pick(work.call, order))
        breaks = ~fusible | ~np.append(False, fusible[:-1]) | after_pauses(work, order)
        for column in (work.device[order], work.stream[order], steps.of_work[order]):
            breaks |= starts_of_runs(column)
        shapes = Texts.column(trace.lanes.cpu, "input_dims", work.op[order]).numbers(_broadcast_elements)
        sized = bool((shapes[fusible] > 0).any())
        if sized:
            size = np.maximum(shapes, 0)
        else:  # blocks of 128 threads, each as many elements as the name's template argument says
            blocks = Texts.column(trace.lanes.gpu, "grid", work.row[order]).numbers(product_of)
            each = elements_per_thread(name)
            size = blocks * np.where(each, each, 4) * 128
        run = np.cumsum(breaks) - 1
        size = np.where(pointwise, size, 0)
        largest = np.zeros(int(run.max(initial=-1)) + 1, np.int64)
        np.maximum.at(largest, run, size)
        large = fusible & (size > _SMALL * largest[run])
        run = np.cumsum(breaks | _jumps(run, size, large, _SAME_SIZE if sized else _SAME_GRID)) - 1
        whole = large & pointwise
        # What comes before the first is another's end.
        fusible &= np.maximum.accumulate(np.where(whole, run, -1)) == run
        fusible[fusible] = ~_interrupted(work, nesting, order[fusible], run[fusible])
        numbers = np.cumsum(starts_of_runs(run[fusible])) - 1
        return cls(order[fusible], numbers, whole[fusible], sized)

    def longer_than(self, kernels: int) -> Self:
        """The chains with more whole kernels than that, numbered anew."""
        long = np.bincount(self.chain, weights=self.whole)[self.chain] > kernels
        numbers = np.cumsum(starts_of_runs(self.chain[long])) - 1
        return type(self)(self.entry[long], numbers, self.whole[long], self.sized)


def launched_apart(trace: Trace, nesting: Nesting, call: Rows) -> Mask:
    """Which launches lie where nothing is fused: an optimizer's step, sums of gradients, a library's transform."""
    names = Texts.column(trace.lanes.cpu, "name", np.arange(len(nesting.parent)))
    marks = names.matches(OPTIMIZER_MARK) | names.matches(r"AccumulateGrad$|^aten::_?fft_")
    return np.asarray(nearest_marked(nesting.parent, marks, call) >= 0)


def after_pauses(work: DeviceWork, order: Rows) -> Mask:
    """Launches that come long after the one before them: other code lies between."""
    start, end = work.call_start_ns[order], work.call_end_ns[order]
    linked = (work.call[order][1:] >= 0) & (work.call[order][:-1] >= 0)
    return np.append(False, linked & (start[1:] - end[:-1] > PAUSE_NS))


def _interrupted(work: DeviceWork, nesting: Nesting, entry: Rows, run: Rows) -> Mask:
    """Which kernels are in chains where other code takes more of the CPU's time than the chain's own ops do."""
    # Between ops of one expression python takes 0.2 to 0.5 of an op's time, with stacks or without (H200, torch 2.11).
    call = pick(work.call, entry)
    op = nesting.top_op(call)
    row = np.where(op >= 0, op, call)
    start, end = pick(nesting.start_ns, row, 0), pick(nesting.end_ns, row, 0)
    linked = (run[1:] == run[:-1]) & (row[1:] >= 0) & (row[:-1] >= 0)
    pause = np.append(0, np.where(linked, np.maximum(start[1:] - end[:-1], 0), 0))
    number = np.cumsum(starts_of_runs(run)) - 1
    pause_ns, op_ns = np.bincount(number, weights=pause), np.bincount(number, weights=end - start)
    return np.asarray((pause_ns > op_ns)[number])


def _jumps(run: Rows, size: Rows, large: Mask, most: float) -> Mask:
    """Large kernels whose size differs from that of the large one before them in their run."""
    position = np.flatnonzero(large)
    before, after = size[position[:-1]], size[position[1:]]
    differs = (run[position[:-1]] == run[position[1:]]) & ((after > most * before) | (before > most * after))
    jumps = np.zeros(len(run), bool)
    jumps[position[1:][differs]] = True
    return jumps


def _broadcast_elements(dims: str) -> int:
    """Elements of the inputs broadcast together; of the largest, where they do not fit."""
    shapes = shapes_of(dims)
    try:
        return elements_of(np.broadcast_shapes(*shapes))
    except ValueError:
        return max(map(elements_of, shapes))


def elements_per_thread(name: Texts) -> Rows:
    """Elements that each thread of torch's elementwise kernels handles, by their names; 0 of other kernels."""
    return name.numbers(lambda kernel: int(match[1]) if (match := _PER_THREAD.search(kernel)) else 0)
