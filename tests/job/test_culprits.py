"""Delays that are planted in built jobs of several ranks: who has them comes first, who is equal is not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity

STEPS = 6


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("times", [1.15, 1.5, 3.0])
def test_the_rank_that_computes_longer_comes_first(ranks: int, times: float, tmp_path: Path) -> None:
    late = ranks // 2
    compute = {rank: (round(2_000 * (times if rank == late else 1)),) * STEPS for rank in range(ranks)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    first = report.findings[0]
    assert (first.rule, first.rank, first.ranks) == ("load-imbalance", late, (late,))
    assert report.job is not None
    assert report.job.culprits == (late,)
    assert report.job.step is not None
    assert report.job.step.unprofiled_ns == pytest.approx((2_000 * times + 120) * 1_000, rel=0.03)


@pytest.mark.parametrize("ranks", [2, 8])
def test_nobody_is_accused_in_a_balanced_job(ranks: int, tmp_path: Path) -> None:
    compute = {rank: (2_000 + 7 * rank,) * STEPS for rank in range(ranks)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert report.job.culprits == ()
    assert not [one for one in report.findings if one.rank is not None and one.severity is Severity.HIGH]


def test_two_of_eight_ranks_hold_up_the_other_six(tmp_path: Path) -> None:
    compute = {rank: ((4_000 if rank in (3, 6) else 2_000),) * STEPS for rank in range(8)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert set(report.job.culprits) == {3, 6}
