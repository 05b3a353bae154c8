"""The timeline that one can move in: what happened on threads and streams, thinned, and where findings are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traceanalyzer.idle.accounting import CLASSES, Accounting, class_name
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Mask, Rows, Small, distinct, pick
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, ints_at
from traceanalyzer.model.units import format_bytes
from traceanalyzer.render.html.timeline_events import Band, Chosen, chosen
from traceanalyzer.report.summary import attempt
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.kernel_families import family_of
from traceanalyzer.timeline.names import SYNCHRONISING
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

_LEVELS = 12  # of a thread: what is nested deeper is drawn at the last
Said = Callable[[str], str]
_PER_LAUNCH = ("registers", "shared_memory", "bytes")  # columns of `trace.gpu`
_DIMS = r", *"  # between the sides of a grid
PARTS = 900  # of the window that are told apart
_IDLE = CLASSES.index("idle")
_MARKS = 400  # of steps
_WAITS = 300  # in collectives
_FIRST = 20  # occurrences of a finding that are never left out
_THINNED = -2


@dataclass(frozen=True, slots=True)
class Track:
    """Events of one thread or stream, by start; `first` is the position of its first event in `Timeline`'s columns."""

    kind: str  # "thread" or "stream"
    device: int | None
    number: int
    levels: int
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Events of all tracks, one after the other; -1 stands for none.

    `name`, `op` (the innermost around), `shapes`, `line` and `launched` (grid, block, registers) are positions in
    `Timeline.texts`, `kind` one in `Timeline.kinds`, `launch` of work that of its call among these events.
    """

    event_id: tuple[int, ...]
    name: tuple[int, ...]
    kind: tuple[int, ...]
    start_ns: tuple[int, ...]
    dur_ns: tuple[int, ...]
    level: tuple[int, ...]
    launch: tuple[int, ...]
    delay_ns: tuple[int | None, ...]
    op: tuple[int, ...]
    shapes: tuple[int, ...]
    line: tuple[int, ...]
    launched: tuple[int, ...]


class Writer:
    """Columns of events, with each text once."""

    def __init__(self, events: Events, said: Said | None) -> None:
        self.events, self.said = events, said
        self.texts: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.parts: list[dict[str, Rows | list[int | None]]] = []

    def written(self, kept: Chosen) -> tuple[tuple[Track, ...], Columns, tuple[str, ...], tuple[str, ...]]:
        """Tracks that have events, and their columns."""
        tracks, first = [], 0
        place = np.full(len(self.events.nesting.thread) + 1, -1, np.int64)
        for _, rows in kept.threads:
            if len(rows):
                tid = int(ints_at(self.events.trace.lanes.cpu, "tid", rows[:1])[0])
                levels = self._calls(rows)
                tracks.append(Track("thread", None, tid, levels, first, len(rows)))
                place[rows] = np.arange(first, first + len(rows))
                first += len(rows)
        for device, stream, entries in kept.streams:
            if len(entries):
                self._work(entries, place)
                tracks.append(Track("stream", device, stream, 1, first, len(entries)))
                first += len(entries)
        joined: dict[str, Any] = {
            name: tuple(one for part in self.parts for one in np.asarray(part[name]).tolist())
            for name in Columns.__slots__
        }
        return tuple(tracks), Columns(**joined), tuple(self.texts), tuple(self.kinds)

    def _calls(self, rows: Rows) -> int:
        """One thread's rows; returns how many levels they take."""
        events, cpu = self.events, self.events.trace.lanes.cpu
        kept = np.zeros(len(events.nesting.parent), np.bool_)
        kept[rows] = True
        level = np.minimum(_levels(events.nesting.parent, rows, kept), _LEVELS - 1)
        op = pick(events.nesting.op, rows)
        names = Texts.column(cpu, "name", rows)
        kinds = cpu_kinds(events, rows, names)
        none = np.full(len(rows), -1, np.int64)
        self._add(ints(cpu, "event_id")[rows], names, kinds, events.nesting.start_ns[rows], events.nesting.end_ns[rows])
        self.parts[-1] |= {
            "level": level,
            "launch": none,
            "delay_ns": [None] * len(rows),
            "op": np.where(op == rows, -1, self._codes(Texts.column(cpu, "name", op))),
            "shapes": self._codes(Texts.column(cpu, "input_dims", rows)),
            "line": self._lines(rows),
            "launched": none,
        }
        return int(level.max(initial=0)) + 1

    def _add(self, event_id: Rows, names: Texts, kinds: Sequence[str], start_ns: Rows, end_ns: Rows) -> None:
        name = self._codes(names)
        kind = np.array([self.kinds.setdefault(kind, len(self.kinds)) for kind in kinds], np.int64)
        columns = {"event_id": event_id, "name": name, "kind": kind, "start_ns": start_ns}
        self.parts.append({**columns, "dur_ns": end_ns - start_ns})

    def _lines(self, rows: Rows) -> Rows:
        return self._codes(Texts.none(len(rows)) if self.said else self.events.user_code.around(rows))

    def _work(self, entries: Rows, place: Rows) -> None:
        """Some work of one stream; `place` is where each row of `trace.cpu` stands among the events."""
        events, work, gpu = self.events, self.events.device_work, self.events.trace.lanes.gpu
        row, call, op = work.row[entries], work.call[entries], work.op[entries]
        names = Texts.column(gpu, "name", row)
        kinds = [
            family_of(str(name)) if KINDS[kind] == "compute" else KINDS[kind]
            for kind, name in zip(work.kind[entries].tolist(), names.values(), strict=True)
        ]
        delays = zip(work.delay_ns[entries].tolist(), (call >= 0).tolist(), strict=True)
        self._add(ints(gpu, "event_id")[row], names, kinds, work.start_ns[entries], work.end_ns[entries])
        self.parts[-1] |= {
            "level": np.zeros(len(row), np.int64),
            "launch": np.where(call >= 0, place[call], -1),
            "delay_ns": [delay if linked else None for delay, linked in delays],
            "op": self._codes(Texts.column(events.trace.lanes.cpu, "name", op)),
            "shapes": self._codes(Texts.column(events.trace.lanes.cpu, "input_dims", op)),
            "line": self._lines(call),
            "launched": self._launched(row),
        }

    def _launched(self, row: Rows) -> Rows:
        """Positions in `self.texts` of how each row of `trace.gpu` was launched, -1 where nothing is recorded."""
        gpu = self.events.trace.lanes.gpu
        dims = [Texts.column(gpu, name, row).values() for name in ("grid", "block")]
        columns = zip(*dims, *(ints_at(gpu, name, row).tolist() for name in _PER_LAUNCH), strict=True)
        texts = [launch_words(*one) for one in columns]
        places = [self.texts.setdefault(text, len(self.texts)) if text else -1 for text in texts]
        return np.array(places, np.int64)

    def _codes(self, texts: Texts) -> Rows:
        """Positions in `self.texts`, in the order in which texts are first met."""
        table = np.full(len(texts.names) + 1, -1, np.int64)
        for code in texts.occurring():
            text = str(texts.names[code])
            shown = self.said(text) if self.said else text
            table[code] = self.texts.setdefault(shown, len(self.texts))
        return table[texts.code]


