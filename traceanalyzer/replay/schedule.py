"""An edited program as launches, waits and edges at instants of CPU time, and the loop that replays these.

On a stream end_i = max(ready_i, end_(i-1) + gap_i) + dur_i. With before_i the sum of gaps and durations up to i,
end_i - before_i = max(end_(i-1) - before_(i-1), ready_i + dur_i - before_i): a running maximum. So a stretch of
launches without a wait is told by the largest of these per stream, and those are computed for all stretches at once.
From wait to wait, that leaves a few numbers for the loop.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from traceanalyzer.model.arrays import (
    Floats,
    Mask,
    Rows,
    distinct,
    no_rows,
    pick,
    places_of,
    previous_equal,
    starts_of_runs,
)
from traceanalyzer.replay.edited_program import EditedProgram

# From the end of the last work to the return of a copy that waits for it; H200 host.
_ADDED_TAIL_NS = 10_000.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """CPU times are those of a CPU that never waits, from the start of the block of steps.

    Attributes:
        cpu_ns: when the block ends.
        launch_ns: float64 (work,), ascending, when each piece of work is launched.
        stream: int64 (work,), below `streams`.
        gap_ns: float64 (work,), least time from the end of the work before it on its stream.
        latency_ns: float64 (work,), from the launch to the start on an idle stream.
        wait_after: int64 (waits,), ascending, how many pieces of work are launched before each wait.
        wait_ns: float64 (waits,), when the call that waits returns.
        wait_tail_ns: float64 (waits,), from the end of what it waits for to its return.
        wait_streams: bool (waits, streams of the program), for which streams' newest work it waits.
        edge_to, edge_from: int64 (edges,), positions of work: the first starts when the second has ended.
        meet: int64 (work,), number of the collective at which ranks meet, -1 for other work; may be empty.
        edge_ns: float64 (edges,), least time from the end of the second to the start of the first; may be empty.
    """

    cpu_ns: float
    launch_ns: Floats
    stream: Rows
    dur_ns: Floats
    gap_ns: Floats
    latency_ns: Floats
    wait_after: Rows
    wait_ns: Floats
    wait_tail_ns: Floats
    wait_streams: Mask
    edge_to: Rows
    edge_from: Rows
    streams: int
    meet: Rows = field(default_factory=no_rows)
    edge_ns: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def taken_ns(self) -> Floats:
        """Durations and gaps of each stream; float64 of shape (streams,)."""
        return np.bincount(self.stream, self.dur_ns + self.gap_ns, self.streams).astype(np.float64, copy=False)


class Schedules:
    """The schedules of what edits left, at any slowdown: what they have in common is made once."""

    def __init__(self, edited: EditedProgram) -> None:
        self._edited = edited
        position = np.flatnonzero(edited.alive)
        self._position = position[np.argsort(edited.launch[position], kind="stable")]
        self._launch = edited.launch[self._position]
        self._added_ns = edited.program.segments.slowed.added(edited.cpu_ns)
        self._edges = edited_edges(edited, self._position)
        self._gap_ns = edited_gaps(edited, self._position)
        waits, added = edited.program.waits, len(edited.added_waits)
        kept = np.flatnonzero(edited.waits)
        last = np.append(waits.last[kept], edited.added_waits)
        order = np.argsort(last, kind="stable")
        self._last = last[order]
        self._wait_after = np.searchsorted(self._launch, self._last, side="right")
        self._tail_ns = np.append(waits.tail_ns[kept], np.full(added, _ADDED_TAIL_NS))[order]
        waited = np.concatenate((waits.streams[kept], np.ones((added, waits.streams.shape[1]), bool)))
        self._waited = waited[order]

    def at(self, slowdown: float, *, whole: bool = False) -> Schedule:
        """On a CPU without the profiler that slowed it so."""
        edited, position = self._edited, self._position
        ns: Callable[[Floats], Floats] = np.rint if whole else np.asarray
        clock = np.concatenate(([0.0], np.cumsum(ns(self.unprofiled_cpu(slowdown)))))
        return Schedule(
            cpu_ns=float(clock[-1]),
            launch_ns=clock[self._launch],
            stream=edited.stream[position],
            dur_ns=ns(edited.dur_ns[position]),
            gap_ns=ns(self._gap_ns),
            latency_ns=ns(edited.program.work.latency_ns[position]),
            wait_after=self._wait_after,
            wait_ns=clock[self._last + 1],
            wait_tail_ns=ns(self._tail_ns),
            wait_streams=self._waited,
            edge_to=self._edges[0],
            edge_from=self._edges[1],
            streams=edited.streams,
            meet=edited.program.work.meet[position],
            edge_ns=ns(edited.program.work.held_ns[position][self._edges[0]]),
        )

    def unprofiled_cpu(self, slowdown: float) -> Floats:
        """What each segment takes without the profiler; float64 of shape (segments,)."""
        edited = self._edited
        left = edited.program.segments.slowed.unprofiled(edited.cpu_ns, self._added_ns, slowdown)
        cpu_ns = np.where(edited.kept, left, 0.0) + edited.added_ns
        if edited.late_ns:
            first = starts_of_runs(edited.program.timeline.step)
            cpu_ns[first] += edited.late_ns * edited.program.sample.part
        return cpu_ns


def edited_gaps(edited: EditedProgram, position: Rows) -> Floats:
    """The gap before each piece of work: that of the pair where an edit has put another piece before it."""
    device = edited.program.work
    before = pick(position, previous_equal(edited.stream[position]))
    other = (before >= 0) & (device.before[position] >= 0) & (before != device.before[position])
    other &= edited.gap_ns[position] == device.gap_ns[position]  # an edit that sets the gap knows better
    pairs = device.pair_gap_ns[device.category[before], device.category[position]]
    return np.where(other, np.minimum(pairs, edited.gap_ns[position]), edited.gap_ns[position])


def edited_edges(edited: EditedProgram, position: Rows) -> tuple[Rows, Rows]:
    """Places in `position` of edges whose call, or both ends, are left; in the place of a lost end its neighbour."""
    device = edited.program.work
    to, source = device.edge_to, device.edge_from
    there = edited.alive & (edited.stream == device.stream)
    called = edited.kept[edited.program.timeline.at(device.edge_call_ns)]
    chosen = called | (there[to] & there[source])
    to = _nearest(to[chosen], device.stream, there, later=True)
    source = _nearest(source[chosen], device.stream, there, later=False)
    both = (to >= 0) & (source >= 0)
    place = places_of(position, len(edited.alive))
    last, first = place[to[both]], place[source[both]]
    joint = distinct((last * len(place) + first)[last > first])
    return joint // len(place), joint % len(place)


def _nearest(at: Rows, stream: Rows, there: Mask, *, later: bool) -> Rows:
    """Positions of the first work of each one's stream that is there, from it on or back; -1 for none."""
    order = np.argsort(stream, kind="stable")
    rank = places_of(order, len(order))
    left = np.flatnonzero(there[order])
    found = np.searchsorted(left, rank[at]) if later else np.searchsorted(left, rank[at], side="right") - 1
    found = pick(order, pick(left, np.where(found < len(left), found, -1)))
    return np.where(pick(stream, found) == stream[at], found, -1)


