"""Events as bars: name, kind, times, and the level that keeps those inside below those around."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, places_of
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints
from traceanalyzer.report.time_tree import around
from traceanalyzer.timeline.device_work import KINDS
from traceanalyzer.timeline.names import SYNCHRONISING
from traceanalyzer.timeline.selection import Events


def rows_of(known: Rows, ids: Rows) -> Rows:
    """Rows of a frame that have these event ids; frames are in order of event_id."""
    at = np.searchsorted(known, ids)
    at = at[at < len(known)]
    return distinct(at[np.isin(known[at], ids)])


def entries_of(events: Events, ids: Rows) -> Rows:
    """Entries of `DeviceWork` that have these event ids."""
    assert events.work is not None
    rows = rows_of(ints(events.trace.lanes.gpu, "event_id"), ids)
    work, gpu = events.work.row, events.trace.lanes.gpu
    place = events.once("page: entry of row", lambda: places_of(work, len(gpu)))
    found: Rows = place[rows]
    return found[found >= 0]


def rows_within(events: Events, thread: int, low: int, high: int) -> Rows:
    """Rows of one thread that overlap [low, high), by start: what is open at its begin, and what begins in it."""
    nesting = events.nesting
    rows, starts = nesting.thread_rows[thread], nesting.thread_start_ns[thread]
    first, last = np.searchsorted(starts, [low, high])
    opened, row = [], int(rows[first - 1]) if first else -1
    while row >= 0:
        if nesting.end_ns[row] > low:
            opened.append(row)
        row = int(nesting.parent[row])
    return np.concatenate((np.array(opened[::-1], np.int64), rows[first:last]))


MOST_LEVELS = 7  # of a thread; real programs nest a dozen deep, and most of it says the same


@dataclass(frozen=True, slots=True)
class Bar:
    """One event.

    Attributes:
        kind: annotation, op, call or wait (a call that waits) of a thread; of a stream one of `KINDS`.
        level: 0 for the outermost.
        own: whether it belongs to the occurrence.
    """

    event_id: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    level: int
    own: bool


def cpu_bars(events: Events, rows: Rows, own: Rows) -> tuple[int, tuple[Bar, ...]]:
    """(levels, bars) of some rows of one thread, by start; `own` are the rows of the occurrence."""
    level = levels_of(around(events, rows), np.isin(rows, own))
    shown = (level >= 0) & (level < MOST_LEVELS)
    rows, level = rows[shown], level[shown]
    names = Texts.column(events.trace.lanes.cpu, "name", rows)
    columns = (
        ints(events.trace.lanes.cpu, "event_id")[rows].tolist(),
        names.values(),
        cpu_kinds(events, rows, names),
        events.nesting.start_ns[rows].tolist(),
        events.nesting.end_ns[rows].tolist(),
        level.tolist(),
        np.isin(rows, own).tolist(),
    )
    bars = tuple(Bar(*values) for values in zip(*columns, strict=True))
    return max((bar.level + 1 for bar in bars), default=0), bars


def levels_of(depth: Rows, own: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
    """Depths without those that no row has, and where there are too many those near the occurrence's rows."""
    levels, level = np.unique(depth, return_inverse=True)
    deepest = int(level[own].max(initial=0)) if own.any() else MOST_LEVELS - 1
    first = min(max(deepest - MOST_LEVELS + 2, 0), max(len(levels) - MOST_LEVELS, 0))
    return np.asarray(level - first, np.int64)


def cpu_kinds(events: Events, rows: Rows, names: Texts) -> list[str]:
    """annotation, op, call or wait, of each row of `trace.cpu`."""
    calls = Texts.column(events.trace.lanes.cpu, "category", rows).one_of(*CALL_CATEGORIES)
    waits = calls & names.matches(SYNCHRONISING)
    kinds = np.where(events.nesting.annotation[rows], "annotation", np.where(calls, "call", "op"))
    return [str(kind) for kind in np.where(waits, "wait", kinds)]


def gpu_bars(events: Events, entries: Rows, own: Rows) -> tuple[int, tuple[Bar, ...]]:
    """(levels, bars) of some entries of `DeviceWork` on one stream, by start; `own` are those of the occurrence."""
    work = events.work
    assert work is not None
    columns = (
        ints(events.trace.lanes.gpu, "event_id")[work.row[entries]].tolist(),
        Texts.column(events.trace.lanes.gpu, "name", work.row[entries]).values(),
        [KINDS[kind] for kind in work.kind[entries].tolist()],
        work.start_ns[entries].tolist(),
        work.end_ns[entries].tolist(),
        [0] * len(entries),
        np.isin(entries, own).tolist(),
    )
    return 1, tuple(Bar(*values) for values in zip(*columns, strict=True))
