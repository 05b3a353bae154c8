"""Where events are: rows by their ids, rows that are open at an instant, and how many are around a row."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.trace import ints
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
    place = events.once("page: entry of row", lambda: _entry_of_row(events))
    found: Rows = place[rows]
    return found[found >= 0]


def _entry_of_row(events: Events) -> Rows:
    assert events.work is not None
    place = np.full(len(events.trace.lanes.gpu), -1, np.int64)
    place[events.work.row] = np.arange(len(events.work.row))
    return place


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


def around(events: Events, rows: Rows, counted: Mask | None = None) -> Rows:
    """How many rows of `trace.cpu` (of those `counted`) are around each; int64 (len(rows),)."""
    count, going = np.zeros(len(rows), np.int64), pick(events.nesting.parent, rows)
    while (going >= 0).any():
        count += (going >= 0) if counted is None else (going >= 0) & counted[going]
        going = pick(events.nesting.parent, going)
    return count
