"""Events of the timeline as columns of numbers, with each text once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, ints_at
from traceanalyzer.report.page.bars import cpu_kinds
from traceanalyzer.report.page.chosen import Chosen
from traceanalyzer.report.page.places import around
from traceanalyzer.timeline.device_work import KINDS
from traceanalyzer.timeline.selection import Events

_LEVELS = 12  # of a thread: what is nested deeper is drawn at the last
Said = Callable[[str], str]


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

    Attributes:
        name, op, shapes, line: positions in `Timeline.texts`; `op` is the innermost around a call or a launch.
        kind: position in `Timeline.kinds`.
        launch: of work the position of the call that launched it, among these events.
        delay_ns: work.start - launch.start, None where the trace has no launch.
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
            name: tuple(one for part in self.parts for one in _plain(part[name]))
            for name in Columns.__slots__
        }
        return tuple(tracks), Columns(**joined), tuple(self.texts), tuple(self.kinds)

    def _calls(self, rows: Rows) -> int:
        """One thread's rows; returns how many levels they take."""
        events, cpu = self.events, self.events.trace.lanes.cpu
        level = np.minimum(around(events, rows, _mask(events, rows)), _LEVELS - 1)
        op = pick(events.nesting.op, rows)
        names = Texts.column(cpu, "name", rows)
        kind = [self._kind(one) for one in cpu_kinds(events, rows, names)]
        lines = Texts.none(len(rows)) if self.said else events.user_code.around(rows)
        none = np.full(len(rows), -1, np.int64)
        self.parts.append(
            {
                "event_id": ints(cpu, "event_id")[rows],
                "name": self._codes(names),
                "kind": np.array(kind, np.int64),
                "start_ns": events.nesting.start_ns[rows],
                "dur_ns": events.nesting.end_ns[rows] - events.nesting.start_ns[rows],
                "level": level,
                "launch": none,
                "delay_ns": [None] * len(rows),
                "op": np.where(op == rows, -1, self._codes(Texts.column(cpu, "name", op))),
                "shapes": self._codes(Texts.column(cpu, "input_dims", rows)),
                "line": self._codes(lines),
            }
        )
        return int(level.max(initial=0)) + 1

    def _work(self, entries: Rows, place: Rows) -> None:
        """Some work of one stream; `place` is where each row of `trace.cpu` stands among the events."""
        events, work, gpu = self.events, self.events.work, self.events.trace.lanes.gpu
        assert work is not None
        row, call, op = work.row[entries], work.call[entries], work.op[entries]
        lines = Texts.none(len(row)) if self.said else events.user_code.around(call)
        delays = zip(work.delay_ns[entries].tolist(), (call >= 0).tolist(), strict=True)
        self.parts.append(
            {
                "event_id": ints(gpu, "event_id")[row],
                "name": self._codes(Texts.column(gpu, "name", row)),
                "kind": np.array([self._kind(KINDS[kind]) for kind in work.kind[entries].tolist()], np.int64),
                "start_ns": work.start_ns[entries],
                "dur_ns": work.end_ns[entries] - work.start_ns[entries],
                "level": np.zeros(len(row), np.int64),
                "launch": np.where(call >= 0, place[call], -1),
                "delay_ns": [delay if linked else None for delay, linked in delays],
                "op": self._codes(Texts.column(events.trace.lanes.cpu, "name", op)),
                "shapes": self._codes(Texts.column(events.trace.lanes.cpu, "input_dims", op)),
                "line": self._codes(lines),
            }
        )

    def _codes(self, texts: Texts) -> Rows:
        """Positions in `self.texts`, in the order in which texts are first met."""
        table = np.full(len(texts.names) + 1, -1, np.int64)
        for code in texts.occurring():
            text = str(texts.names[code])
            shown = self.said(text) if self.said else text
            table[code] = self.texts.setdefault(shown, len(self.texts))
        return table[texts.code]

    def _kind(self, kind: str) -> int:
        return self.kinds.setdefault(kind, len(self.kinds))


def _plain(column: Rows | list[int | None]) -> list[int | None]:
    return column if isinstance(column, list) else column.tolist()


def _mask(events: Events, rows: Rows) -> Mask:
    """Of rows of `trace.cpu` those that are kept."""
    kept = np.zeros(len(events.nesting.parent), np.bool_)
    kept[rows] = True
    return kept
