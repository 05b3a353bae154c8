"""The stretches in which a device ran nothing, without causes."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting


@dataclass(frozen=True, slots=True)
class Gaps:
    """Arrays of shape (gaps,), ordered by device and start.

    Attributes:
        device, start_ns, end_ns: int64.
        next_work: int64, entry of `DeviceWork` that ends the gap, -1 at the tail.
        previous_work: int64, entry of `DeviceWork` that ran last before it, -1 at the head.
        call: int64, row of `trace.cpu` of the launch that ends it, -1 for none.
        launched_ns, returned_ns: int64, that call's start and end, NULL_INT for none.
    """

    device: Rows
    start_ns: Rows
    end_ns: Rows
    next_work: Rows
    previous_work: Rows
    call: Rows
    launched_ns: Rows
    returned_ns: Rows

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def dur_ns(self) -> Rows:
        return self.end_ns - self.start_ns

    @property
    def in_time(self) -> Mask:
        """The launch had begun when the device ran dry; also where there is no launch."""
        return np.asarray(self.launched_ns <= self.start_ns)

    def overlap_ns(self, starts: Rows, ends: Rows) -> Rows:
        """How much of each gap its own interval [starts[i], ends[i]) covers, 0 where that is missing."""
        ends = np.maximum(ends, self.start_ns)  # a missing call has no times to compute with
        inside: Rows = np.minimum(self.end_ns, ends) - np.maximum(self.start_ns, starts)
        return np.maximum(inside, 0)

    def in_graph(self, work: DeviceWork) -> Mask:
        """The launch that ends the gap had already started other work: it lies between the nodes of a graph."""
        shared = np.asarray((self.next_work >= 0) & work.shared[self.next_work])
        if not shared.any():
            return shared
        # In order of start, so the first is the earliest.
        calls, entry = np.unique(work.call, return_index=True)
        return shared & (work.start_ns[entry[np.searchsorted(calls, self.call)]] < self.start_ns)

    @classmethod
    def of(cls, work: DeviceWork, window: tuple[int, int]) -> Self:
        """The gaps of every device within the window."""
        parts = [_of_device(work, device, window) for device in distinct(work.device).tolist()]
        device, start, end, after, before = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        call = pick(work.call, after)
        launched, returned = (pick(of, after, NULL_INT) for of in (work.call_start_ns, work.call_end_ns))
        return cls(device, start, end, after, before, call, launched, returned)


def _of_device(work: DeviceWork, device: int, window: tuple[int, int]) -> tuple[Rows, ...]:
    """(device, start, end, next work, work before) of the gaps of one device."""
    selected = np.flatnonzero(work.device == device)
    running = np.maximum.accumulate(work.end_ns[selected])
    starts = np.concatenate(([window[0]], running))
    ends = np.append(work.start_ns[selected], max(window[1], int(running[-1])))
    # The work that ends last before each gap: the position at which the running maximum last rose.
    rose = np.concatenate(([True], running[1:] > running[:-1]))
    latest = selected[np.maximum.accumulate(np.where(rose, np.arange(len(selected)), 0))]
    before = np.concatenate(([-1], latest))
    after = np.append(selected, -1)
    gap = ends > starts
    count = int(gap.sum())
    return np.full(count, device), starts[gap], ends[gap], after[gap], before[gap]


def longest_row(nesting: Nesting, rows: Rows, starts: Rows, ends: Rows) -> Rows:
    """For each interval the outermost of `rows` that overlaps it longest, -1 for none."""
    row_start, row_end = nesting.start_ns[rows], nesting.end_ns[rows]
    order = np.lexsort((-row_end, row_start))
    rows, row_start, row_end = rows[order], row_start[order], row_end[order]
    running = np.maximum.accumulate(row_end)
    outer = np.concatenate(([True], row_start[1:] >= running[:-1]))[: len(rows)]
    best, _ = intervals.longest_overlap((row_start[outer], row_end[outer]), starts, ends)
    return pick(rows[outer], best)
