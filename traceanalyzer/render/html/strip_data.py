"""Events around one occurrence of a finding: what the CPU thread and the streams did just then.

Who draws an occurrence needs to know which events are worth drawing; nothing here knows how they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick, sums_of
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, ints_at
from traceanalyzer.render.html.event_bars import Bar, cpu_bars, gpu_bars, rows_of, rows_within
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.user_code import is_user_code

MOST_BARS = 90  # of a strip, which shows what the timeline can be looked at for
_PAD = 0.3  # of the occurrence, on either side
_LEAST_NS = 20_000  # of a strip: shorter, and nothing but the occurrence is in it
_FURTHEST = 40.0  # lengths of the occurrence: what belongs to it and lies further away is left out
_THREADS, _STREAMS = 2, 4


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread or stream; `number` is the operating system's thread, or the stream."""

    kind: str  # "thread" or "stream"
    number: int
    levels: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A launch (an event of the CPU) and the work that it started, by event ids."""

    launch: int
    work: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """The launch of the occurrence's work, where it lies before the strip: how long before, and in which op."""

    before_ns: int
    op: str | None


@dataclass(frozen=True, slots=True)
class Strip:
    """What happened in [start_ns, end_ns); the occurrence itself is [from_ns, to_ns).

    Attributes:
        lanes: threads first, each with its bars by start.
        links: of the work that belongs to the occurrence.
        drawn, seen: bars in the lanes, and events that they were chosen from, the longest first.
        earlier: of work whose launch is not in the strip.
        line: the user's `path.py(12): function` around the occurrence, None where no stacks were recorded.
    """

    start_ns: int
    end_ns: int
    from_ns: int
    to_ns: int
    lanes: tuple[Lane, ...]
    links: tuple[Link, ...]
    drawn: int
    seen: int
    line: str | None
    earlier: Earlier | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Rows of `trace.cpu` and entries of `DeviceWork` that belong to the occurrence, and what is looked at."""

    cpu: Rows
    work: Rows
    start_ns: int
    end_ns: int


def strip_of(analysis: Analysis, finding: Finding, most: int = MOST_BARS) -> Strip:
    """The strip of the finding's typical occurrence, with at most `most` bars.

    Raises:
        Unavailable: the trace has no events that can be placed.
    """
    events = analysis.index(Events)
    place = _place(events, finding)
    threads, streams = _threads(events, finding, place), _streams(events, finding, place)
    seen = sum(len(rows) for _, rows in (*threads, *streams))
    chosen_cpu, chosen_gpu = _longest(events, place, threads, streams, most)
    lanes = [
        Lane("thread", number, *cpu_bars(events, rows[np.isin(rows, chosen_cpu)], place.cpu))
        for number, rows in threads
    ]
    lanes += [
        Lane("stream", number, *gpu_bars(events, rows[np.isin(rows, chosen_gpu)], place.work))
        for number, rows in streams
    ]
    lanes = [lane for lane in lanes if lane.bars]
    drawn = sum(len(lane.bars) for lane in lanes)
    links = _links(events, place, lanes)
    sides = (place.start_ns, place.end_ns, finding.start_ns, finding.end_ns)
    return Strip(
        *sides, tuple(lanes), links, drawn, seen, _line(events, place, finding), _earlier(events, place)
    )


def _place(events: Events, finding: Finding) -> _Place:
    """The occurrence with what belongs to it, as far as that lies near, and some room on either side."""
    ids = np.array(finding.event_ids, np.int64)
    cpu = rows_of(ints(events.trace.lanes.cpu, "event_id"), ids)
    gpu = rows_of(ints(events.trace.lanes.gpu, "event_id"), ids)
    work = np.flatnonzero(np.isin(events.work.row, gpu)) if events.work is not None else gpu[:0]
    start, end = finding.start_ns, max(finding.end_ns, finding.start_ns + 1)
    reach = int(_FURTHEST * max(end - start, _LEAST_NS))
    starts, ends = _times(events, cpu, work)
    near = (ends > start - reach) & (starts < end + reach) & (ends - starts <= reach)
    low, high = min(starts[near].min(initial=start), start), max(ends[near].max(initial=end), end)
    pad = int(max(_PAD * (high - low), (_LEAST_NS - (high - low)) / 2))
    return _Place(cpu, work, int(low) - pad, int(high) + pad)


def _times(events: Events, cpu: Rows, work: Rows) -> tuple[Rows, Rows]:
    starts, ends = [events.nesting.start_ns[cpu]], [events.nesting.end_ns[cpu]]
    if events.work is not None:
        starts, ends = [*starts, events.work.start_ns[work]], [*ends, events.work.end_ns[work]]
    return np.concatenate(starts), np.concatenate(ends)


def _threads(events: Events, finding: Finding, place: _Place) -> list[tuple[int, Rows]]:
    """(thread, its rows in the strip) of the thread of the occurrence, and of one more that launches or waits."""
    nesting, found = events.nesting, []
    own = set(nesting.thread[place.cpu].tolist())
    for thread in range(len(nesting.thread_rows)):
        inside = rows_within(events, thread, place.start_ns, place.end_ns)
        if len(inside):
            tid = int(ints_at(events.trace.lanes.cpu, "tid", inside[:1])[0])
            found.append(((tid != finding.thread, thread not in own, -len(inside), tid), tid, inside))
    wanted = [one for one in sorted(found, key=lambda one: one[0]) if not (one[0][0] and one[0][1])]
    chosen = wanted[:_THREADS] or sorted(found, key=lambda one: one[0])[:1]
    return [(tid, rows) for _, tid, rows in chosen]


def _streams(events: Events, finding: Finding, place: _Place) -> list[tuple[int, Rows]]:
    """(stream, its work in the strip) of the finding's device: the busiest, and those of the occurrence."""
    work = events.work
    if work is None:
        return []
    device = finding.device if finding.device is not None else int(work.device.min())
    last = int(np.searchsorted(work.start_ns, place.end_ns))
    inside = (work.end_ns[:last] > place.start_ns) & (work.device[:last] == device)
    entries = np.flatnonzero(inside)
    streams = distinct(work.stream[entries])
    number = np.searchsorted(streams, work.stream[entries])
    busy = sums_of(number, (work.end_ns - work.start_ns)[entries], len(streams))
    own = np.isin(streams, work.stream[place.work])
    order = np.lexsort((streams, -busy, ~own))[:_STREAMS]
    return [(int(streams[i]), entries[number == i]) for i in np.sort(order)]


