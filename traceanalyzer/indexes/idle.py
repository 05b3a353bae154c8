"""Every stretch in which a device did nothing, each with one cause and the events that decided it.

Causes are tried in the order of `PRECEDENCE`; the first that holds takes the whole gap. "Most" is at least half
of the gap. Launched late means that the launch of the next work began after the device ran dry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer import intervals
from traceanalyzer.indexes.activity import Activity
from traceanalyzer.indexes.calls import STREAM_WAIT, copy_kind
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.steps import whole_window
from traceanalyzer.indexes.syncs import Syncs
from traceanalyzer.trace import NULL_INT, Trace, matching

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

# (cause, what must hold, why it stands at this place). The first that holds takes the gap.
PRECEDENCE: tuple[tuple[str, str, str], ...] = (
    ("tail", "nothing runs on the device any more", "no next work, so no launch to ask about"),
    ("in_graph", "the next work's graph launch had begun its work", "no launch lies between a graph's nodes"),
    ("unlinked", "the next work has no launch in the trace", "nothing on the CPU can be asked"),
    (
        "synchronisation_round_trip",
        "launched in time, but the queue has been empty since a synchronising call, or this is the copy that "
        "such a call waits for",
        "the gap is short and looks like latency, but the call emptied the queue",
    ),
    (
        "launch_latency",
        "launched in time, started after the device's usual delay",
        "the CPU is not the cause",
    ),
    (
        "profiler_overhead",
        "a stall by the profiler covers most of it",
        "it swells whatever op or call contains it",
    ),
    ("late_launch:data_loading", "launched late; data loading covers most of it", "contains ops and waits"),
    (
        "late_launch:compilation",
        "launched late; compiling covers most of it",
        "contains ops, loading and copies",
    ),
    ("late_launch:module_loading", "loading kernels covers most of it", "hides in a launch call"),
    (
        "late_launch:allocator",
        "launched late; allocator calls cover most of it",
        "cudaFree waits for the device",
    ),
    (
        "synchronisation_round_trip",
        "launched late; a synchronising call or blocking copy of the launching threads reaches into it, and "
        "the CPU was in it when the device drained, or it did not spend nearly all of the gap outside ops",
        "the CPU could not launch while it waited, whatever it did after",
    ),
    (
        "launch_latency",
        "launched in time, and started when the launch call returned",
        "the call itself took long",
    ),
    (
        "waiting",
        "launched, but the start took longer than usual and most of the gap: behind a wait for an event, or at "
        "the head of the trace behind work that it does not show",
        "the launch was there: what the CPU did before it is not the cause",
    ),
    ("unknown", "as above, without a wait that explains it", "as above"),
    ("late_launch:python", "launched late; most of it between ops, and stacks show python", "no op is open"),
    (
        "late_launch:host_code",
        "launched late; most of it between ops, without stacks",
        "python or other host code",
    ),
    ("late_launch:dispatching", "launched late; most of it inside ops and calls", "what is left"),
)
CAUSES = tuple(dict.fromkeys(cause for cause, _, _ in PRECEDENCE))
_MOST = 0.5
_NEARLY_ALL = (
    0.8  # of the gap spent outside ops: then a synchronisation that came after the device drained is no cause
)
_USUAL_QUANTILE = 0.9  # of the delays onto an idle device: what is usual there
_DEFAULT_DELAY_NS = (
    10_000  # where nothing was launched onto an idle device: V100 to MI300 show minima of 2 to 26 us
)
_MAX_DELAY_NS = 100_000  # a usual delay above this would mean that the clocks of CPU and GPU disagree


@dataclass(frozen=True, slots=True)
class Idle:
    """Arrays of shape (gaps,), ordered by device and start.

    Attributes:
        device, start_ns, end_ns: int64; gaps of the whole window, also where the user analyses a part.
        cause: int64, position in `CAUSES`.
        work: int64, entry of `Launches` that ends the gap, -1 at the tail.
        before: int64, entry of `Launches` that ran last before it, -1 at the head.
        row: int64, row of `trace.cpu` that decided: the synchronising call, the loader, the stalled call, else
            the launch; -1 for none.
        op: int64, row of `trace.cpu` of the op to name: around `row`, else the one that launched; -1 for none.
        sure: float64, share of the gap that the deciding activity covers, 1 where no share decides.
    """

    device: Rows
    start_ns: Rows
    end_ns: Rows
    cause: Rows
    work: Rows
    before: Rows
    row: Rows
    op: Rows
    sure: NDArray[np.float64]

    @property
    def dur_ns(self) -> Rows:
        """Length of each gap."""
        return self.end_ns - self.start_ns

    def is_cause(self, *causes: str) -> Mask:
        """Which gaps have one of these causes."""
        return np.isin(self.cause, [CAUSES.index(cause) for cause in causes])

    @classmethod
    def build(cls, trace: Trace) -> Self:
        work = trace.index(Launches)
        window = whole_window(trace)
        parts = [_gaps(work, device, window) for device in np.unique(work.device).tolist()]
        device, start, end, after, before = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        judged = _Judge(trace, work, device, start, end, after, before)
        cause, row, sure = judged.decide()
        op = judged.op_of(row)
        return cls(device, start, end, cause, after, before, row, op, sure)


def _gaps(work: Launches, device: int, window: tuple[int, int]) -> tuple[Rows, ...]:
    """(device, start, end, next work, work before) of the gaps of one device."""
    mine = np.flatnonzero(work.device == device)
    running = np.maximum.accumulate(work.end_ns[mine])
    starts = np.concatenate(([window[0]], running))
    ends = np.append(work.start_ns[mine], max(window[1], int(running[-1])))
    # The work that ends last before each gap: the position at which the running maximum last rose.
    rose = np.concatenate(([True], running[1:] > running[:-1]))
    latest = mine[np.maximum.accumulate(np.where(rose, np.arange(len(mine)), 0))]
    before = np.concatenate(([-1], latest))
    after = np.append(mine, -1)
    gap = ends > starts
    count = int(gap.sum())
    return np.full(count, device), starts[gap], ends[gap], after[gap], before[gap]


class _Judge:
    """Holds the gaps while their cause is decided."""

    def __init__(
        self, trace: Trace, work: Launches, device: Rows, start: Rows, end: Rows, after: Rows, before: Rows
    ) -> None:
        self.trace, self.work = trace, work
        self.nesting = trace.index(Nesting)
        self.activity = trace.index(Activity)
        self.device, self.start, self.end, self.after, self.before = device, start, end, after, before
        self.call = np.where(after >= 0, work.call[after], -1)
        self.launched = np.where(self.call >= 0, work.call_start_ns[after], NULL_INT)

    def decide(self) -> tuple[Rows, Rows, NDArray[np.float64]]:
        """(cause, deciding row, sureness) of every gap."""
        cause = np.full(len(self.start), CAUSES.index("late_launch:dispatching"))
        row, sure = self.call.copy(), self.share("dispatching")
        free = np.ones(len(self.start), bool)
        for name, holds, deciding, certainty in self._tests():
            taken = free & holds
            cause[taken] = CAUSES.index(name)
            row[taken] = deciding[taken]
            sure[taken] = certainty[taken]
            free &= ~holds
        return cause, row, sure

    def _tests(self) -> Iterator[tuple[str, Mask, Rows, NDArray[np.float64]]]:
        """(cause, does it hold, deciding row, certainty) in the order of PRECEDENCE."""
        one, none = np.ones(len(self.start)), np.full(len(self.start), -1)
        in_time = self.launched <= self.start
        usual = self._usual_delay()
        returned = np.where(self.call >= 0, self.work.call_end_ns[self.after], NULL_INT)
        held = self.end - np.maximum(np.maximum(self.launched, returned), self.start)
        stuck = (held > usual) & (held > _MOST * (self.end - self.start))
        late = ~in_time & ~stuck
        direct, refill = self._synchronisation(late, in_time)
        between = 1 - self.share("dispatching")
        stacks = bool(self.trace.meta.rows.get("python"))
        yield "tail", self.after < 0, none, one
        yield "in_graph", self._in_graph(), self.call, one
        yield "unlinked", self.call < 0, none, one
        yield "synchronisation_round_trip", refill >= 0, refill, one
        yield "launch_latency", in_time & (self.end - self.start <= usual), self.call, one
        yield self._covering("profiler_overhead", "profiler", one > 0)
        for kind in ("data_loading", "compilation"):
            yield self._covering(f"late_launch:{kind}", kind, late)
        yield self._covering("late_launch:module_loading", "module_loading", one > 0)
        yield self._covering("late_launch:allocator", "allocator", late)
        yield "synchronisation_round_trip", direct >= 0, direct, one
        yield "launch_latency", in_time & (held <= usual), self.call, one
        yield "waiting", stuck & self._waits(), self.call, one * 0.5
        yield "unknown", ~late, self.call, one
        yield "late_launch:python", (between >= _MOST) & stacks, self.call, between
        yield "late_launch:host_code", (between >= _MOST) & (not stacks), self.call, between

    def share(self, kind: str) -> NDArray[np.float64]:
        """Share of each gap that a kind of activity covers."""
        covered = intervals.covered(self.activity.sets[kind], self.start, self.end)
        return np.asarray(covered / np.maximum(self.end - self.start, 1), np.float64)

    def _covering(self, cause: str, kind: str, among: Mask) -> tuple[str, Mask, Rows, NDArray[np.float64]]:
        """Where a kind covers most of the gap; the deciding row is the longest of the kind that overlaps it."""
        share = self.share(kind)
        holds = among & (share >= _MOST)
        rows = np.full(len(self.start), -1)
        kinds = self.activity.rows[kind]
        if len(kinds) and holds.any():
            rows[holds] = _longest_overlap(self.nesting, kinds, self.start[holds], self.end[holds])
        return cause, holds, rows, share

    def _in_graph(self) -> Mask:
        """The launch that ends the gap had already started other work."""
        first = np.full(len(self.nesting.lane) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self.work.call, self.work.start_ns)
        shared = (self.after >= 0) & self.work.shared[self.after]
        return shared & (first[self.call] < self.start)

    def _usual_delay(self) -> Rows:
        """Per gap, the device's usual delay from launch to start where it was idle."""
        usual = np.full(len(self.start), _DEFAULT_DELAY_NS)
        for device in np.unique(self.device):
            here = self.device == device
            fresh = here & (self.launched > self.start)
            if fresh.any():
                delay = int(np.quantile((self.end - self.launched)[fresh], _USUAL_QUANTILE))
                usual[here] = delay if delay <= _MAX_DELAY_NS else _DEFAULT_DELAY_NS
        return usual

    def _waits(self) -> Mask:
        """A wait for an event was issued since the work before was launched, or nothing ran before."""
        waits = matching(self.trace.cpu, "name", lambda name: bool(STREAM_WAIT.search(name)))
        at = np.sort(self.nesting.start_ns[waits])
        since = np.where(self.before >= 0, self.work.call_start_ns[self.before], NULL_INT)
        between = np.searchsorted(at, self.launched) > np.searchsorted(at, since)
        return np.asarray((self.before < 0) | between & (since != NULL_INT))

    def _synchronisation(self, late: Mask, in_time: Mask) -> tuple[Rows, Rows]:
        """(direct, refill): rows of the synchronising call that the gap is charged to, -1 for none.

        Direct: the last call that began before the launch reaches into the gap, unless it began after the device
        drained and nearly all of the gap was spent outside ops and calls. Refill: launched in time, right
        behind work that such a gap held up; or the work is the copy that the call waits for.
        """
        syncs = self.trace.index(Syncs)
        usable = np.flatnonzero(~syncs.profiler & self.activity.launching[syncs.lane])
        none = np.full(len(self.start), -1)
        if len(usable) == 0:
            return none, none
        usable = usable[np.argsort(syncs.start_ns[usable], kind="stable")]
        rows, starts, ends = syncs.row[usable], syncs.start_ns[usable], syncs.end_ns[usable]
        at = np.searchsorted(starts, self.launched, side="right") - 1
        last = np.maximum(at, 0)
        reaches = (at >= 0) & (ends[last] > self.start) & (starts[last] < self.end) & (self.after >= 0)
        own_call = rows[last] == self.call
        drained = starts[last] <= self.start
        beside_the_point = ~drained & (self.share("dispatching") <= 1 - _NEARLY_ALL)
        direct = np.where(reaches & (late & ~beside_the_point | own_call), rows[last], -1)
        following = np.minimum(at + 1, len(rows) - 1)
        awaited = (
            in_time
            & self._reads_back()
            & (starts[following] > self.launched)
            & (starts[following] < self.end)
        )
        return direct, np.where(awaited, rows[following], self._chained(direct, in_time))

    def _reads_back(self) -> Mask:
        """The next work is a copy to the host."""
        to_host = matching(self.trace.gpu, "name", lambda name: copy_kind(name) == "d2h")
        to_host &= (self.trace.gpu["category"] == "gpu_memcpy").to_numpy()
        return (self.after >= 0) & to_host[self.work.row[self.after]]

    def _chained(self, direct: Rows, in_time: Mask) -> Rows:
        """The call of the gap before, where each gap since was launched in time behind the work of the last."""
        position = np.arange(len(direct))
        chained = np.zeros(len(direct), bool)
        chained[1:] = in_time[1:] & (self.before[1:] == self.after[:-1]) & (self.after[1:] >= 0)
        first = np.maximum.accumulate(np.where(chained, 0, position))
        return np.where(chained, direct[first], -1)

    def op_of(self, row: Rows) -> Rows:
        """The op around the deciding row, else the op that launched the next work."""
        around = np.where(row >= 0, self.nesting.op[row], -1)
        launched = np.where(self.after >= 0, self.work.op[self.after], -1)
        launched = np.where(launched >= 0, launched, self.call)
        decided = row != self.call
        return np.where(decided, np.where(around >= 0, around, row), launched)


def _longest_overlap(nesting: Nesting, rows: Rows, starts: Rows, ends: Rows) -> Rows:
    """For each interval the outermost of `rows` that overlaps it longest, among those that open before its end.

    Exact where the rows nest or are disjoint: then the longest is the last outermost one before the middle of
    the overlap, or one of its neighbours.
    """
    row_start, row_end = nesting.start_ns[rows], nesting.end_ns[rows]
    order = np.lexsort((-row_end, row_start))
    rows, row_start, row_end = rows[order], row_start[order], row_end[order]
    running = np.maximum.accumulate(row_end)
    outer = np.concatenate(([True], row_start[1:] >= running[:-1]))
    rows, row_start, row_end = rows[outer], row_start[outer], row_end[outer]
    first = np.searchsorted(row_end, starts, side="right")
    last = np.searchsorted(row_start, ends, side="left")
    best, longest = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
    for offset in range(int((last - first).max(initial=0))):
        at = np.minimum(first + offset, len(rows) - 1)
        inside = first + offset < last
        overlap = np.minimum(row_end[at], ends) - np.maximum(row_start[at], starts)
        better = inside & (overlap > longest)
        best[better], longest[better] = rows[at[better]], overlap[better]
    return best