_STRETCH = 128  # pieces of work, at most, so that a full queue is noticed soon enough
_QUEUE = 1_022  # launches that may be outstanding; measured on H200, driver 580
_NOTHING = -1e18

Wait = tuple[float, float, list[int]]  # CPU time of the return, tail, streams waited for
Edge = tuple[int, int, float]  # stream, stretch of the last work it waits for, duration less sum up to what waits
Run = tuple[int, float, float]  # stream, largest of launch + latency + duration - sum, sum up to its last work


class Stretch(NamedTuple):
    """Launches that follow one another, after the waits before them.

    Attributes:
        waits, edges, runs: as the types above say; one run per stream that has work here.
        launched: pieces of work launched in the block when it ends.
        meet: number of the collective at which ranks meet, where it is the only work here; -1 for none.
        meet_ns: how long that takes once all are there.
    """

    waits: list[Wait]
    edges: list[Edge]
    runs: list[Run]
    launched: int
    launch_ns: float
    stream: int
    meet: int = -1
    meet_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of steps, to be run again and again.

    Attributes:
        cpu_ns: its CPU time, without waiting.
        taken_ns: durations and gaps of each stream.
        stretches: in order, one at least.
    """

    cpu_ns: float
    taken_ns: list[float]
    stretches: list[Stretch]

    def period_ns(self, blocks: int, settled: float) -> float:
        """Time from block to block: of two alike within `settled`, else the mean of `blocks` after the first."""
        state = State(self)
        first = before = state.run()
        last = 0.0
        for _ in range(blocks):
            finish = state.run()
            taken, before = finish - before, finish
            if abs(taken - last) <= settled * taken:
                return taken
            last = taken
        return (before - first) / blocks


class State:
    """What the loop carries along: when each stream is done, and by how much the CPU is late."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.late = 0.0
        self.done = [_NOTHING] * len(block.taken_ns)  # end of each stream's newest work
        self.lead = [_NOTHING] * len(block.taken_ns)  # the same less the sum up to that work
        self.queue: deque[tuple[int, float]] = deque()  # (pieces launched, end of the newest of these)
        self.launched = 0
        self.room_ns = _NOTHING  # when the queue has room for what is launched next

    def run(self) -> float:
        """Run the block once; when it and all its work are done."""
        self.enter(self.block.stretches, [])
        return self.repeat()

    def enter(self, stretches: Sequence[Stretch], ends: list[float]) -> None:
        """Run some stretches one after the other; those before them ended at `ends`, to which theirs are added."""
        # One function, and comparisons where `max` would read better: this is what a replay's time goes into.
        lead, done, queue = self.lead, self.done, self.queue
        late, room = self.late, self.room_ns
        for waits, edges, runs, launched, launch_ns, newest, _, _ in stretches:
            for returned, tail, streams in waits:
                last = done[streams[0]] if len(streams) == 1 else max([done[stream] for stream in streams])
                if last + tail > returned + late:
                    late = last + tail - returned
            for stream, source, offset in edges:
                ready = ends[source] + offset
                if ready > lead[stream]:
                    lead[stream] = ready
            if runs:
                pieces = self.launched + launched
                while queue and queue[0][0] <= pieces - _QUEUE:
                    room = max(room, queue.popleft()[1])
                if room - launch_ns > late:
                    late = room - launch_ns
                end = _NOTHING
                for stream, ready, before in runs:
                    if ready + late > lead[stream]:
                        lead[stream] = ready + late
                    done[stream] = last = lead[stream] + before
                    if last > end:
                        end = last
                queue.append((pieces, end))
            ends.append(done[newest] if done else _NOTHING)
        self.late, self.room_ns = late, room

    def repeat(self) -> float:
        """Make ready for the block's next run; when this one and all its work are done."""
        self.launched += self.block.stretches[-1].launched
        self.late += self.block.cpu_ns
        self.lead = [lead + taken for lead, taken in zip(self.lead, self.block.taken_ns, strict=True)]
        return max(self.late, *self.done) if self.done else self.late


