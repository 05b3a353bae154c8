"""Sections of the page by themselves: its name and contents, the rules, and what the timelines say of themselves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.finding import Outcome, Severity, Status
from traceanalyzer.model.report import Clock, DeviceTime, JobReport, RankReport
from traceanalyzer.render.html import document, timelines
from traceanalyzer.render.html.markup import told_apart
from traceanalyzer.render.html.summary import summary_svg


def shown(content: object) -> Parsed:
    return parsed(f"<main>{content}</main>".encode())


def page_of(*sources: str, confidential: bool = False, **drawn: Any) -> Any:
    several = len(sources) > 1
    traces = tuple(
        samples.trace(rank if several else None, meta=samples.meta(source))
        for rank, source in enumerate(sources)
    )
    parts = dict.fromkeys(("flame", "cpu_flame", "idle_flame", "steps", "memory", "ops", "timeline"))
    own = [SimpleNamespace(rank=one.rank, detailed=True, **{**parts, **drawn}) for one in traces]
    return SimpleNamespace(report=samples.report(traces=traces), traces=own, confidential=confidential)


@pytest.mark.parametrize(
    ("sources", "title", "heading"),
    [
        (("/data/a.json",), "a.json, traceanalyzer report", "/data/a.json"),
        (
            ("/data/a.json", "b.json", "c.json"),
            "a.json and 2 more, traceanalyzer report",
            "3 ranks of one job",
        ),
    ],
)
def test_a_page_is_named_by_its_files_unless_it_is_confidential(
    sources: tuple[str, ...], title: str, heading: str
) -> None:
    page = page_of(*sources)
    assert document._title(page) == title
    assert shown(document._heading(page)).elements[0].text == heading
    secret = page_of(*sources, confidential=True)
    assert document._title(secret) == "traceanalyzer report"
    assert "a.json" not in shown(document._heading(secret)).elements[0].text


@pytest.mark.parametrize(
    ("drawn", "parts"),
    [
        ({}, ["trace-0"]),
        ({"flame": 1}, ["trace-0", "flame-0"]),
        ({"cpu_flame": 1, "steps": 1}, ["trace-0", "flame-0", "steps-0"]),
        ({"memory": (1,), "ops": 1}, ["trace-0", "memory-0", "ops-0"]),
    ],
)
def test_the_contents_lead_to_what_is_there(drawn: dict[str, Any], parts: list[str]) -> None:
    def leads(page: Any) -> list[str]:
        return [str(one.attributes["href"])[1:] for one in shown(document._contents(page)).having("href")]

    assert leads(page_of("a.json", **drawn)) == ["findings", *parts, "facts-0", "rules"]
    there = leads(page_of("a.json", timeline=1))
    assert there[:2] == ["timeline", "findings"]
    job = page_of("a.json", "b.json", **drawn)
    job.traces[0].detailed = False
    assert leads(job) == ["findings", "ranks", "trace-1", "rules"]


def test_keyboard_users_skip_to_the_first_finding() -> None:
    def texts(page: Any) -> list[str]:
        return [one.text for one in shown(document._skip(page)).of_class("skip")]

    assert texts(page_of("a.json")) == ["To the findings"]
    assert texts(page_of("a.json", timeline=1)) == ["To the first finding on the timeline", "To the findings"]
    none = page_of("a.json", timeline=1)
    none.report = replace(none.report, findings=())
    assert texts(none) == ["To the findings"]


def test_severities_are_counted_and_lead_to_the_first_of_each() -> None:
    low, high = samples.finding(0, severity=Severity.LOW), samples.finding(0, severity=Severity.HIGH)
    page = shown(document._counts(samples.report(findings=(high, low, low))))
    assert [one.text for one in page.elements if one.name == "a"] == ["▲ 1 high", "● 2 low"]
    assert [one.attributes["href"] for one in page.having("href")] == ["#finding-1", "#finding-2"]


def test_rules_with_one_reason_share_its_longest_text() -> None:
    outcomes = (
        Outcome("a", Status.NOT_APPLICABLE, "no steps", 0),
        Outcome("a", Status.NOT_APPLICABLE, "no steps: call prof.step()", 1),
        Outcome("b", Status.NOT_APPLICABLE, "no steps", 0),
        Outcome("c", Status.NOT_APPLICABLE, "no shapes"),
        Outcome("d", Status.CLEAR),
    )
    traces = (samples.trace(0), samples.trace(1))
    page = shown(document._rules(samples.report(traces=traces, outcomes=outcomes)))
    assert [one.text for one in page.elements if one.name == "dt"] == ["1 clear", "4 not applicable"]
    assert [one.text for one in page.of_class("why")] == ["no steps: call prof.step()", "no shapes"]
    assert [one.text for one in page.elements if one.name == "li"] == [
        "d",
        "a (rank 0, 1)",
        "b (rank 0)",
        "c",
    ]
    paths = [str(one.attributes["data-path"]) for one in page.of_class("why")]
    assert paths == ["diagnose#/outcomes/1/why", "diagnose#/outcomes/3/why"]
    alone = shown(document._rules(samples.report(outcomes=outcomes[:1])))
    assert [one.text for one in alone.elements if one.name == "li"] == ["a"]


# -- timelines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bands", "least", "said"),
    [
        ((), 0, "the surroundings of each finding’s first occurrences; elsewhere events all."),
        ((), 2_000, "the surroundings of each finding’s first occurrences; elsewhere events from 2.00 µs."),
        ((0,), 2_000, "All events of 1 step (tinted), the surroundings"),
        ((0, 0), 2_000, "All events of 2 steps (tinted), the surroundings"),
        (
            (0, 500, 900),
            0,
            "All events of 1 step (tinted), of one step the events from 900 ns, the surroundings",
        ),
    ],
)
def test_a_timeline_says_how_much_of_the_trace_it_has(bands: tuple[int, ...], least: int, said: str) -> None:
    timeline: Any = SimpleNamespace(bands=[SimpleNamespace(least_ns=ns) for ns in bands], least_ns=least)
    note = timelines._note(timeline)
    assert note.startswith(said)
    assert note.endswith("elsewhere events all." if not least else "elsewhere events from 2.00 µs.")


@pytest.mark.parametrize(("count", "other"), [(5, []), (6, ["idle: other causes"])])
def test_the_legend_has_the_kinds_that_are_there_and_five_causes(count: int, other: list[str]) -> None:
    timeline: Any = SimpleNamespace(kinds=["op", "call", "compute", "copy_h2d", "copy_d2h"])
    page = shown(timelines._legend(timeline, [f"idle:cause{at}" for at in range(count)]))
    items = [one.text for one in page.elements if one.name == "li"]
    assert items[:6] == ["annotation", "op", "runtime call", "call that waits", "kernel", "copy"]
    assert len(items) == 11 + len(other)
    assert items[11:] == other
    assert [one.attributes["class"] for one in page.of_class("swatch")][4:7] == [
        "swatch b-compute",
        "swatch b-copy",
        "swatch i-0",
    ]


def test_causes_are_ranked_by_the_idle_part_of_the_window() -> None:
    """Of 100 in each part of the window, what is not busy; -1 is no cause."""
    first = SimpleNamespace(names=["b", "a"], why=[0, 1, -1, 1], busy=[10, 60, 0, 90])
    other = SimpleNamespace(names=["c"], why=[0], busy=[50])
    page: Any = SimpleNamespace(
        traces=[
            SimpleNamespace(timeline=SimpleNamespace(overviews=[first])),
            SimpleNamespace(timeline=None),
            SimpleNamespace(timeline=SimpleNamespace(overviews=[other])),
        ]
    )
    assert timelines._causes(page) == ["b", "a", "c"]  # 90, 40 + 10, 50: a before c


def test_ranks_are_shifted_to_the_earliest_clock() -> None:
    """The second rank's clock reads 2 ms more; the third has none."""
    base = 1_000 * MS
    given = (
        RankReport(0, base, Clock(0, 0)),
        RankReport(1, base + 5 * MS, Clock(0, 2 * MS)),
        RankReport(2, base, None),
    )
    traces = tuple(samples.trace(rank) for rank in (0, 1, 2, 3))
    report = samples.report(traces=traces, job=JobReport(given))
    assert timelines._shifts(report) == [0, 3 * MS, None, None]
    assert timelines._shifts(samples.report()) == [None]


