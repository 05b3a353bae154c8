"""The small picture of a notebook: verdicts by rank, bars of parts, findings, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.html.pages import Parsed, parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.html.summary import summary_svg


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