class Layout:
    """What blocks of one program have in common at any slowdown: where they are cut, what is in each stretch."""

    def __init__(self, schedule: Schedule, *, meeting: bool = False) -> None:
        """Cut where something waits or is waited for, every few launches, and around collectives if `meeting`."""
        size = len(schedule.stream)
        every = np.arange(0, size, _STRETCH)
        edges = schedule.edge_to, schedule.edge_from + 1
        meets = np.flatnonzero(schedule.meet >= 0) if meeting else np.empty(0, np.int64)
        cuts = distinct(np.concatenate((every, schedule.wait_after, *edges, meets, meets + 1, [0, size])))
        ends, before = np.append(cuts[1:], size), _before(schedule)
        self._taken_ns: list[float] = schedule.taken_ns.tolist()
        self._last = np.maximum(ends - 1, 0)
        self._waits = np.searchsorted(cuts, schedule.wait_after).tolist(), _waited_for(schedule)
        self._edges = _edges(schedule, cuts, before)
        self._runs = _Runs(schedule, cuts, before) if size else None
        streams = schedule.stream[self._last] if size else np.zeros(len(cuts), np.int64)
        meet, meet_ns = np.full(len(cuts), -1, np.int64), np.zeros(len(cuts))
        at = np.searchsorted(cuts, meets)
        meet[at], meet_ns[at] = schedule.meet[meets], schedule.dur_ns[meets]
        self._ends, self._newest = ends.tolist(), streams.tolist()
        self._meets = meet.tolist(), meet_ns.tolist()

    def block(self, schedule: Schedule) -> Block:
        """Of a schedule that differs from the first one by its slowdown alone."""
        many = len(self._ends)
        stretches, streams = self._waits
        waits: list[list[Wait]] = _listed(stretches, many, (schedule.wait_ns, schedule.wait_tail_ns, streams))
        runs: list[list[Run]] = [[] for _ in range(many)]
        if self._runs is not None:
            runs = _listed(self._runs.stretch, many, self._runs.columns(schedule))
        launches = schedule.launch_ns[self._last].tolist() if self._runs else [0.0] * many
        columns = waits, self._edges, runs, self._ends, launches, self._newest, *self._meets
        return Block(schedule.cpu_ns, self._taken_ns, list(map(Stretch, *columns)))


