"""A rank that computes more than the others, on built and on recorded jobs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from traceanalyzer import Report, diagnose
from traceanalyzer.job.loads import Load
from traceanalyzer.model.finding import Confidence, Severity, Status
from traceanalyzer.rules.communication.load_imbalance import Limits, stands_out

RULE = "load-imbalance"


def of_job(compute_us: Mapping[int, Sequence[int]], folder: Path) -> Report:
    return diagnose(job_of(Reductions(compute_us), folder), select=[RULE])


def test_slowest_rank_saves_what_its_peers_pace_saves(tmp_path: Path) -> None:
    """3 ms against 1 ms in the same kernels on the same grids, and 100 us of transfer."""
    report = of_job({0: (1_000,) * 5, 1: (3_000,) * 5}, tmp_path)
    (found,) = report.findings
    assert (found.rank, found.severity, found.confidence) == (1, Severity.HIGH, Confidence.MEDIUM)
    cost = "rank 1 computes 3.00 ms a step, rank 0 1.00 ms: the same number of kernels takes longer"
    assert found.message == cost
    assert found.saving is not None
    assert found.saving.step_ns == pytest.approx(2_000_000, rel=0.03)
    assert found.cost_per_step_ns == pytest.approx(2_000_000, rel=0.03)
    assert report.job is not None
    assert report.job.culprits == (1,)


def test_of_many_ranks_the_others_are_told_by_their_mean(tmp_path: Path) -> None:
    compute = {0: (900,) * 5, 1: (1_000,) * 5, 2: (1_700,) * 5, 3: (1_100,) * 5}
    (found,) = of_job(compute, tmp_path).findings
    assert found.rank == 2
    assert "rank 2 computes 1.70 ms a step, the other 3 on average 1.00 ms" in found.message
    assert found.evidence["ranks"]["rank 3"] == 1_100_000


@pytest.mark.parametrize(
    "compute_us",
    [
        {0: (1_000,) * 5, 1: (1_035,) * 5},
        {0: (500, 1_500) * 3, 1: (1_500, 500) * 3},
        {0: (900, 500, 800, 700, 600), 1: (600, 1_100, 500, 1_000, 900)},
    ],
    ids=["nearly even", "by turns", "by chance"],
)
def test_even_ranks_are_none(compute_us: Mapping[int, Sequence[int]], tmp_path: Path) -> None:
    report = of_job(compute_us, tmp_path)
    assert report.findings == ()
    assert {outcome.status for outcome in report.outcomes} == {Status.CLEAR}


def test_one_trace_cannot_tell(tmp_path: Path) -> None:
    job = job_of(Reductions({0: (1_000,) * 5, 1: (3_000,) * 5}), tmp_path)
    (outcome,) = diagnose(job[1], select=[RULE]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (Load(1_100, 100), True),  # a tenth more than the usual 1,000
        (Load(1_099, 100), False),
        (Load(1_050, 100, held_ns=25, step_ns=50 / Limits().min_step_share), True),  # both bounds exactly
        (Load(1_050, 100, held_ns=24, step_ns=50 / Limits().min_step_share), False),
        (Load(1_050, 100, held_ns=25, step_ns=1_190), True),  # the others wait for half of it, 4.2 % of the step
        (Load(1_050, 100, held_ns=24, step_ns=1_190), False),
        (Load(1_050, 100, held_ns=25, step_ns=1_191), False),
        (Load(1_100, 200), True),  # waits 100 longer, and computes 100 longer
        (Load(1_100, 201), False),
        (Load(1_100, 100, error_ns=33.3), True),  # three standard errors
        (Load(1_100, 100, error_ns=33.4), False),
    ],
)
def test_slow_rank_computes_more_and_others_wait(own: Load, expected: bool) -> None:
    others = [Load(ns, waiting) for ns, waiting in ((400, 100), (1_000, 700), (5_000, 0))]
    assert stands_out(own, others, Limits()) is expected


def test_error_of_the_mean_shrinks_with_more_ranks() -> None:
    own = Load(1_100, 0)
    assert not stands_out(own, [Load(1_000, 0, error_ns=34)], Limits())
    assert stands_out(own, [Load(1_000, 0, error_ns=34)] * 2, Limits())
