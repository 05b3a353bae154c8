"""The footer of the whole report: which rules ran at which ranks, what was not understood, and what was damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Outcome, Status
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Damage
from traceanalyzer.render.text.finding import put_fitted, short_paths
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text


def footer_of(report: Report) -> list[str]:
    """Its lines, below the rule that it begins with."""
    lines = render_text(report, verbose=True, width=120).splitlines()
    begin = max(at for at, line in enumerate(lines) if line == "-" * 120)
    return lines[begin + 1 :]


def rules_of(report: Report) -> list[str]:
    """What is said of rules and their reasons."""
    lines = footer_of(report)
    begin = next(at for at, line in enumerate(lines) if line.startswith("rules"))
    return [line[11:] for line in lines[begin:] if line.startswith(("rules", " " * 11))]


def test_rule_with_a_finding_at_one_rank_is_clear_at_none() -> None:
    outcomes = (
        Outcome("scheduler-gap", Status.FOUND, None, 0),
        Outcome("scheduler-gap", Status.CLEAR, "costs too little", 1),
        Outcome("hidden-dtod-copy", Status.CLEAR, "costs too little", 0),
        Outcome("hidden-dtod-copy", Status.CLEAR, "costs too little", 1),
        Outcome("hotspot", Status.CLEAR, None, 0),
        Outcome("hotspot", Status.CLEAR, None, 1),
    )
    found = samples.findings(0)[:1]
    report = replace(samples.two_ranks(), outcomes=outcomes, findings=tuple(found))
    assert rules_of(report) == [
        "3 ran: 1 with findings, 2 clear",
        "hidden-dtod-copy (ranks 0, 1): costs too little",
    ]


def test_rules_with_one_reason_share_a_line_with_ranks() -> None:
    outcomes = (
        Outcome("a", Status.NOT_APPLICABLE, "no steps", 1),
        Outcome("b", Status.NOT_APPLICABLE, "no steps", 1),
        Outcome("a", Status.NOT_APPLICABLE, "no shapes", 0),
        Outcome("c", Status.NOT_APPLICABLE, "one rank alone"),
        Outcome("d", Status.FAILED, "ZeroDivisionError", 0),
    )
    report = replace(samples.two_ranks(), outcomes=outcomes, findings=())
    assert rules_of(report) == [
        "3 not applicable",
        "a, b (rank 1): no steps",
        "a (rank 0): no shapes",
        "c: one rank alone",
        "1 failed",
        "d (rank 0): ZeroDivisionError",
    ]
    of_one = replace(
        samples.report(findings=()), outcomes=tuple(replace(one, rank=0) for one in outcomes[:2])
    )
    assert rules_of(of_one) == ["2 not applicable", "a, b: no steps"]


@pytest.mark.parametrize("several", [False, True])
def test_ignored_events_are_summed_and_damage_follows(several: bool) -> None:
    meta = samples.meta(
        "a.json",
        counted={"odd": 1_200, "even": 34, "flow:ac2g": 400, "metadata": 12},
        unknown_categories={"mystery": 3},
        damage=(Damage("truncated", "the file ends within an event", 9, 1),),
    )
    traces = [samples.trace(0 if several else None, meta=meta)]
    if several:
        traces.append(samples.trace(1, meta=samples.meta("b.json")))
    lines = footer_of(replace(samples.report(findings=()), traces=tuple(traces), outcomes=()))
    name = "a.json: " if several else ""
    assert lines[:3] == [
        f"events     {name}1,234 not understood: even 34, odd 1,200",
        f"events     {name}3 of unknown categories: mystery 3",
        f"damage     {name}the file ends within an event",
    ]


@pytest.mark.parametrize(("saves", "told"), [(True, True), (False, False)])
def test_what_savings_are_is_said_where_there_is_one(saves: bool, told: bool) -> None:
    found = replace(samples.findings()[0], saving=samples.saving() if saves else None)
    text = " ".join(footer_of(samples.report(findings=(found,))))
    assert ("Savings are shares of a step" in text) is told


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/env/lib/torch/nn/linear.py(12): forward", "nn/linear.py(12): forward"),
        ("at a/b/c/d.pyx(3) and x/y.py", "at c/d.pyx(3) and x/y.py"),
        ("(/a/b/c.py)", "(b/c.py)"),
        ("/a/b/c.txt", "/a/b/c.txt"),
    ],
)
def test_paths_are_told_by_their_last_two_parts(path: str, short: str) -> None:
    assert short_paths(path) == short


@pytest.mark.parametrize(
    ("lines", "spare", "whole", "count"),
    [(1, 0, False, 1), (1, 1, False, 2), (2, 0, False, 2), (1, 0, True, 2), (1, 2, False, 2)],
)
def test_a_text_has_spare_lines_only_where_it_would_be_cut(
    lines: int, spare: int, whole: bool, count: int
) -> None:
    text = "The GPU waits for the next launch of the CPU each time, which takes long, and is idle."
    page = Page(60)
    put_fitted(page, text, lines, spare=spare, whole=whole)
    assert len(page.lines) == count
    assert page.lines[-1].endswith(" (more: --verbose)" if count == 1 else "and is idle.")
    page = Page(100)
    put_fitted(page, text, lines, spare=spare, whole=whole)
    assert page.lines == [text]


@pytest.mark.parametrize(("ranks", "begin"), [((None,), ""), ((0,), "rank 0: "), ((0, 1), "ranks 0, 1: ")])
def test_what_is_to_be_known_of_the_recording_is_said_once(ranks: tuple[int | None, ...], begin: str) -> None:
    """Of several ranks with those that it is about; what costs time is counted in another line."""
    (told,) = [one for one in samples.findings() if one.rule == "lane-offset"]
    free = replace(told, message="The buffer is small", advice="Make it larger.", cost_ns=0, cost_share=0.0)
    found = tuple(replace(free, rank=rank) for rank in ranks)
    outcomes = (Outcome("lane-offset", Status.FOUND, group="recording"),)
    report = replace(samples.report() if ranks == (None,) else samples.two_ranks(), outcomes=outcomes)
    lines = footer_of(replace(report, findings=found))
    assert f"recording  {begin}The buffer is small. Make it larger." in lines
    assert not [line for line in lines if line.startswith("profiler")]
    costly = replace(told, rank=ranks[0])
    lines = footer_of(replace(report, findings=(costly,)))
    of = "" if ranks[0] is None else " (rank 0)"
    told_of = f"#1 lane-offset: queueing{of} 20.0 ms, 20.0 %"
    assert f"profiler   done by the profiler, not by the program: {told_of}" in lines
    assert not [line for line in lines if line.startswith("recording")]
