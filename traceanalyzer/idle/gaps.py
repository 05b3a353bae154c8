"""The stretches in which a device ran nothing: proven spans are cut out of them, and the rest gets one cause.

`Evidence` has what the tests of causes read: gaps, indexes, and values that several tests need.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from traceanalyzer.idle.stalled_calls import StalledCalls
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, pick, quantile, starts_of_runs, sums_of
from traceanalyzer.model.trace import NULL_INT, Trace
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import StepMarks
from traceanalyzer.timeline.synchronisation import SyncCalls


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


Pieces = tuple[Rows, Rows, Rows]  # gap, start and end of each


class Cutter:
    """Takes pieces out of gaps, one cause after the other; what was taken once is not taken again."""

    def __init__(self, gaps: Gaps) -> None:
        self.gaps = gaps
        # Gaps of devices overlap in time: they are laid end to end, one free nanosecond between any two, and cut there.
        self.axis = np.cumsum(gaps.dur_ns + 1) - gaps.dur_ns - 1
        self.taken: intervals.Set = intervals.EMPTY
        returned = np.minimum(np.maximum(gaps.returned_ns, gaps.start_ns), gaps.end_ns)
        self.launch_return = np.where(gaps.call >= 0, returned, gaps.start_ns)

    def take(self, proof: Proof) -> Pieces:
        """The pieces that the proof takes: of each gap at least a tenth, or 20 us in all."""
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

    def remainder(self) -> Pieces:
        """What nobody has taken."""
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

    def _on_gaps(self, pieces: intervals.Set) -> Pieces:
        gap = np.searchsorted(self.axis, pieces[0], side="right") - 1
        shift = self.gaps.start_ns[gap] - self.axis[gap]
        return gap, pieces[0] + shift, pieces[1] + shift


# A stretch without ops below this says nothing: after a synchronisation the step's end and prof.step() alone take
# up to 0.10 ms on an H200 under the profiler (torch 2.11, device_sync), and deliberate pauses start at 0.3 ms.
LONG_PAUSE_NS = 200_000


def _drained_nothing(gaps: Gaps, work: DeviceWork, call: Rows, start_ns: Rows) -> Mask:
    """The call waited for nothing but its own copy to the device, which was dry when the call began."""
    copies = (work.kind == KINDS.index("copy_h2d"))[gaps.previous_work] & (work.call[gaps.previous_work] == call)
    dry = np.zeros(len(gaps), bool)
    dry[1:] = (gaps.next_work[:-1] == gaps.previous_work[1:]) & (gaps.start_ns[:-1] <= start_ns[1:])
    return np.asarray((gaps.previous_work >= 0) & copies & dry)


def _paused(activity: Activity, starts: Rows, ends: Rows) -> Mask:
    """Most of the gap lies between ops, and more of it than one takes to go on after a wait: the CPU works on."""
    low, high = int(starts.min(initial=0)), int(ends.max(initial=0))
    between = intervals.complement(activity.sets["dispatching"], low, high)
    pause = intervals.covered(between, starts, ends)
    return (pause >= MOST * (ends - starts)) & (pause >= LONG_PAUSE_NS)


def chained_call(direct: Rows, gaps: Gaps) -> Rows:
    """The call of the gap before, where each gap since was launched in time after the work of the last."""
    chained = np.zeros(len(direct), bool)
    follows = (gaps.previous_work[1:] == gaps.next_work[:-1]) & (gaps.next_work[1:] >= 0)
    chained[1:] = gaps.in_time[1:] & follows
    first = np.maximum.accumulate(np.where(chained, 0, np.arange(len(direct))))
    return np.where(chained, direct[first], -1)


_USUAL_QUANTILE = 0.9  # of the delays onto an idle device: what is usual there
DEFAULT_DELAY_NS = 10_000  # where nothing was launched onto an idle device: V100 to MI300 show minima of 2 to 26 us
MAX_DELAY_NS = 100_000  # a usual delay above this would mean that the clocks of CPU and GPU disagree


@dataclass(frozen=True)
class Evidence:
    """The indexes, the gaps, and the rest that proven causes have left of each; arrays below are of shape (gaps,)."""

    trace: Trace
    gaps: Gaps
    work: DeviceWork
    marks: StepMarks
    nesting: Nesting
    activity: Activity
    syncs: SyncCalls
    stalled_calls: StalledCalls
    remainder: Pieces

    @cached_property
    def remainder_ns(self) -> Rows:
        """Length of the rest, int64."""
        gap, start, end = self.remainder
        return sums_of(gap, end - start, len(self.gaps))

    @cached_property
    def in_ops(self) -> Floats:
        """Share of the rest that ops and calls of launching threads cover."""
        gap, start, end = self.remainder
        covered = intervals.covered(self.activity.sets["dispatching"], start, end)
        return sums_of(gap, covered, len(self.gaps)) / np.maximum(self.remainder_ns, 1)

    @cached_property
    def usual_delay_ns(self) -> Rows:
        """The device's usual delay from launch to start where it was idle, int64."""
        gaps = self.gaps
        usual = np.full(len(gaps), DEFAULT_DELAY_NS)
        for device in distinct(gaps.device):
            on_device = gaps.device == device
            fresh = on_device & (gaps.launched_ns > gaps.start_ns)
            if fresh.any():
                delay = int(quantile((gaps.end_ns - gaps.launched_ns)[fresh], _USUAL_QUANTILE))
                usual[on_device] = delay if delay <= MAX_DELAY_NS else DEFAULT_DELAY_NS
        return usual

    @cached_property
    def held_ns(self) -> Rows:
        """How long the work that ends the gap was held up after its launch call had returned, int64."""
        gaps = self.gaps
        return gaps.end_ns - np.maximum(np.maximum(gaps.launched_ns, gaps.returned_ns), gaps.start_ns)

    @cached_property
    def late(self) -> Mask:
        """Launched late: the launch began after the device ran dry, and the work was not held up after it."""
        stuck = (self.held_ns > self.usual_delay_ns) & (self.held_ns > MOST * self.remainder_ns)
        return np.asarray(~self.gaps.in_time & ~stuck)

    @cached_property
    def waits(self) -> tuple[Rows, Rows]:
        """(direct, refill): rows of the synchronising call that the gap is charged to, -1 for none.

        Direct: launched late, and the last call that began before the launch reaches into the gap, unless the CPU then
        paused (`_paused`); or the launch is a blocking copy whose call covers most of the gap. Refill: launched in
        time, right after work that such a gap held up; or the work is the copy that the call waits for.
        """
        gaps, work, activity, syncs = self.gaps, self.work, self.activity, self.syncs
        usable = np.flatnonzero(~syncs.profiler & activity.launching[syncs.thread])
        none = np.full(len(gaps), -1)
        if len(usable) == 0:
            return none, none
        usable = usable[np.argsort(syncs.start_ns[usable], kind="stable")]
        rows, starts, ends = syncs.row[usable], syncs.start_ns[usable], syncs.end_ns[usable]
        position = np.searchsorted(starts, gaps.launched_ns, side="left") - 1
        last = np.maximum(position, 0)
        inside = gaps.overlap_ns(starts[last], ends[last])
        drained = gaps.previous_work >= 0  # at the head of the trace nothing is known to have been
        # A call that began when the device was dry already, and did not wait, explains no more than a short gap.
        dry = np.searchsorted(starts, gaps.start_ns, side="right") - 1
        waited = (dry >= 0) & (ends[np.maximum(dry, 0)] >= gaps.start_ns)
        waited |= (gaps.dur_ns <= LONG_PAUSE_NS) | (inside >= MOST * gaps.dur_ns)
        waited &= ~_drained_nothing(gaps, work, rows[last], starts[last]) | (inside >= MOST * gaps.dur_ns)
        holds = self.late & (position >= 0) & (inside > 0) & drained & waited
        charged = np.flatnonzero(holds)
        holds[charged] = ~_paused(activity, gaps.start_ns[charged], gaps.end_ns[charged])
        # Not at the head of the trace, where a blocking copy may wait for work that is not in it.
        blocking = (gaps.call >= 0) & drained & np.isin(gaps.call, rows)
        blocking &= gaps.overlap_ns(gaps.launched_ns, gaps.returned_ns) >= MOST * gaps.dur_ns
        direct = np.where(holds, rows[last], np.where(blocking, gaps.call, -1))
        following = np.minimum(np.searchsorted(starts, gaps.launched_ns, side="right"), len(rows) - 1)
        reads_back = (work.kind == KINDS.index("copy_d2h"))[gaps.next_work] & (gaps.next_work >= 0)
        waited_for = gaps.in_time & reads_back & (gaps.call >= 0)
        waited_for &= (starts[following] > gaps.launched_ns) & (starts[following] < gaps.end_ns)
        return direct, np.where(waited_for, rows[following], chained_call(direct, gaps))

    @cached_property
    def in_graph(self) -> Mask:
        """The launch that ends it had started other work: it lies between the nodes of a graph, and none was late."""
        gaps, work = self.gaps, self.work
        shared = np.asarray((gaps.next_work >= 0) & work.shared[gaps.next_work])
        if not shared.any():
            return shared
        # In order of start, so the first is the earliest.
        calls, entry = np.unique(work.call, return_index=True)
        return shared & (work.start_ns[entry[np.searchsorted(calls, gaps.call)]] < gaps.start_ns)

    @cached_property
    def thread(self) -> Rows:
        """Thread of the launch that ends the gap, -1 for none."""
        return pick(self.nesting.thread, self.gaps.call)
