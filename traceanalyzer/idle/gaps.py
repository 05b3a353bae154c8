"""The stretches in which a device ran nothing: proven spans are cut out of them, and the rest gets one cause."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick, starts_of_runs, sums_of
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
    starts = np.append(window[0], running)
    ends = np.append(work.start_ns[selected], max(window[1], int(running[-1])))
    # The work that ends last before each gap: the position at which the running maximum last rose.
    latest = np.maximum.accumulate(np.where(starts_of_runs(running), np.arange(len(selected)), 0))
    before, after = np.append(-1, selected[latest]), np.append(selected, -1)
    gap = ends > starts
    return np.full(int(gap.sum()), device), starts[gap], ends[gap], after[gap], before[gap]


def longest_row(nesting: Nesting, rows: Rows, starts: Rows, ends: Rows) -> Rows:
    """For each interval the outermost of `rows` that overlaps it longest, -1 for none."""
    row_start, row_end = nesting.start_ns[rows], nesting.end_ns[rows]
    order = np.lexsort((-row_end, row_start))
    rows, row_start, row_end = rows[order], row_start[order], row_end[order]
    outer = np.append(True, row_start[1:] >= np.maximum.accumulate(row_end)[:-1])[: len(rows)]
    best, _ = intervals.longest_overlap((row_start[outer], row_end[outer]), starts, ends)
    return pick(rows[outer], best)


MOST = 0.5  # of a gap: from this share on an activity is most of it; chosen
# A smaller part of a gap stays with the rest: 20 us is twice a launch call under the profiler (4 to 10 us, V100 to
# H200), and below a tenth of a gap a part changes nothing.
REAL_PART_NS = 20_000
REAL_PART = 0.1


@dataclass(frozen=True, slots=True)
class Proof:
    """What the CPU demonstrably did, and which gaps it may explain.

    Attributes:
        rows: int64 of shape (rows,), rows of `trace.cpu` that prove it: the one that covers most of a piece decides it,
            of those around one another the outermost.
        times: where the rows prove it for a part of their time: that part of each, parallel to `rows`, disjoint.
        gaps: bool of shape (gaps,).
        whole: whether all of a gap may be its, not only what lies before the next work's launch call returned.
    """

    spans: intervals.Set
    rows: Rows
    gaps: Mask
    whole: bool = False
    times: intervals.Set | None = None


class Cutter:
    """Takes pieces out of gaps, one cause after the other; what was taken once is not taken again.

    Gaps of several devices overlap in time. So they are laid end to end on an axis of their own, one free nanosecond
    between any two, and cut there.
    """

    def __init__(self, gaps: Gaps) -> None:
        self.gaps = gaps
        self.axis = np.cumsum(gaps.dur_ns + 1) - gaps.dur_ns - 1
        self.taken: intervals.Set = intervals.EMPTY
        returned = np.minimum(np.maximum(gaps.returned_ns, gaps.start_ns), gaps.end_ns)
        self.launch_return = np.where(gaps.call >= 0, returned, gaps.start_ns)

    def take(self, proof: Proof) -> tuple[Rows, Rows, Rows]:
        """(gap, start, end) of the pieces that the proof takes: of each gap at least a tenth, or 20 us in all."""
        limit = self.gaps.end_ns if proof.whole else self.launch_return
        covered = intervals.covered(proof.spans, self.gaps.start_ns, np.maximum(limit, self.gaps.start_ns))
        real = proof.gaps & self._is_real(covered)
        gap = np.flatnonzero(real)
        owner, member = intervals.overlaps(proof.spans, self.gaps.start_ns[gap], limit[gap])
        gap = gap[owner]
        shift = self.axis[gap] - self.gaps.start_ns[gap]
        start = np.maximum(proof.spans[0][member], self.gaps.start_ns[gap]) + shift
        end = np.minimum(proof.spans[1][member], limit[gap]) + shift
        return self._on_gaps(self._claim(intervals.union(start, end)) if len(gap) else intervals.EMPTY)

    def remainder(self) -> tuple[Rows, Rows, Rows]:
        """(gap, start, end) of what nobody has taken."""
        return self._on_gaps(intervals.difference((self.axis, self.axis + self.gaps.dur_ns), self.taken))

    def _claim(self, wanted: intervals.Set) -> intervals.Set:
        """What of the set is still free, where that is a real part of its gap."""
        starts, ends = self.taken
        near = (ends > wanted[0][0]) & (starts < wanted[1][-1])  # fewer are faster
        free = intervals.difference(wanted, (starts[near], ends[near]))
        gap = np.searchsorted(self.axis, free[0], side="right") - 1
        real = self._is_real(sums_of(gap, free[1] - free[0], len(self.gaps)))[gap]
        free = free[0][real], free[1][real]
        self.taken = intervals.union(*(np.concatenate(edges) for edges in zip(self.taken, free, strict=True)))
        return free

    def _is_real(self, part_ns: Rows) -> Mask:
        return np.asarray((part_ns > 0) & ((part_ns >= REAL_PART_NS) | (part_ns >= REAL_PART * self.gaps.dur_ns)))

    def _on_gaps(self, pieces: intervals.Set) -> tuple[Rows, Rows, Rows]:
        gap = np.searchsorted(self.axis, pieces[0], side="right") - 1
        shift = self.gaps.start_ns[gap] - self.axis[gap]
        return gap, pieces[0] + shift, pieces[1] + shift
