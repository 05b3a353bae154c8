"""The timeline that one can move in: what happened on threads and streams, thinned, and where findings are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.report.page.chosen import Band, Chosen, chosen
from traceanalyzer.report.page.columns import Columns, Said, Track, Writer
from traceanalyzer.report.page.overview import Overview, overviews
from traceanalyzer.report.summary import attempt
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

_MARKS = 400  # of steps
_WAITS = 300  # in collectives
_FIRST = 20  # occurrences of a finding that are never left out
_THINNED = -2


@dataclass(frozen=True, slots=True)
class Marks:
    """Occurrences of one finding: positions in `Finding.occurrences`, by start.

    Attributes:
        finding: position in `Report.findings`.
        event: of each the position of its event in `Timeline`'s columns (work, if it has any), -1 where it has none,
            -2 where none of its events is kept.
    """

    finding: int
    position: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    event: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One trace from `start_ns` to `end_ns`.

    Attributes:
        least_ns: outside the bands and away from occurrences, events that last as long are kept.
        steps: (number, start, end) on the first device, or on the CPU.
        waits: (start, ns, rank that came last) of the collectives in which it waits longest for other ranks.
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

    Args:
        findings: of this trace, with their positions in the report.
        spans: (start, end) of what else is looked at closely.
        said: what a name becomes in a confidential page, which has no annotations and lines; None to keep all.

    Raises:
        Unavailable: the trace has no events that can be placed.
    """
    events, steps = analysis.index(Events), analysis.index(Steps)
    kept = chosen(analysis, [finding for _, finding in findings], spans, most)
    if said is not None:
        kept = _without_annotations(events, kept)
    tracks, columns, texts, kinds = Writer(events, said).written(kept)
    none: tuple[Overview, ...] = ()
    unmeasured: tuple[tuple[int, int, int], ...] = ()
    share = marks // max(len(findings), 1)
    return Timeline(
        start_ns=steps.window_start_ns,
        end_ns=steps.window_end_ns,
        least_ns=kept.least_ns,
        bands=kept.bands,
        steps=_steps(steps),
        overviews=attempt({}, "overview", lambda: overviews(analysis), none),
        tracks=tracks,
        kinds=kinds,
        texts=texts,
        events=columns,
        marks=tuple(_marks(i, finding, columns, tracks, share) for i, finding in findings),
        waits=attempt({}, "waits", lambda: _waits(analysis), unmeasured),
    )


def _waits(analysis: Analysis) -> tuple[tuple[int, int, int], ...]:
    """
    Raises:
        Unavailable: the traces of other ranks are not there.
    """
    waits, work = analysis.index(CollectiveWaits), analysis.index(DeviceWork)
    longest = np.lexsort((waits.entry, -waits.waiting_ns))[:_WAITS]
    longest = np.sort(longest[waits.waiting_ns[longest] > 0])
    columns = work.start_ns[waits.entry[longest]], waits.waiting_ns[longest], waits.last[longest]
    return tuple(zip(*(column.tolist() for column in columns), strict=True))


def _without_annotations(events: Events, kept: Chosen) -> Chosen:
    threads = tuple((thread, rows[~events.nesting.annotation[rows]]) for thread, rows in kept.threads)
    return Chosen(threads, kept.streams, kept.bands, kept.least_ns)


def _steps(steps: Steps) -> tuple[tuple[int, int, int], ...]:
    """Steps with their edges; every n-th where there are very many."""
    if not steps.marked:
        return ()
    edges = steps.bounds_ns.get(min(steps.bounds_ns, default=-1))
    if edges is None:
        edges = np.append(steps.cpu_start_ns, steps.cpu_end_ns[-1:])
    every = -(-len(steps) // _MARKS)
    rows = zip(steps.number.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return tuple(list(rows)[::every])


def _marks(position: int, finding: Finding, columns: Columns, tracks: Sequence[Track], share: int) -> Marks:
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
    return Marks(
        position,
        tuple(numbers),
        tuple(every[i].start_ns for i in numbers),
        tuple(every[i].end_ns for i in numbers),
        tuple(found),
    )
