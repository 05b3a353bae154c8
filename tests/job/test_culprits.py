"""Delays that are planted in built jobs of several ranks: who has them comes first, who is equal is not accused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.json import render_json
from traceanalyzer.render.text.report import render_text

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


def test_culprits_are_named_by_number_and_each_uneven_rank_has_its_own_part(tmp_path: Path) -> None:
    took_us = {2: 4_000, 3: 4_300, 6: 4_600, 7: 4_900}  # the costliest first is 7
    compute = {rank: (took_us.get(rank, 2_000),) * STEPS for rank in range(9)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert (report.job.culprits[0], set(report.job.culprits)) == (7, {2, 3, 6, 7})
    assert "for ranks 2, 3, 7 and 1 more" in report.job.verdict
    assert report.job.slowdown is not None
    even_us = sum(took for took, *_ in compute.values()) / len(compute)
    assert report.job.slowdown.s == pytest.approx((4_900 + 100) / (even_us + 100), rel=0.03)
    alone = report.job.slowdown.by_rank
    assert alone[7] > alone[6] > alone[3] > alone[2] > alone[0] == 1.0
    document = json.loads(render_json(report))
    assert document["job"]["slowdown"]["by_rank"]["7"] == alone[7]
    assert "times as long as with even ranks (S)" in render_text(report, verbose=True)
