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
from traceanalyzer.report.slowest import slowest_of


def head(rank: int, step_ns: int, waiting_ns: int | None) -> TraceReport:
    """One rank that communicates."""
    time = samples.accounting(parts_ns={"compute": 50 * MS, "communication": 50 * MS})
    step = samples.estimate(step_ns)
    return samples.trace(rank, step=step, together=step, waiting_ns=waiting_ns, accounting=(time,))


def saves(rank: int) -> Finding:
    return replace(samples.findings(rank)[0], saving=samples.saving(), severity=Severity.HIGH)


def test_of_ranks_that_take_about_as_long_the_slowest_is_the_one_that_waits_least() -> None:
    first, second = head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 0)
    assert slowest_of([first, second]) is second
    assert slowest_of([replace(first, waiting_ns=None), second]).rank == 0  # type: ignore[union-attr]
    assert slowest_of([first, replace(second, step=samples.estimate(16 * MS))]) is first


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
