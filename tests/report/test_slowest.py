"""Which rank sets the pace of a job, and what its fixes leave of the step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.report.diagnosis import left_together
from traceanalyzer.report.job_summary import rank_of, slowest_of


def head(rank: int, step_ns: int, waiting_ns: int | None) -> TraceReport:
    """One rank that communicates."""
    time = samples.accounting(parts_ns={"compute": 50 * MS, "communication": 50 * MS})
    step = samples.estimate(step_ns)
    return samples.trace(rank, step=step, together=step, waiting_ns=waiting_ns, accounting=(time,))


def saves(rank: int) -> Finding:
    return replace(samples.findings(rank)[0], saving=samples.saving(), severity=Severity.HIGH)


def test_near_equal_slowest_rank_waits_least() -> None:
    first, second = head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 0)
    assert slowest_of([first, second]) is second
    assert slowest_of([replace(first, waiting_ns=None), second]).rank == 0  # type: ignore[union-attr]
    assert slowest_of([first, replace(second, step=samples.estimate(16 * MS))]) is first


def test_longest_rank_is_slowest_if_a_wait_is_unmeasured() -> None:
    """That it waits for nothing is not known."""
    every = [head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 3 * MS), head(2, 18_300_000, None)]
    assert slowest_of(every) is every[0]
    assert slowest_of(every[:2]) is every[1]


@pytest.mark.parametrize(("step_ns", "slowest"), [(19_000_000, 1), (18_999_999, 0)])
def test_ranks_are_alike_within_a_twentieth_of_the_longest(step_ns: int, slowest: int) -> None:
    every = [head(0, 20 * MS, 2 * MS), head(1, step_ns, MS)]
    assert slowest_of(every) is every[slowest]
    assert slowest_of(every[::-1]) is every[slowest]


def test_equal_or_separate_ranks_have_no_slowest() -> None:
    first, second = head(0, 20 * MS, 0), head(1, 18 * MS, 0)
    assert slowest_of([first]) is None
    assert slowest_of([first, replace(second, step=first.step)]) is None
    assert slowest_of([first, replace(second, step=None)]) is None
    for parts, known in (
        ({"compute": 100 * MS, "communication": 0}, False),
        ({"compute": 100 * MS}, False),
        ({"compute_over_communication": MS}, True),
    ):
        other = replace(second, accounting=(samples.accounting(parts_ns=parts),))
        assert (slowest_of([first, other]) is first) is known
        assert (slowest_of([other, first]) is first) is known
    unmeasured = [head(rank, ms * MS, None) for rank, ms in enumerate((18, 20, 20))]
    assert slowest_of(unmeasured) is unmeasured[1]


def test_rank_that_is_not_slowest_is_replayed_separately() -> None:
    first, second = head(0, 20 * MS, 0), head(1, 18 * MS, 0)
    assert [rank_of(one, first) for one in (first, second)] == [
        "rank 0, the slowest",
        "rank 1, replayed alone",
    ]
    assert rank_of(second, None) == "rank 1"


def test_fixes_that_are_worth_nothing_bring_the_step_nowhere() -> None:
    one = replace(head(0, 6 * MS, 12 * MS), together=samples.estimate(3 * MS))
    assert left_together(one, [replace(saves(0), severity=Severity.INFO), saves(1)]).together == one.step
    assert left_together(one, [saves(0)]) is one


def test_a_job_is_said_to_wait_for_its_slowest_rank(tmp_path: Path) -> None:
    report = diagnose(job_of(Reductions({0: (1_000,) * 5, 1: (3_000,) * 5}), tmp_path))
    assert [trace.waiting_ns for trace in report.traces] == [pytest.approx(2 * MS), 0]
    together = [trace.step.unprofiled_ns for trace in report.traces if trace.step is not None]
    assert together == pytest.approx([3_120_000, 3_120_000], rel=0.03)
    assert report.job is not None
    assert [rank.alone_ns for rank in report.job.ranks] == pytest.approx([1_120_000, 3_120_000], rel=0.03)
    assert [rank.waiting_ns for rank in report.job.ranks] == [pytest.approx(2 * MS), 0]
    assert [rank.holding_up_ns for rank in report.job.ranks] == [0, pytest.approx(2 * MS)]
    late = [found for found in report.findings if found.cause == "waiting"]
    assert [(found.rank, found.evidence["late"]) for found in late] == [(0, {"rank 1": 10 * MS})]
    assert "this rank computes nothing for 2.00 ms a step, while it waits for rank 1" in late[0].message
    assert "all ranks at once" not in late[0].advice
