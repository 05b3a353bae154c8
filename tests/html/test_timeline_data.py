"""What a timeline says in words, and what the script gets: times since the first event, columns as differences."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.report import Clock, JobReport, RankReport, Report
from traceanalyzer.render.html.plot_data import Stretch
from traceanalyzer.render.html.timeline_data import Columns, Marks, Overview, Timeline, Track
from traceanalyzer.render.html.timeline_events import Band
from traceanalyzer.render.html.timelines import coverage, packed_timelines, shifts, timeline_section

EVENTS = Columns(
    event_id=(5, 9, 7),
    name=(0, 1, 0),
    kind=(0, 1, 0),
    start_ns=(ORIGIN + 100, ORIGIN + 150, ORIGIN + 40),
    dur_ns=(30, 20, 10),
    level=(0, 1, 2),
    launch=(-1, -1, 0),
    delay_ns=(None, None, 60),
    op=(-1, 0, 1),
    shapes=(2, -1, -1),
    line=(-1, 3, -1),
)
OVERVIEW = Overview(0, ("compute", "idle:python"), (80, 10), (0, 0), (1, 1))
MARKS = Marks(1, (0, 2), (ORIGIN + 100, ORIGIN + 5 * MS), (ORIGIN + 130, ORIGIN + 7 * MS), (0, -1))
ONE = Timeline(
    start_ns=ORIGIN + 10,
    end_ns=ORIGIN + 90 * MS,
    least_ns=0,
    bands=(Band(ORIGIN + 20, ORIGIN + 30, 0),),
    steps=((4, ORIGIN + 20, ORIGIN + 50),),
    overviews=(OVERVIEW,),
    tracks=(Track("thread", None, 31, 2, 0, 2), Track("stream", 0, 7, 1, 2, 1)),
    kinds=("op", "compute", "copy_d2h"),
    texts=("aten::mm", "launch", "[8]", "a" * 300),
    events=EVENTS,
    marks=(MARKS, Marks(0, (), (), (), ())),
    waits=((ORIGIN + 60, 25, 3),),
)


def report(*ranks: int | None, job: JobReport | None = None) -> Report:
    """Of traces whose clocks begin a microsecond later each."""
    traces = tuple(
        samples.trace(rank, meta=samples.meta(origin_ns=ORIGIN + 1_000 * at)) for at, rank in enumerate(ranks)
    )
    found = (samples.finding(0), samples.finding(0, 20 * MS, 40 * MS))
    costs = tuple(replace(one, cost_ns=at) for at, one in enumerate(found[1].occurrences))
    whole = samples.report(findings=(found[0], replace(found[1], occurrences=costs)))
    return replace(whole, traces=traces, job=job)


def page(of: Report, *timelines: Timeline | None, stretches: tuple[Stretch, ...] = ()) -> Any:
    traces = [
        SimpleNamespace(rank=head.rank, timeline=timeline, stretches=stretches)
        for head, timeline in zip(of.traces, timelines, strict=True)
    ]
    return SimpleNamespace(report=of, traces=traces)


def data(made: Any) -> list[dict[str, Any]]:
    (block,) = parsed(str(packed_timelines(made)).encode()).elements
    found: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(block.text)))
    return found


def test_times_count_from_the_first_event() -> None:
    (one,) = data(page(report(None), ONE))
    assert (one["origin"], one["from"], one["to"]) == (str(ORIGIN), 10, 90 * MS)
    assert (one["bands"], one["steps"], one["waits"]) == ([[20, 30, 0]], [[4, 20, 50]], [[60, 25, 3]])
    assert one["tracks"] == [["thread", None, 31, 2, 0, 2], ["stream", 0, 7, 1, 2, 1]]
    assert one["kinds"] == ["op", "compute", "copy_d2h"]
    assert [len(text) for text in one["texts"]] == [8, 6, 3, 200]
    assert one["causes"] == ["idle:python"]
    assert one["over"] == [
        {"device": 0, "names": ["compute", "idle:python"], "busy": [80, 10], "doing": [0, 0], "why": [1, 1]}
    ]


def test_starts_and_ids_are_differences_along_each_track() -> None:
    (one,) = data(page(report(None), ONE))
    assert one["ev"] == {
        "n": [0, 1, 0],
        "k": [0, 1, 0],
        "s": [100, 50, 40],
        "d": [30, 20, 10],
        "l": [0, 1, 2],
        "p": [-1, -1, 0],
        "w": [None, None, 60],
        "o": [-1, 0, 1],
        "h": [2, -1, -1],
        "i": [-1, 3, -1],
        "e": [5, 4, 7],
    }


def test_marks_have_the_findings_text_and_occurrence_costs() -> None:
    """Findings without occurrences here have none."""
    (one,) = data(page(report(None), ONE))
    assert one["marks"] == [
        {
            "f": 1,
            "rule": "scheduler-gap",
            "severity": "high",
            "count": 3,
            "j": [0, 2],
            "s": [100, 5 * MS - 100],
            "t": [30, 2 * MS],
            "c": [0, 2],
            "e": [0, -1],
        }
    ]


def test_gaps_are_from_start_to_end_of_their_own_trace() -> None:
    gap = Stretch(1, ORIGIN + 3_000, ORIGIN + 9_000, "idle:python", "aten::mm", 4, "a.py(1): f")
    first, last = data(page(report(0, 1), ONE, ONE, stretches=(gap,)))
    assert [first["trace"], last["trace"], first["rank"], last["rank"]] == [0, 1, 0, 1]
    assert first["gaps"][0][:3] == [1, 3_000, 9_000]
    assert last["gaps"][0][:3] == [1, 2_000, 8_000]
    assert first["gaps"][0][3].startswith("idle: ")
    assert first["gaps"][0][4] == "a.py(1): f"
    assert last["origin"] == str(ORIGIN + 1_000)


def test_traces_without_a_timeline_are_left_out() -> None:
    (one,) = data(page(report(0, 1), None, ONE))
    assert (one["trace"], one["rank"]) == (1, 1)
    assert packed_timelines(page(report(0), None)) is None
    assert timeline_section(page(report(0), None)) is None


RANK = RankReport(0, 1_000 * MS, Clock(0))


def test_ranks_have_one_axis_where_their_clocks_are_known() -> None:
    """Rank 1's begins 1 us later by itself, its file 3 ms later, and it reads 2 ms more: 1.001 ms after rank 0's."""
    other = replace(RANK, rank=1, base_ns=1_003 * MS, clock=Clock(0, 2 * MS))
    unknown = replace(RANK, rank=2, clock=None)
    job = JobReport((RANK, other, unknown), culprits=(1, 0))
    of = report(0, 1, 2, 3, job=job)
    assert shifts(of) == [0, MS + 1_000, None, None]
    made = data(page(of, ONE, ONE, ONE, ONE))
    assert [one["shift"] for one in made] == [0, MS + 1_000, None, None]
    assert [one["first"] for one in made] == [False, True, False, False]  # it is shown first
    assert shifts(report(None)) == [None]
    early = replace(other, clock=Clock(0, 9 * MS))
    assert shifts(report(0, 1, job=JobReport((RANK, early)))) == [6 * MS - 1_000, 0]


def test_drifting_clock_is_corrected_at_the_window_middle() -> None:
    """It gains a thousandth from 1 s on; the window's middle is 50 ms after that: 50 us."""
    at = ORIGIN + 1_000 * MS
    fast = replace(RANK, rank=1, clock=Clock(0, 0, drift_ppm=1_000.0, at_ns=at))
    assert shifts(report(0, 1, job=JobReport((RANK, fast)))) == [49_000, 0]


