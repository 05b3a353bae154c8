"""Findings, facts, iterations and rules as text: where examples are, what they are named by, and lists."""

from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Iteration, Iterations, JobReport, RankReport, Verdict
from traceanalyzer.render.text.explain import rule_page
from traceanalyzer.render.text.finding import put_finding
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.text.views import render_facts
from traceanalyzer.render.words.escape import to_markdown
from traceanalyzer.report.facts import Fact
from traceanalyzer.rule import Claims
from traceanalyzer.rule.registry import Rule


def place(finding: Finding) -> str:
    page = Page(120)
    put_finding(page, 1, finding, samples.report(findings=(finding,)))
    return " ".join(" ".join(page.lines).split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"stream": 0, "thread": 7, "steps": 0, "count": 1_200},
            "1,200 times, for example at 2.000 ms for 3.00 ms on stream 0, timestamp",
        ),
        (
            {"stream": None, "thread": 7, "steps": 1_000, "count": 1_200},
            "1,200 times in 1,000 steps, for example at 2.000 ms for 3.00 ms on thread 7, timestamp",
        ),
        ({"stream": None, "thread": None, "steps": 1}, "once in 1 step, at 2.000 ms for 3.00 ms, timestamp"),
    ],
)
def test_a_finding_says_how_often_and_where_it_occurs(changes: dict[str, Any], said: str) -> None:
    one = samples.finding(2 * MS, length=3 * MS, **changes)
    assert f"{said} {ORIGIN + 2 * MS}; confidence high" in place(one)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ((), ""),
        ((7,), " (event 7)"),
        ((7, 8), " (events 7, 8)"),
        ((1, 2, 3, 4), " (events 1, 2, 3, 4)"),
        ((1, 2, 3, 4, 5), " (events 1, 2, 3, 4 ...)"),
    ],
)
def test_a_fact_names_its_first_four_events(ids: tuple[int, ...], said: str) -> None:
    facts = [Fact("a-kind", "It is so.", {}, ids), Fact("a-kind", "And so.", {}, ()), Fact("other", "Too.", {}, ())]
    assert render_facts(facts).splitlines() == ["a kind", f"  It is so.{said}", "  And so.", "", "other", "  Too."]
    assert render_facts([]).startswith("The trace shows none of the facts")


@pytest.mark.parametrize("of_a_job", [False, True])
def test_iterations_are_told_of_a_trace_and_of_a_job(of_a_job: bool) -> None:
    each = tuple(Iteration(name, diagnosed=name == "2", ranks=1, steps=4, step_ns=5 * MS) for name in ("1", "2", "3"))
    job = JobReport((RankReport(0, 0, None, dur_ns=(5 * MS,)),)) if of_a_job else None
    report = replace(samples.replayed(), iterations=Iterations(each, 5 * MS, MS), job=job)
    for verbose in (False, True):
        text = " ".join(render_text(report, verbose=verbose).split())
        assert "3 iterations, 1 to 3, step 5.00 ms in the median; the findings are of 2" in text
        assert "none differs from the others by more than the noise, 1.00 ms" in text


def test_the_rank_of_a_trace_alone_is_not_said_with_its_time() -> None:
    trace = samples.trace(3, meta=samples.meta(rank=3))
    findings = tuple(replace(one, rank=3) for one in samples.findings())
    for verbose in (False, True):
        text = render_text(samples.report(trace, findings=findings), verbose=verbose)
        assert "scheduler-gap (rank 3)" not in text


def test_a_device_is_named_where_findings_could_be_of_another() -> None:
    one = samples.finding(0, device=0)
    two = samples.meta(devices=(samples.meta().devices[0],) * 2)
    assert "scheduler-gap (device 0)\n" in render_text(samples.report(samples.trace(meta=two), findings=(one,)))
    assert "(device" not in render_text(samples.report(samples.trace(meta=two), findings=(replace(one, device=None),)))