def _before(schedule: Schedule) -> Floats:
    """Sum of gaps and durations on each piece of work's stream, up to its own end; float64 of shape (work,)."""
    before = np.empty(len(schedule.stream))
    taken = schedule.dur_ns + schedule.gap_ns
    order = np.argsort(schedule.stream, kind="stable")
    firsts = np.flatnonzero(np.diff(schedule.stream[order], prepend=-1)).tolist()
    for first, last in pairwise([*firsts, len(order)]):  # not a look at all of the work for each of many streams
        own = order[first:last]
        before[own] = np.cumsum(taken[own])
    return before


def _waited_for(schedule: Schedule) -> list[list[int]]:
    waited_for = [tuple(one) for one in schedule.wait_streams.tolist()]
    streams = {one: [stream for stream, waits in enumerate(one) if waits] for one in set(waited_for)}
    return [streams[one] for one in waited_for]


def _edges(schedule: Schedule, cuts: Rows, before: Floats) -> list[list[Edge]]:
    to, source = schedule.edge_to, schedule.edge_from
    at, ends = np.searchsorted(cuts, to).tolist(), np.searchsorted(cuts, source + 1) - 1
    offset = (schedule.dur_ns - before)[to]
    offset += schedule.edge_ns if len(schedule.edge_ns) else 0.0
    return _listed(at, len(cuts), (schedule.stream[to], ends, offset))


class _Runs:
    """The work of each stretch by stream."""

    def __init__(self, schedule: Schedule, cuts: Rows, before: Floats) -> None:
        size = len(schedule.stream)
        stretch = np.searchsorted(cuts, np.arange(size), side="right") - 1
        key = stretch * schedule.streams + schedule.stream
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        last = order[np.append(first[1:], size) - 1]
        self._before, self._order, self._first = before, order, first
        self.stretch: list[int] = stretch[last].tolist()
        self._stream: list[int] = schedule.stream[last].tolist()
        self._sums: list[float] = before[last].tolist()

    def columns(self, schedule: Schedule) -> tuple[list[int], Floats, list[float]]:
        ready = schedule.launch_ns + schedule.latency_ns + schedule.dur_ns - self._before
        return self._stream, np.maximum.reduceat(ready[self._order], self._first), self._sums


def _listed(at: list[int], size: int, columns: Sequence[Rows | Floats | list[Any]]) -> list[list[Any]]:
    """Rows of the columns as tuples, by the stretch in which they are."""
    found: list[list[Any]] = [[] for _ in range(size)]
    lists = (column if isinstance(column, list) else column.tolist() for column in columns)
    for place, values in zip(at, zip(*lists, strict=True), strict=True):
        found[place].append(values)
    return found