@pytest.mark.parametrize(
    ("bands", "least", "within", "elsewhere"),
    [
        ((), 0, "", "all"),
        ((0,), 5_000, "All events of 1 step (tinted), ", "from 5.00 µs"),
        ((0, 700, 0), 0, "All events of 2 steps (tinted), of one step the events from 700 ns, ", "all"),
        ((300, 700), 1, "of one step the events from 700 ns, ", "from 1 ns"),
    ],
)
def test_a_timeline_says_how_much_of_the_trace_it_has(
    bands: tuple[int, ...], least: int, within: str, elsewhere: str
) -> None:
    made = replace(ONE, least_ns=least, bands=tuple(Band(0, 1, shown) for shown in bands))
    rest = f"the surroundings of each finding’s first occurrences; elsewhere events {elsewhere}."
    assert coverage(made) == within + rest


def test_a_rank_is_chosen_among_those_that_are_drawn() -> None:
    section = parsed(str(timeline_section(page(report(3, 5, 6), None, ONE, ONE))).encode())
    (choice,) = [one for one in section.having("id") if one.attributes["id"] == "timeline-trace"]
    assert choice.text == "rank 5rank 6"
    options = [one for one in section.elements if one.name == "option" and "rank" in one.text]
    assert [one.attributes["value"] for one in options] == ["0", "1"]
    labels = [one.attributes["aria-label"] for one in section.having("aria-label")]
    assert [one for one in labels if one and one.startswith("Timeline of")] == [
        "Timeline of rank 5",
        "Timeline of rank 6",
    ]
    alone = str(timeline_section(page(report(3), ONE)))
    assert "timeline-trace" not in alone
    assert "Timeline of the trace" in alone