def rule(page: str, min_share: float = 0.05) -> Any:
    usual = {"needs": {}, "claims": Claims.WORK, "causes": (), "limits": None, "function": lambda: iter(())}
    return Rule(slug="slow", group="ops", since="0.1", title="", page=page, min_share=min_share, **usual)


def test_items_of_a_rule_s_page_hang_below_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.render.text.explain.limits_of", lambda _: [])
    page = f"It is slow.\nBad: this.\n- one {'word ' * 16}\n- two\n\nThe end,\nand more."
    assert rule_page(rule(page)).splitlines() == [
        "slow  (group ops, added in version 0.1)",
        "",
        "It is slow.",
        "Bad: this.",
        "  - one" + " word" * 14,
        "    word word",
        "  - two",
        "The end, and more.",
        "",
        "Thresholds with their present values:",
        "  min_share=0.05",
        "  What each means: traceanalyzer explain slow --verbose",
        "  To change one, for example: --set slow.min_share=0.1",
    ]


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.05, "a finding is reported only if its cost"), (0.0, "0 means that the cost does not decide")],
)
def test_least_share_is_explained_in_full(share: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.render.text.explain.limits_of", lambda _: [])
    text = " ".join(rule_page(rule("It is slow.", share), verbose=True).split())
    assert f"slow.min_share={share} ({100 * share:.1f} %) {said}" in text.replace("(0 %)", "(0.0 %)")


def test_a_pipe_table_has_its_notes_below_and_no_pipe_in_a_cell() -> None:
    assert to_markdown(("a", "b"), [("x|y", "1")]) == "| a | b |\n| :-- | --: |\n| x\\|y | 1 |\n"
    assert to_markdown(("a",), [], ["note", "more"]) == "| a |\n| :-- |\n\nnote  \nmore  \n"


@pytest.mark.parametrize("idle_ranks", [1, 2])
def test_there_is_something_to_judge_where_one_rank_has_work(idle_ranks: int) -> None:
    traces = tuple(
        samples.trace(rank, accounting=() if rank < idle_ranks else (samples.accounting(),)) for rank in (0, 1)
    )
    first = render_text(samples.report(traces=traces, findings=())).splitlines()[0]
    assert first.endswith("no problem found" if idle_ranks == 1 else "GPU work not judged")


def test_a_saving_comes_on_top_of_those_of_the_same_rank_s_cpu() -> None:
    """Of what has a saving of its own, is no fault of the GPU and not fixed along with another finding."""
    beyond = samples.finding(0, rank=0, saving=replace(samples.saving(), beyond=True))
    counts = samples.finding(0, rank=0, stream=None, saving=samples.saving())
    others = [
        replace(counts, saving=None),
        replace(counts, rank=1),
        replace(counts, stream=7),
        replace(counts, severity=Severity.INFO),
        replace(counts, saving=beyond.saving),
    ]
    traces = tuple(samples.trace(rank, step=samples.estimate()) for rank in (0, 1))
    report = samples.report(traces=traces, findings=(beyond, *others, counts))
    text = " ".join(render_text(report, verbose=True).split())
    assert "saves 9.00 ms a step, in addition to finding 7; recorded" in text


def test_slowest_of_few_communicating_ranks_comes_first() -> None:
    parts = {"compute": 60 * MS, "communication": 40 * MS}
    traces = tuple(
        samples.trace(
            rank,
            step=samples.estimate((9 + rank % 2) * MS),
            accounting=(samples.accounting(parts_ns=parts, idle_causes=()),),
            summary=Verdict(limit=f"V{rank}"),
        )
        for rank in range(3)
    )
    lines = render_text(samples.report(traces=traces, findings=())).splitlines()
    assert [line for line in lines if line.startswith("rank ")] == [
        "rank 1, the slowest:",
        "rank 0, replayed alone:",
        "rank 2, replayed alone:",
    ]
    assert [line[7:] for line in lines if line.startswith("Limit")] == ["V1", "V0", "V2"]