def _levels(parent: Rows | Small, rows: Rows, kept: Mask) -> Rows:
    """How many of the kept rows of `trace.cpu` are around each; int64 (len(rows),)."""
    count, going = np.zeros(len(rows), np.int64), pick(parent, rows)
    while (going >= 0).any():
        count += (going >= 0) & kept[going]
        going = pick(parent, going)
    return count


def cpu_kinds(events: Events, rows: Rows, names: Texts) -> list[str]:
    """annotation, op, call or wait, of each row of `trace.cpu`."""
    calls = Texts.column(events.trace.lanes.cpu, "category", rows).one_of(*CALL_CATEGORIES)
    waits = calls & names.matches(SYNCHRONISING)
    kinds = np.where(events.nesting.annotation[rows], "annotation", np.where(calls, "call", "op"))
    return [str(kind) for kind in np.where(waits, "wait", kinds)]


def launch_words(grid: object, block: object, registers: int, shared: int, size: int) -> str:
    """`grid 48x1x1, block 128x1x1, 40 registers, 16.0 KiB shared memory`; empty where nothing is known."""
    sides = [
        f"{name} {re.sub(_DIMS, 'x', str(dims)[1:-1])}" for name, dims in (("grid", grid), ("block", block)) if dims
    ]
    sides += [f"{registers} registers"] if registers > 0 else []
    sides += [f"{format_bytes(shared)} shared memory"] if shared > 0 else []
    return ", ".join([*sides, format_bytes(size)] if size > 0 else sides)


