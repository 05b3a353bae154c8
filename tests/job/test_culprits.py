"""Delays that are planted in built jobs of several ranks: who has them comes first, who is equal is not accused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.job.ranks import TRANSFER, US, Reductions, job_of
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


def test_culprits_are_named_and_uneven_ranks_have_parts(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("named", "peer"), [((4,), 3), ((4, 2), 3), ((0,), 1), ((3, 1), 0)])
def test_ranks_are_replaced_by_the_median_of_the_others(
    named: tuple[int, ...], peer: int, tmp_path: Path
) -> None:
    """By what each takes alone: 300 us, 500, 700, 900 and 2,000, of ranks 2, 0, 3, 1 and 4."""
    took = {0: 500, 1: 900, 2: 300, 3: 700, 4: 2_000}
    for rank, trace in Reductions({rank: (us,) * 6 for rank, us in took.items()}).traces().items():
        trace.write(tmp_path / f"rank{rank}.json")
    options = [option for rank in named for option in ("--as-peers", rank)]
    report = json.loads(call("diagnose", tmp_path, *options, "--format", "json").stdout)
    (step,) = report["job"]["as_peers"].values()
    assert f"with the program of rank {peer} in place of theirs" in step["basis"]
    longest = max(us for rank, us in took.items() if rank not in named)
    assert step["unprofiled_ns"] == pytest.approx(longest * US + TRANSFER, rel=0.05)
