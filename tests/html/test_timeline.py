"""The timeline's events are the trace's, those of findings and of a few steps first; ranks have one axis."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.html.pages import busy_loop, page, parsed, rendered
from tests.job.ranks import REDUCES, Recording, Reductions
from tests.support.cached_reports import analysed, loaded, reported
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.render.html.timeline_data import Timeline, overviews, timeline_of
from traceanalyzer.report.diagnosis import analyses_of, report_of

SOME = [FIXTURES / name / "bad.json.gz" for name in ("implicit-sync", "launch-bound", "exposed-copy")]


def timeline(path: Path) -> Timeline:
    found = page(path).traces[0].timeline
    assert found is not None
    return found


def of(analysis: Analysis, most: int, marks: int = 1_000) -> Timeline:
    findings = report_of([(None, analysis)]).findings
    return timeline_of(analysis, list(enumerate(findings)), [], most, marks, None)


def packed(html: bytes) -> list[dict[str, Any]]:
    (block,) = [one for one in parsed(html).having("id") if one.attributes["id"] == "timelines"]
    made: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(block.text)))
    return made


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_events_are_those_of_the_trace(path: Path) -> None:
    trace, made = loaded(path), timeline(path)
    known: dict[int, tuple[str, int, int]] = {}
    for frame in (trace.cpu, trace.gpu):
        columns = (frame[name] for name in ("event_id", "name", "start_ns", "dur_ns"))
        known |= {event: rest for event, *rest in zip(*columns, strict=True)}  # type: ignore[misc]
    events = made.events
    assert len(set(events.event_id)) == len(events.event_id) > 100
    for event, name, start, dur in zip(
        events.event_id, events.name, events.start_ns, events.dur_ns, strict=True
    ):
        assert [made.texts[name], start, dur] == list(known[event])


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_every_listed_occurrence_is_marked_with_its_event(path: Path) -> None:
    made = timeline(path)
    for mark in made.marks:
        found = reported(path).findings[mark.finding]
        assert len(mark.position) == len(found.occurrences)
        for place, start, event in zip(mark.position, mark.start_ns, mark.event, strict=True):
            assert found.occurrences[place].start_ns == start
            if event >= 0:
                assert made.events.event_id[event] in found.occurrences[place].event_ids
    known = [event >= 0 for mark in made.marks for event in mark.event]
    assert 2 * sum(known) > len(known)


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_launches_and_delays_are_those_of_the_work(path: Path) -> None:
    events = timeline(path).events
    joined = 0
    for work, (launch, delay) in enumerate(zip(events.launch, events.delay_ns, strict=True)):
        if launch >= 0:
            joined += 1
            assert events.start_ns[work] - events.start_ns[launch] == delay
    assert joined > 50


def test_long_traces_are_thinned_and_whole_steps_are_said() -> None:
    analysis = Analysis(busy_loop(400).load())
    made = of(analysis, 2_000)
    rows = len(analysis.trace.cpu) + len(analysis.trace.gpu)
    assert 1_000 < len(made.events.name) < 4_000 < rows
    assert made.bands
    starts, durations = np.array(made.events.start_ns), np.array(made.events.dur_ns)
    for band in made.bands:
        cpu = analysis.trace.cpu
        inside = (cpu["start_ns"] >= band.start_ns) & (cpu["start_ns"] + cpu["dur_ns"] < band.end_ns)
        inside &= cpu["dur_ns"] >= band.least_ns
        there = set(made.events.event_id)
        assert set(cpu[inside & (cpu["pid"] >= 0)]["event_id"]) <= there
    assert len(starts) == len(durations)


def test_occurrences_are_thinned_to_the_first_and_the_costliest() -> None:
    analysis = Analysis(busy_loop(400).load())
    findings = report_of([(None, analysis)]).findings
    made = timeline_of(analysis, list(enumerate(findings)), [], 2_000, 40, None)
    for mark in made.marks:
        every = findings[mark.finding].occurrences
        assert list(mark.position) == sorted(mark.position)
        assert len(mark.position) <= 40 + 1
        assert list(mark.position[:20]) == list(range(min(20, len(every))))


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_the_overview_is_the_books_in_parts(path: Path) -> None:
    """The busy share of all parts together is that of the window, and one part is the whole."""
    analysis = analysed(path)
    books = analysis.index(Accounting)
    parts = books.parts_ns(analysis.index(Idle))
    length = sum(parts.values())
    busy = sum(ns for name, ns in parts.items() if not name.startswith("idle:"))
    (fine,) = overviews(analysis)
    assert sum(fine.busy) / len(fine.busy) == pytest.approx(100 * busy / length, abs=1)
    (one,) = overviews(analysis, 1)
    assert one.busy == (round(100 * busy / length),)
    idle = {name: ns for name, ns in parts.items() if name.startswith("idle:")}
    assert one.names[one.why[0]] == max(idle, key=lambda name: idle[name])


def test_confidential_timelines_have_no_lines_and_annotations() -> None:
    made = page(SOME[0], True).traces[0].timeline
    assert made is not None
    assert set(made.events.line) == {-1}
    assert "annotation" not in made.kinds
    assert not any("ProfilerStep" in text or ".py" in text for text in made.texts)


def test_without_events_there_is_none() -> None:
    made = TraceBuilder()
    made.op("aten::add", 0, 1_000)
    whole = of(Analysis(made.load()), 100)
    assert whole.overviews == ()
    assert [track.kind for track in whole.tracks] == ["thread"]
    with pytest.raises(Unavailable):
        overviews(Analysis(made.load()))


def test_packed_data_is_the_timeline() -> None:
    (data,), made = packed(rendered(SOME[0])), timeline(SOME[0])
    events, origin = data["ev"], int(data["origin"])
    (kind, _, number, _, first, size), track = data["tracks"][0], made.tracks[0]
    assert (kind, number, first, size) == (track.kind, track.number, track.first, track.size)
    starts = np.cumsum(events["s"][first : first + size]) + origin
    assert starts.tolist() == list(made.events.start_ns[first : first + size])
    assert np.cumsum(events["e"][first : first + size]).tolist() == list(
        made.events.event_id[first : first + size]
    )
    mark = data["marks"][0]
    occurrences = reported(SOME[0]).findings[mark["f"]].occurrences
    assert mark["c"] == [occurrences[j].cost_ns for j in mark["j"]]


AHEAD_NS = 3_000_000


def test_ranks_meet_at_their_collectives_on_one_axis() -> None:
    """One clock is 3 ms ahead, which is more than two steps."""
    compute = (1_000, 1_010, 1_000, 990)
    made = Reductions({0: compute, 1: compute}, recordings={1: Recording(ahead_ns=AHEAD_NS)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    drawn = packed(render_html(page_of(report_of(analyses), analyses)))
    ends = []
    for data in drawn:
        columns = data["ev"]
        for _, _, _, _, first, size in data["tracks"]:
            starts = accumulate(columns["s"][first : first + size])
            rows = zip(
                starts, columns["n"][first : first + size], columns["d"][first : first + size], strict=True
            )
            found = [data["shift"] + at + dur for at, name, dur in rows if data["texts"][name] == REDUCES]
            ends += [found] if found else []
    first, second = ends
    assert len(first) == len(compute)
    assert second == pytest.approx(first, abs=50_000)
    assert min(data["shift"] for data in drawn) == 0


def test_the_waits_of_a_rank_are_those_in_which_it_waits_in_time() -> None:
    """Rank 1 comes later in the second and in the fourth step, rank 0 in the third."""
    made = Reductions({0: (1_000, 1_000, 1_600, 1_000), 1: (1_000, 1_200, 1_000, 1_500)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    lines = [one.timeline for one in page_of(report_of(analyses), analyses).traces]
    waits = [[] if line is None else [(ns, last) for _, ns, last in line.waits] for line in lines]
    assert [[last for _, last in own] for own in waits] == [[1, 1], [0]]
    assert [ns for own in waits for ns, _ in own] == pytest.approx([200_000, 500_000, 600_000], rel=0.05)
    assert all(list(line.waits) == sorted(line.waits) for line in lines if line is not None)