@dataclass(frozen=True, slots=True)
class Overview:
    """One device over the window, in equal parts: in what percent of each anything ran (`busy`).

    `doing` and `why` are positions in `names` of the class and of the idle cause with most time, -1 for none.
    """

    device: int
    names: tuple[str, ...]
    busy: tuple[int, ...]
    doing: tuple[int, ...]
    why: tuple[int, ...]


def overviews(analysis: Analysis, parts: int = PARTS) -> tuple[Overview, ...]:
    accounting, idle, steps = analysis.index(Accounting), analysis.index(Idle), analysis.index(Steps)
    low, high = steps.window_start_ns, steps.window_end_ns
    edges = distinct(np.linspace(low, high, parts + 1).astype(np.int64))
    code = np.where(accounting.piece >= 0, len(CLASSES) + pick(idle.cause, accounting.piece), accounting.time_class)
    return tuple(_overview(accounting, code, edges, device) for device in distinct(accounting.device).tolist())


def _overview(accounting: Accounting, code: Rows, edges: Rows, device: int) -> Overview:
    own = np.flatnonzero(accounting.device == device)
    own = own[np.argsort(accounting.start_ns[own], kind="stable")]
    known, number = np.unique(code[own], return_inverse=True)
    cuts = distinct(np.append(accounting.start_ns[own], edges))
    at = np.maximum(np.searchsorted(accounting.start_ns[own], cuts[:-1], side="right") - 1, 0)
    part = np.searchsorted(edges, cuts[:-1], side="right") - 1
    size = max(len(edges) - 1, 1)
    cell = np.clip(part, 0, size - 1) * len(known) + number[at]
    sums = np.bincount(cell, weights=np.diff(cuts), minlength=size * len(known)).reshape(size, len(known))
    busy = known < _IDLE
    ran, rested = np.where(busy, sums, 0.0), np.where(busy, 0.0, sums)
    share = np.rint(100 * ran.sum(axis=1) / np.maximum(sums.sum(axis=1), 1.0)).astype(np.int64)
    most = (np.where(part.max(axis=1) > 0, part.argmax(axis=1), -1) for part in (ran, rested))
    columns = (tuple(column.tolist()) for column in (share, *most))
    return Overview(device, tuple(class_name(int(one)) for one in known), *columns)