def test_findings_are_chosen_by_their_numbers() -> None:
    section = parsed(str(timeline_section(page(report(None), ONE))).encode())
    options = [one for one in section.having("data-finding") if one.name == "option"]
    assert [(one.text, one.attributes["value"], one.attributes["data-finding"]) for one in options] == [
        ("2 scheduler-gap", "0", "2"),
        ("1 scheduler-gap", "1", "1"),
    ]


@pytest.mark.parametrize(("count", "others"), [(5, []), (6, ["idle: other causes"])])
def test_five_causes_have_a_colour_of_their_own(count: int, others: list[str]) -> None:
    names = tuple(f"idle:cause {at}" for at in reversed(range(count)))
    over = Overview(0, names, tuple(reversed(range(count))), (-1,) * count, tuple(range(count)))
    made = replace(
        ONE, overviews=(over,), kinds=("op", "python", "copy_d2h", "copy_h2d", "memset", "compute")
    )
    section = parsed(str(timeline_section(page(report(None), made))).encode())
    (listed,) = section.of_class("legend")
    items = [(one.attributes["class"] or "").split()[-1] for one in section.of_class("swatch")]
    threads = ["b-annotation", "b-op", "b-call", "b-wait"]
    causes = [f"i-{at}" for at in range(5)] + ["i-5"] * len(others)
    assert items == [*threads, "b-compute", "b-copy", "b-memset", *causes]
    assert "call that waitskernelcopymemsetidle: cause 0idle: cause 1" in listed.text
    assert listed.text.endswith("idle: cause 4" + "".join(others))


def test_ops_are_no_kernels_of_the_legend() -> None:
    section = parsed(
        str(timeline_section(page(report(None), replace(ONE, kinds=("op", "copy_d2h"))))).encode()
    )
    items = [(one.attributes["class"] or "").split()[-1] for one in section.of_class("swatch")]
    assert items == ["b-annotation", "b-op", "b-call", "b-wait", "b-copy", "i-0"]


def test_of_causes_that_idle_alike_the_first_by_name_comes_first() -> None:
    over = Overview(0, ("idle:b", "idle:a", "idle:c"), (50, 50, 10), (-1,) * 3, (0, 1, 2))
    (one,) = data(page(report(None), replace(ONE, overviews=(over,))))
    assert one["causes"] == ["idle:c", "idle:a", "idle:b"]
