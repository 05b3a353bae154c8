"""Where occurrences are: span, device, stream, thread, step, and the events that they are made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.finding import Span
from traceanalyzer.model.trace import ints_at
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.views import Calls, IdleTime, Work

At = Calls | Work | IdleTime


def spans_of(at: At, device: int | None) -> list[Span]:
    """The place of each row; the device is the finding's."""
    call = at if isinstance(at, Calls) else at.launch
    threads = np.where(call.there, call.thread, -1)
    streams = at.stream if isinstance(at, Work) else np.full(len(at), -1)
    known = map(_known, (streams, threads, _step_numbers(at)))
    return [
        Span(start, end, device, *place)
        for start, end, *place in zip(at.start_ns.tolist(), at.end_ns.tolist(), *known, strict=True)
    ]


def _known(numbers: Rows) -> list[int | None]:
    return [None if number < 0 else number for number in numbers.tolist()]


def _step_numbers(at: At) -> Rows:
    """Number of each row's step as it is marked, -1 where there is none."""
    steps = at.events.steps
    if not steps.marked:
        return np.full(len(at), -1)
    inside = (at.step >= 0) & (at.step < len(steps))
    return np.where(inside, pick(steps.number, np.where(inside, at.step, -1)), -1)


def event_ids(hits: Hits, rows: Rows) -> list[tuple[int, ...]]:
    """The events that some occurrences consist of, the occurrence itself first, each once."""
    columns = [*_ids(hits.occurrences[rows]), *(ids for also in hits.related for ids in _ids(also[rows]))]
    table = np.stack(columns, axis=1).tolist() if columns else [[]] * len(rows)
    return [_once_each(one) for one in table]


def _once_each(events: list[int]) -> tuple[int, ...]:
    """Without -1, in order of first sight."""
    found = dict.fromkeys(events)
    found.pop(-1, None)
    return tuple(found)


def _ids(at: At) -> Iterator[Rows]:
    """Event ids of what each row of a selection consists of, -1 where there is none."""
    trace, work = at.events.trace, at.events.work
    if isinstance(at, Calls):
        yield ints_at(trace.lanes.cpu, "event_id", at.rows)
        return
    entries = (at.entries,) if isinstance(at, Work) else (at.before_entries, at.next_entries)
    for entry in entries:
        yield ints_at(trace.lanes.gpu, "event_id", pick(work.row if work else entry, entry))
    for calls in (at.launch, at.op) if isinstance(at, Work) else (at.launch, at.call, at.op):
        yield from _ids(calls)
