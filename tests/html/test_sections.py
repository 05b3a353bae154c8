"""The page's name and contents, its rules, and the small picture of a notebook."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed, shown
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.html import document, timelines
from traceanalyzer.render.html.summary import summary_svg


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
    assert document.title(page) == title
    assert shown(document.heading(page)).elements[0].text == heading
    secret = page_of(*sources, confidential=True)
    assert document.title(secret) == "traceanalyzer report"
    assert "a.json" not in shown(document.heading(secret)).elements[0].text


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
        return [str(one.attributes["href"])[1:] for one in shown(document.contents(page)).having("href")]

    assert leads(page_of("a.json", **drawn)) == ["findings", *parts, "facts-0", "rules"]
    there = leads(page_of("a.json", timeline=1))
    assert there[:2] == ["timeline", "findings"]
    job = page_of("a.json", "b.json", **drawn)
    job.traces[0].detailed = False
    assert leads(job) == ["findings", "ranks", "trace-1", "rules"]


def test_keyboard_users_skip_to_the_first_finding() -> None:
    def texts(page: Any) -> list[str]:
        return [one.text for one in shown(document.skip(page)).of_class("skip")]

    assert texts(page_of("a.json")) == ["To the findings"]
    assert texts(page_of("a.json", timeline=1)) == ["To the first finding on the timeline", "To the findings"]
    none = page_of("a.json", timeline=1)
    none.report = replace(none.report, findings=())
    assert texts(none) == ["To the findings"]


def test_severities_are_counted_and_lead_to_the_first_of_each() -> None:
    low, high = samples.finding(0, severity=Severity.LOW), samples.finding(0, severity=Severity.HIGH)
    page = shown(document.counts(samples.report(findings=(high, low, low))))
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
    page = shown(document.rules(samples.report(traces=traces, outcomes=outcomes)))
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
    alone = shown(document.rules(samples.report(outcomes=outcomes[:1])))
    assert [one.text for one in alone.elements if one.name == "li"] == ["a"]


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
    assert timelines.ranked_causes(page) == ["b", "a", "c"]  # 90, 40 + 10, 50: a before c


def drawn(report: Report) -> Parsed:
    return parsed(str(summary_svg(report)).encode())


def lines(page: Parsed) -> list[tuple[str, int, str]]:
    """(x, y, text) of all letters."""
    texts = [one for one in page.elements if one.name == "text"]
    return [(str(one.attributes["x"]), int(str(one.attributes["y"])), one.text) for one in texts]


def report(*traces: TraceReport, findings: tuple[Finding, ...] = ()) -> Report:
    return replace(samples.report(), traces=traces, findings=findings)


def bare(rank: int | None = None, verdict: str = "Step: 25 ms") -> TraceReport:
    return samples.trace(rank, verdict=verdict, accounting=())


def test_four_of_several_ranks_are_named() -> None:
    """20 pixels a line."""
    assert lines(drawn(report(bare(7)))) == [("16", 26, "Step: 25 ms"), ("16", 50, "no findings")]
    five = drawn(report(*(bare(rank, f"verdict {rank}") for rank in range(6))))
    assert lines(five) == [
        *(("16", 26 + 20 * rank, f"rank {rank}: verdict {rank}") for rank in range(4)),
        ("16", 106, "and 2 more ranks"),
        ("16", 130, "no findings"),
    ]
    (svg,) = [one.attributes for one in five.elements if one.name == "svg"]
    assert svg["aria-label"] == "traceanalyzer: verdict 0; verdict 1; verdict 2; verdict 3"
    assert (svg["width"], svg["height"], svg["viewbox"]) == ("760", "150", "0 0 760 150")
    four = drawn(report(*(bare(rank) for rank in range(4))))
    assert not [text for *_, text in lines(four) if "more ranks" in text]


def test_a_silent_verdict_says_that_the_step_is_not_known() -> None:
    page = drawn(report(bare(verdict="")))
    assert lines(page)[0] == ("16", 26, "The step is not known.")
    assert page.elements[0].attributes["aria-label"] == "traceanalyzer: "


@pytest.mark.parametrize(("words", "cut"), [(4 * 15, False), (4 * 15 + 1, True)])
def test_a_long_verdict_has_four_lines(words: int, cut: bool) -> None:
    """15 words of five letters fill a line of 92 characters."""
    texts = [text for *_, text in lines(drawn(report(bare(verdict=" ".join(["words"] * words)))))]
    assert texts[:4] == [" ".join(["words"] * 15)] * 4
    assert texts[4:] == (["…", "no findings"] if cut else ["no findings"])


def test_window_parts_are_drawn_largest_first_idle_last() -> None:
    """Of 728 pixels; what is not two pixels wide is left out, and a name needs 8 pixels a letter."""
    parts = {
        "idle:unknown": 500,
        "copy_h2d": 100,  # 72.8 px: too little for its name
        "memset": 2,  # 1.5 px
        "compute": 395,
        "idle:python": 3,  # 2.2 px
    }
    parts = {name: ns * MS for name, ns in parts.items()}
    one = samples.accounting(start_ns=0, end_ns=1_000 * MS, parts_ns=parts)
    page = drawn(report(samples.trace(verdict="Step: 25 ms", accounting=(one, samples.accounting()))))
    bars = [one for one in page.elements if one.name == "rect"][1:]
    assert [(each.attributes["x"], each.attributes["width"]) for each in bars] == [
        ("16.0", "287.6"),
        ("303.6", "72.8"),
        ("376.4", "364.0"),
        ("740.4", "2.2"),
    ]
    assert {each.attributes["y"] for each in bars} == {"38"}
    assert [each.attributes["fill"] for each in bars] == ["#a9d6c1", "#f8e6a0", "#e3e6ea", "#e3e6ea"]
    titles = [each.text for each in page.elements if each.name == "title"]
    assert titles[0] == "compute: 395 ms, 39.5 %"
    letters = lines(page)[1:-1]
    assert [(x, y) for x, y, _ in letters] == [("22.0", 56), ("382.36", 56)]
    assert letters[0][2] == "compute"
    assert letters[1][2].startswith("idle: ")
    assert lines(page)[-1] == ("16", 104, "no findings")


def test_finding_has_number_severity_name_and_saving() -> None:
    high = samples.finding(0, severity=Severity.HIGH, saving=samples.saving(), by="aten::mm")
    info = samples.finding(0, severity=Severity.INFO, cost_ns=0)
    page = drawn(report(bare(), findings=(high, info)))
    found = lines(page)[1:]
    assert [(x, y) for x, y, _ in found] == [
        *(("16", 50), ("110", 50), ("744", 50)),
        *(("16", 70), ("110", 70), ("744", 70)),
    ]
    assert [found[0][2][0], found[3][2][0]] == ["1", "2"]
    assert [found[0][2].split()[-1], found[3][2].split()[-1]] == ["high", "info"]
    assert found[1][2].startswith("scheduler-gap")
    assert [found[2][2], found[5][2]] == ["saves 9.00 ms a step, 50.0 %", ""]
    (svg,) = [one.attributes for one in page.elements if one.name == "svg"]
    assert svg["height"] == "90"
    last = [one.attributes for one in page.elements if one.name == "text"][3]
    assert last["text-anchor"] == "end"
