"""The first lines of a job's report: the longest step, for whom the others wait, and what the fixes give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import RankReport, Verdict
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.report.job_summary import _summary, culprits_of

STEP = samples.estimate(bound="gpu")


def ranks(count: int, holds_ms: dict[int, float] | None = None, alone_ms: float = 10) -> list[RankReport]:
    """Ranks with steps of 19, 20, 21 ... ms, the first of which takes 90; of some, what the others wait for them."""
    held = holds_ms or {}
    whole = max(sum(held.values()), 1)
    return [
        RankReport(
            rank,
            0,
            None,
            dur_ns=(90 * MS, (19 + rank) * MS, (19 + rank) * MS),
            holding_up_ns=round(held.get(rank, 0) * MS),
            last_share=held.get(rank, 0) / whole,
            alone_ns=round((18 if rank in held else alone_ms) * MS),
            predicted_waiting_ns=0 if rank in held else MS,
        )
        for rank in range(count)
    ]


def lines(
    of: Sequence[RankReport],
    *,
    step: StepEstimate | None = STEP,
    together: StepEstimate | None = None,
    culprits: Sequence[int] = (),
    findings: Sequence[Finding] = (),
) -> Verdict:
    return _summary(samples.trace(0), of, step, together, culprits, findings)


@pytest.mark.parametrize(
    ("culprits", "words"),
    [
        ((3,), "the other ranks wait 2.00 ms a step for rank 3"),
        ((3, 1), "the other ranks wait 3.00 ms a step for ranks 1 and 3"),
        ((5, 3, 1), "the other ranks wait 3.00 ms a step for ranks 1, 3 and 5"),
        ((5, 3, 2, 1), "the other ranks wait 3.00 ms a step for ranks 2, 3, 5 and 1 more"),
        ((2,), "the other ranks wait for rank 2"),
    ],
)
def test_ranks_that_the_others_wait_for_are_named(culprits: tuple[int, ...], words: str) -> None:
    """The three that cost most, and the longest of their waits."""
    made = [replace(one, alone_ns=10 * MS) for one in ranks(8, {1: 3, 2: 0, 3: 2, 5: 1})]
    assert lines(made, culprits=culprits).limit == f"rank 1 is the slowest, limited by its GPU; {words}"
    assert lines(made, culprits=culprits, step=None).limit == words


@pytest.mark.parametrize(("alone_ms", "said"), [(16.0, False), (16.01, True)])
def test_wait_with_little_saving_shows_what_others_take(alone_ms: float, said: bool) -> None:
    """Of a step of 18 ms they wait 4: half of that is saved, or less."""
    limit = lines(ranks(3, {1: 4}, alone_ms), culprits=[1]).limit
    assert ("; without this wait they would still take up to 16.0 ms" in limit) is said


def test_culprit_time_differs_from_the_others_time() -> None:
    assert "without this wait" not in lines(ranks(3, {1: 4, 2: 4}, 12), culprits=[1, 2]).limit


@pytest.mark.parametrize(
    ("count", "holds_ms", "words"),
    [
        (2, {1: 3.0}, "rank 0 waits 3.00 ms a step for rank 1; both do"),
        (3, {1: 3.0}, "the other ranks wait 3.00 ms a step for rank 1; all do"),
        (3, {1: 3.0, 2: 2.0}, "the other ranks wait 3.00 ms a step for rank 1; all do"),
        (3, {1: 3.0, 2: 2.1}, None),
        (3, {1: 0.63}, "the other ranks wait 630 µs a step for rank 1; all do"),
        (3, {1: 0.629}, None),
    ],
)
def test_unexplained_wait_is_shown_if_one_ranks_and_large(
    count: int, holds_ms: dict[int, float], words: str | None
) -> None:
    """From 60 % of all waiting on, and 3 % of the longest step, 21 ms of three ranks."""
    limit = lines(ranks(count, holds_ms)).limit
    if words is None:
        assert limit == "the GPU of each rank; no single rank holds up the others"
    else:
        told = f"in the recording, {words} the same work, so do not trust this wait"
        assert f"rank 1 is the slowest, limited by its GPU; {told}" in limit


def test_the_recorded_step_is_the_longest_median_of_the_ranks() -> None:
    made = ranks(3)
    assert lines(made).step == "21.0 ms recorded, 18.0 ms predicted without the profiler (17.0 to 19.0 ms)"
    assert lines(made, step=None).step == "21.0 ms recorded"
    measured = replace(STEP, low_ns=18 * MS, high_ns=18 * MS)
    assert (
        lines(made, step=measured).step
        == "21.0 ms recorded, 18.0 ms without the profiler, as you measured it"
    )
    bare = [replace(one, dur_ns=()) for one in made]
    assert lines(bare).step.startswith("25.0 ms recorded, ")
    assert lines(bare, step=None).step == ""


def graded(*severities: Severity, **changes: float) -> list[Finding]:
    saving = replace(samples.saving(), **changes)
    return [replace(samples.findings(0)[0], severity=one, saving=saving) for one in severities]


HIGH, INFO = Severity.HIGH, Severity.INFO


@pytest.mark.parametrize(
    ("severities", "together_us", "fix"),
    [
        ((HIGH,), 9_000, "finding 1 (scheduler-gap): a step takes about 9.00 instead of 18.0 ms"),
        ((INFO, HIGH), 9_000, "finding 2 (scheduler-gap): a step takes about 9.00 instead of 18.0 ms"),
        (
            (HIGH, INFO, HIGH),
            9_000,
            "finding 1 (scheduler-gap) first; with 1 and 3 fixed: a step takes about 9.00 instead of 18.0 ms",
        ),
        ((HIGH,), 17_910, "finding 1 (scheduler-gap): a step takes about 17.9 instead of 18.0 ms"),
        ((HIGH,), 17_911, "finding 1 (scheduler-gap)"),
        ((HIGH, HIGH), None, "finding 1 (scheduler-gap) first"),
    ],
)
def test_fix_saving_is_shown_above_zero(
    severities: tuple[Severity, ...], together_us: int | None, fix: str
) -> None:
    together = None if together_us is None else samples.estimate(1_000 * together_us)
    assert lines(ranks(2), together=together, findings=graded(*severities)).fix == fix


@pytest.mark.parametrize(("high", "said"), [(0.05, True), (0.0499, False)])
def test_where_nothing_is_certain_what_may_save_most_is_named(high: float, said: bool) -> None:
    found = [*graded(INFO, high_share=0.01), *graded(INFO, INFO, high_share=high)]
    fix = lines(ranks(2), findings=found).fix
    assert fix == (
        "no certain saving; finding 2 (scheduler-gap) may save something"
        if said
        else "nothing found that needs a fix"
    )
    assert lines(ranks(2)).fix == "nothing found that needs a fix"


def test_culprits_are_of_findings_that_compare_ranks_each_once() -> None:
    late = replace(samples.findings(3)[0], rule="straggler", ranks=(3, 5), severity=HIGH)
    found = [
        late,
        replace(late, rank=1, ranks=(1, 3)),
        replace(late, rank=7, ranks=(7,), severity=INFO),
        replace(late, rank=8, ranks=(8,), rule="host-gap"),
        replace(late, rank=None, ranks=(9,)),
    ]
    assert culprits_of(found) == (3, 5, 1)
