"""What the replay's loop needs of an edited program: a few numbers per stretch between waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows
from traceanalyzer.replay.draft import Draft

Floats = NDArray[np.float64]

_STRETCH = 128  # pieces of work, at most, so that a full queue is noticed soon enough
_QUEUE = 1_022  # launches that may be outstanding; measured on H200, driver 580
_NOTHING = -1e18


@dataclass(frozen=True, slots=True)
class Plan:
    """A block of steps as stretches of launches that follow one another without a wait.

    Attributes:
        cpu_ns: CPU time of the block, without waiting.
        gpu_ns: durations and gaps of the busiest stream.
        totals: the same per stream.
        busiest: that stream, -1 without work.
        stretches: in order.
    """

    cpu_ns: float
    gpu_ns: float
    totals: tuple[float, ...]
    busiest: int
    stretches: list[Stretch]

    @classmethod
    def of(cls, draft: Draft, slowdown: float) -> Self:
        cpu = unprofiled_cpu(draft, slowdown)
        clock = np.concatenate(([0.0], np.cumsum(cpu)))
        work = _Work.of(draft, clock)
        stretches = _stretches(draft, clock, work)
        busiest = int(np.argmax(work.totals)) if len(work.position) else -1
        gpu = work.totals[busiest] if busiest >= 0 else 0.0
        return cls(float(clock[-1]), gpu, work.totals, busiest, stretches)

    def period(self, blocks: int, settled: float) -> float:
        """Time from block to block in the steady state, all work of each done."""
        state = _State(self)
        finishes = [state.block()]
        last = 0.0
        for _ in range(blocks):
            finishes.append(state.block())
            increment = finishes[-1] - finishes[-2]
            if len(finishes) > 2 and abs(increment - last) <= settled * max(increment, 1.0):
                return increment
            last = increment
        return (finishes[-1] - finishes[0]) / (len(finishes) - 1)


def unprofiled_cpu(draft: Draft, slowdown: float) -> Floats:
    """What each segment takes without the profiler; float64 of shape (segments,)."""
    return np.where(draft.kept, draft.program.slowed.unprofiled(draft.cpu_ns, slowdown), 0.0) + draft.added_ns


@dataclass(frozen=True, slots=True)
class Stretch:
    """DeviceWork one after another, after the waits that precede them.

    Attributes:
        waits: (CPU time of the call's return, tail, streams waited for) each.
        edges: (stream, stretch whose last work is waited for, duration less sum up to the waiting work) each.
        work: (stream, largest of launch + latency + duration - sum, sum up to the last work) per stream.
        launched: pieces of work launched in the block when it ends.
        launch_ns: CPU time of its last launch.
        source: stream of its last work if another stream waits for that, else -1.
    """

    waits: list[tuple[float, float, list[int]]]
    edges: list[tuple[int, int, float]]
    work: list[tuple[int, float, float]]
    launched: int
    launch_ns: float
    source: int


class _State:
    """What the loop carries along: when each stream is done, and by how much the CPU is late."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.late = 0.0
        self.done = [_NOTHING] * len(plan.totals)  # end of each stream's newest work
        self.lead = [_NOTHING] * len(plan.totals)  # the same less the sum up to that work
        self.queue: deque[tuple[int, float]] = deque()  # (pieces launched, end of the newest of these)
        self.launched = 0
        self.room_ns = _NOTHING  # when the queue has room for what is launched next

    def block(self) -> float:
        """Run the block once; when it and all its work are done."""
        plan, ends = self.plan, []
        for stretch in plan.stretches:
            for at, tail, streams in stretch.waits:
                awaited = max([self.done[s] for s in streams]) + tail
                if awaited > at + self.late:
                    self.late = awaited - at
            for stream, source, offset in stretch.edges:
                self.lead[stream] = max(self.lead[stream], ends[source] + offset)
            if stretch.work:
                self._launch(stretch)
            ends.append(self.done[stretch.source])
        self.launched += plan.stretches[-1].launched
        self.late += plan.cpu_ns
        self.lead = [lead + total for lead, total in zip(self.lead, plan.totals, strict=True)]
        return max(self.late, *self.done)

    def _launch(self, stretch: Stretch) -> None:
        launched = self.launched + stretch.launched
        while self.queue and self.queue[0][0] <= launched - _QUEUE:
            self.room_ns = max(self.room_ns, self.queue.popleft()[1])
        self.late = max(self.late, self.room_ns - stretch.launch_ns)
        end = _NOTHING
        for stream, ready, before in stretch.work:
            self.lead[stream] = lead = max(self.lead[stream], ready + self.late)
            self.done[stream] = done = lead + before
            end = max(end, done)
        self.queue.append((launched, end))


@dataclass(frozen=True, slots=True)
class _Work:
    """Work in order of launch; arrays of shape (work that is left,)."""

    position: Rows
    stream: Rows
    launch: Rows
    dur: Floats
    before: Floats  # sum of gaps and durations on its stream up to its own end
    ready: Floats  # launch + latency + duration - before: what a stream's running maximum is taken of
    totals: tuple[float, ...]

    @classmethod
    def of(cls, draft: Draft, clock: Floats) -> Self:
        position = np.flatnonzero(draft.alive)
        position = position[np.argsort(draft.launch[position], kind="stable")]
        stream, dur, launch = draft.stream[position], draft.dur_ns[position], draft.launch[position]
        taken = dur + draft.gap_ns[position]
        before = np.empty(len(position))
        totals = []
        for s in range(draft.streams):
            mine = np.flatnonzero(stream == s)
            before[mine] = np.cumsum(taken[mine])
            totals.append(float(before[mine[-1]]) if len(mine) else 0.0)
        ready = clock[launch] + draft.latency_ns[position] + dur - before
        return cls(position, stream, launch, dur, before, ready, tuple(totals))


def _stretches(draft: Draft, clock: Floats, work: _Work) -> list[Stretch]:
    waits = np.flatnonzero(draft.waits)
    returned = draft.program.waits.last[waits]
    after = np.searchsorted(work.launch, returned, side="right")  # work launched before the call returned
    to, source = _edges(draft, work)
    size = len(work.position)
    cuts = np.unique(np.concatenate((np.arange(0, size, _STRETCH), after, to, source + 1, [0, size])))
    parts = _parts(work, cuts, len(work.totals))
    tails, streams = draft.program.waits.tail_ns[waits], draft.program.waits.streams[waits]
    waiting: list[list[tuple[float, float, list[int]]]] = [[] for _ in cuts]
    for k, at, tail, row in zip(
        np.searchsorted(cuts, after).tolist(),
        clock[returned + 1].tolist(),
        tails.tolist(),
        streams,
        strict=True,
    ):
        waiting[k].append((at, tail, np.flatnonzero(row).tolist()))
    edges: list[list[tuple[int, int, float]]] = [[] for _ in cuts]
    after_source = np.searchsorted(cuts, source + 1) - 1
    offsets = (work.dur - work.before)[to]
    for k, s, j, offset in zip(
        np.searchsorted(cuts, to).tolist(),
        work.stream[to].tolist(),
        after_source.tolist(),
        offsets.tolist(),
        strict=True,
    ):
        edges[k].append((s, j, offset))
    last = np.maximum(np.append(cuts[1:], size) - 1, 0)
    times = clock[work.launch[last]].tolist() if size else [0.0] * len(cuts)
    source_stream = work.stream[last].tolist() if size else [-1] * len(cuts)
    return [
        Stretch(w, e, p, n, at, s)
        for w, e, p, n, at, s in zip(
            waiting, edges, parts, np.append(cuts[1:], size).tolist(), times, source_stream, strict=True
        )
    ]


def _edges(draft: Draft, work: _Work) -> tuple[Rows, Rows]:
    """Positions among the work that is left, of the edges whose ends are both left."""
    device = draft.program.work
    place = np.full(len(draft.alive), -1, np.int64)
    place[work.position] = np.arange(len(work.position))
    to, source = place[device.edge_to[draft.edges]], place[device.edge_from[draft.edges]]
    left = (source >= 0) & (to > source)
    return to[left], source[left]


def _parts(work: _Work, cuts: Rows, streams: int) -> list[list[tuple[int, float, float]]]:
    """Per stretch and stream the largest `ready` and the last `before`."""
    parts: list[list[tuple[int, float, float]]] = [[] for _ in cuts]
    if len(work.position) == 0:
        return parts
    stretch = np.searchsorted(cuts, np.arange(len(work.position)), side="right") - 1
    key = stretch * streams + work.stream
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    last = order[np.append(first[1:], len(order)) - 1]
    ready = np.maximum.reduceat(work.ready[order], first)
    for k, values in zip(
        stretch[last].tolist(),
        zip(work.stream[last].tolist(), ready.tolist(), work.before[last].tolist(), strict=True),
        strict=True,
    ):
        parts[k].append(values)
    return parts