def test_marks_count_from_first_event_and_have_their_cost() -> None:
    one = samples.finding(2 * MS, 5 * MS, 9 * MS, length=3)
    costs = tuple(replace(at, cost_ns=cost) for at, cost in zip(one.occurrences, (7, 8, 9), strict=True))
    starts = [ORIGIN + 2 * MS, ORIGIN + 9 * MS]
    marks: Any = SimpleNamespace(
        finding=1, position=[0, 2], start_ns=starts, end_ns=[ns + 3 for ns in starts], event=[4, 5]
    )
    made = timelines._mark(marks, samples.report(findings=(one, replace(one, occurrences=costs))), ORIGIN)
    assert made == {
        "f": 1,
        "rule": "scheduler-gap",
        "severity": str(one.severity),
        "count": 3,
        "j": [0, 2],
        "s": [2 * MS, 7 * MS],
        "t": [3, 3],
        "c": [7, 9],
        "e": [4, 5],
    }


# -- names, and the picture of a notebook -----------------------------------------------------------------


def test_similar_long_names_show_where_they_differ() -> None:
    begin, end = "a" * 60, "z" * 60
    names = [f"{begin}first{end}", f"{begin}other{end}", "short"]
    told = told_apart(names, 40)
    assert told[2] == "short"
    assert told[0] == "a" * 24 + "…" + "a" * 10 + "first"
    assert told[1] == "a" * 24 + "…" + "a" * 10 + "other"
    assert told_apart([names[0], names[0]], 40) == [f"{'a' * 20}…{'z' * 19}"] * 2


@pytest.mark.parametrize(("ranks", "more"), [(1, False), (4, False), (5, True)])
def test_a_notebook_shows_four_ranks_with_their_first_device(ranks: int, more: bool) -> None:
    one = DeviceTime(0, ORIGIN, ORIGIN + 100 * MS, {"compute": 100 * MS}, ())
    traces = tuple(
        samples.trace(rank, verdict=f"V{rank}" if rank else "", accounting=(one, one))
        for rank in range(ranks)
    )
    page = shown(summary_svg(samples.report(traces=traces, findings=())))
    texts = [at.text for at in page.elements if at.name == "text"]
    begin = "rank 0: " if ranks > 1 else "The step is not known."
    assert texts[0].startswith(begin.strip())
    assert texts.count("compute") == min(ranks, 4)
    assert ("and 1 more ranks" in texts) is more
    assert texts[-1] == "no findings"
    (svg,) = [at for at in page.elements if at.name == "svg"]
    assert svg.attributes["aria-label"] == "traceanalyzer: " + "; ".join(
        f"V{rank}" for rank in range(1, min(ranks, 4))
    )