def _longest(
    events: Events,
    place: _Place,
    threads: Sequence[tuple[int, Rows]],
    streams: Sequence[tuple[int, Rows]],
    most: int,
) -> tuple[Rows, Rows]:
    """The events to draw: those of the occurrence, then the longest; each lane has its fair part at least."""
    lanes = [(rows, events.nesting.start_ns, events.nesting.end_ns, place.cpu) for _, rows in threads]
    if events.work is not None:
        lanes += [(rows, events.work.start_ns, events.work.end_ns, place.work) for _, rows in streams]
    sizes = [len(rows) for rows, *_ in lanes]
    room = fair_parts(sizes, most)
    kept = [
        rows[longest_of(end[rows] - start[rows], np.isin(rows, own), count)]
        for (rows, start, end, own), count in zip(lanes, room, strict=True)
    ]
    none = [np.empty(0, np.int64)]
    return np.concatenate(none + kept[: len(threads)]), np.concatenate(none + kept[len(threads) :])


def fair_parts(sizes: Sequence[int], most: int) -> list[int]:
    """How many of each lane: what small lanes leave over goes to the large ones."""
    room, left = [0] * len(sizes), most
    for done, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        room[i] = min(sizes[i], left // (len(sizes) - done))
        left -= room[i]
    return room


def longest_of(durations: Rows, own: Mask, count: int) -> Rows:
    return np.sort(np.lexsort((np.arange(len(durations)), -durations, ~own))[:count])


def _links(events: Events, place: _Place, lanes: Sequence[Lane]) -> tuple[Link, ...]:
    """Launches of the occurrence's work, and the work that the occurrence's calls launched, where both are drawn."""
    if events.work is None:
        return ()
    drawn = {bar.event_id for lane in lanes for bar in lane.bars}
    ids, call = ints(events.trace.lanes.gpu, "event_id")[events.work.row], events.work.call
    mine = distinct(np.append(place.work, np.flatnonzero(np.isin(call, place.cpu) & (call >= 0))))
    launches = pick(ints(events.trace.lanes.cpu, "event_id"), call[mine])
    pairs = zip(launches.tolist(), ids[mine].tolist(), strict=True)
    return tuple(Link(launch, work) for launch, work in pairs if launch in drawn and work in drawn)


def _line(events: Events, place: _Place, finding: Finding) -> str | None:
    """The line that the finding is about, else the user's around the first of the occurrence's calls that has one."""
    named = finding.evidence.get("lines")
    if isinstance(named, Mapping) and named:
        return str(next(iter(named)))
    if finding.by is not None and is_user_code(finding.by):
        return finding.by
    rows = place.cpu
    if events.work is not None and len(rows) == 0:
        rows = events.work.call[place.work]
    lines = events.user_code.around(rows[rows >= 0])
    return next((str(line) for line in lines.values() if line is not None), None)


def _earlier(events: Events, place: _Place) -> Earlier | None:
    """The first work of the occurrence, if it was launched before the strip begins."""
    work = events.work
    if work is None or len(place.work) == 0 or work.call[place.work[0]] < 0:
        return None
    first = int(place.work[0])
    called = int(work.call_start_ns[first])
    if called >= place.start_ns:
        return None
    op = Texts.column(events.trace.lanes.cpu, "name", work.op[place.work[:1]])[0]
    return Earlier(int(work.start_ns[first]) - called, op)