@dataclass(frozen=True, slots=True)
class Marks:
    """Occurrences of one finding: positions in `Finding.occurrences`, by start.

    `event` is the position of each one's event among `Columns` (work, if it has any), -1 where it has none, -2 where
    none of its events is kept.
    """

    finding: int
    position: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    event: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One trace: `steps` are (number, start, end), `waits` the longest in collectives (start, ns, rank that is last).

    Outside the bands and away from occurrences, events of `least_ns` or more are kept.
    """

    start_ns: int
    end_ns: int
    least_ns: int
    bands: tuple[Band, ...]
    steps: tuple[tuple[int, int, int], ...]
    overviews: tuple[Overview, ...]
    tracks: tuple[Track, ...]
    kinds: tuple[str, ...]
    texts: tuple[str, ...]
    events: Columns
    marks: tuple[Marks, ...]
    waits: tuple[tuple[int, int, int], ...] = ()


def timeline_of(
    analysis: Analysis,
    findings: Sequence[tuple[int, Finding]],
    spans: Sequence[tuple[int, int]],
    most: int,
    marks: int,
    said: Said | None,
) -> Timeline:
    """The timeline of one trace, with about `most` events and `marks` occurrences.

    Findings have their positions in the report, `spans` are (start, end) of what else is looked at closely; `said` is
    what a name becomes in a confidential page, which has no annotations and lines.
    """
    events, steps = analysis.index(Events), analysis.index(Steps)
    kept = chosen(analysis, [finding for _, finding in findings], spans, most)
    if said is not None:
        annotation = events.nesting.annotation
        kept = replace(kept, threads=tuple((thread, rows[~annotation[rows]]) for thread, rows in kept.threads))
    tracks, columns, texts, kinds = Writer(events, said).written(kept)
    none: tuple[Any, ...] = ()
    share = marks // max(len(findings), 1)
    return Timeline(
        start_ns=steps.window_start_ns,
        end_ns=steps.window_end_ns,
        least_ns=kept.least_ns,
        bands=kept.bands,
        steps=drawn_steps(steps),
        overviews=attempt({}, "overview", lambda: overviews(analysis), none),
        tracks=tracks,
        kinds=kinds,
        texts=texts,
        events=columns,
        marks=tuple(finding_marks(i, finding, columns, tracks, share) for i, finding in findings),
        waits=attempt({}, "waits", lambda: longest_waits(analysis), none),
    )


def longest_waits(analysis: Analysis) -> tuple[tuple[int, int, int], ...]:
    """Raises Unavailable: the traces of other ranks are not there."""
    waits, work = analysis.index(CollectiveWaits), analysis.index(DeviceWork)
    longest = np.lexsort((waits.entry, -waits.waiting_ns))[:_WAITS]
    longest = np.sort(longest[waits.waiting_ns[longest] > 0])
    columns = work.start_ns[waits.entry[longest]], waits.waiting_ns[longest], waits.last[longest]
    return tuple(zip(*(column.tolist() for column in columns), strict=True))


def drawn_steps(steps: Steps) -> tuple[tuple[int, int, int], ...]:
    if not steps.marked:
        return ()
    edges = steps.bounds_ns.get(min(steps.bounds_ns, default=-1))
    if edges is None:
        edges = np.append(steps.cpu_start_ns, steps.cpu_end_ns[-1:])
    every = -(-len(steps) // _MARKS)
    rows = zip(steps.number.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return tuple(list(rows)[::every])


def finding_marks(position: int, finding: Finding, columns: Columns, tracks: Sequence[Track], share: int) -> Marks:
    """The first occurrences, the typical one, and the costliest as far as there is room."""
    every = finding.occurrences
    numbers = list(range(len(every)))
    if len(every) > max(share, _FIRST):
        dear = sorted(numbers[_FIRST:], key=lambda i: (-every[i].cost_ns, i))
        typical = [i for i in numbers if every[i].start_ns == finding.start_ns][:1]
        numbers = sorted({*numbers[:_FIRST], *dear[: max(share - _FIRST, 0)], *typical})
    place = {event: at for at, event in enumerate(columns.event_id)}
    streams = min((track.first for track in tracks if track.kind == "stream"), default=len(place))
    found = []
    for i in numbers:
        own = [place[event] for event in every[i].event_ids[:_FIRST] if event in place]
        none = _THINNED if every[i].event_ids else -1
        found.append(next((at for at in own if at >= streams), own[0] if own else none))
    times = tuple(every[i].start_ns for i in numbers), tuple(every[i].end_ns for i in numbers)
    return Marks(position, tuple(numbers), *times, tuple(found))
