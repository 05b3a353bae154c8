"""An edited program as launches, waits and edges at instants of CPU time: what is left to replay."""

from collections.abc import Callable
from dataclasses import dataclass, field

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
            latency_ns=ns(edited.latency_ns[position]),
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
    """Places in `position` of the edges, each as long as the call that makes the stream wait, or both ends, are left.

    Where an end has gone, the next work of its stream waits, or what was before it there is waited for.
    """
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
