"""What fixes on some ranks save the whole job: blocks of single ranks, replayed together, with planted times."""

from __future__ import annotations

import math

import pytest

from tests.replay.built import SLOWER, forecast_of, job
from tests.replay.joint_ranks import rank_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.calibration import STEP_RESIDUAL
from traceanalyzer.replay.job_saving import MOST_TOGETHER, Fixes, JobForecast, RankForecast, Side
from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.run import LEAST

JOB = {0: 500.0, 1: 990.0, 2: 400.0}


def test_job_step_is_that_of_the_awaited_rank() -> None:
    """At the least slowdown 1,020 ns and at the most 970 ns, each with the step's own error."""
    found = job(JOB)
    step = found.step
    assert (step.unprofiled_ns, step.traced_ns, step.bound) == (1_000, 2_002, "bound of 1")
    assert step.basis == "3 ranks replayed together: text of 1"
    assert step.low_ns == round(970 * (1 - STEP_RESIDUAL))
    assert step.high_ns == round(1_020 * (1 + STEP_RESIDUAL))
    own = found.of_rank(2)
    assert (own.unprofiled_ns, own.traced_ns, own.gpu_ns, own.gap_ns) == (1_000, 2_002, 20, 2)


def test_timed_job_step_has_no_interval() -> None:
    step = job({0: 1_000.0, 1: 1_000.0}, measured=True).step
    assert (step.low_ns, step.unprofiled_ns, step.high_ns, step.traced_ns) == (1_000, 1_000, 1_000, 2_001)
    assert step.basis == "alone"


def test_fixes_of_a_rank_that_nobody_waits_for_save_nothing() -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    assert found.edited({0: (1,), 2: (3,)}).ns == pytest.approx(1_000)
    assert found.edited({1: (1,)}).ns == pytest.approx(510)  # then the others wait for rank 0
    assert found.edited({0: (1,), 1: (1,)}).ns == pytest.approx(410)
    assert found.edited({1: (), 7: (1,)}) is found.base  # nothing is fixed, or of a rank that is not replayed


@pytest.mark.parametrize(("alone_share", "beyond"), [(0.5, False), (0.02, True)])
def test_job_saving_is_as_wide_as_the_ranks(alone_share: float, beyond: bool) -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    alone = Saving(1, 1, 1, alone_share, alone_share - 0.1, alone_share + 0.2, "", beyond)
    said = found.saving({1: (1,)}, alone)
    scale = min(math.sqrt(0.49 * 0.51 / (alone_share * (1 - alone_share))), 1.0)
    assert said.share == pytest.approx(0.49)
    assert (said.low_share, said.high_share) == (
        pytest.approx(0.49 - 0.1 * scale),
        pytest.approx(0.49 + 0.2 * scale),
    )
    assert (said.step_ns, said.low_ns, said.high_ns) == tuple(
        round(1_000 * share) for share in (said.share, said.low_share, said.high_share)
    )
    assert said.beyond is beyond
    assert said.basis == "all 3 ranks replayed together without it"
    none = found.saving({0: (1,)}, alone)
    assert (none.share, none.low_share, none.high_share) == (0.0, -LEAST, LEAST)


def test_a_step_with_all_fixed_keeps_the_interval_in_proportion() -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    fixed = found.fixed({1: (1,)})
    assert fixed.basis == "all 3 ranks replayed together with all findings fixed"
    assert (fixed.unprofiled_ns, fixed.low_ns, fixed.high_ns) == (
        510,
        round(found.step.low_ns * 0.51),
        round(found.step.high_ns * 0.51),
    )


def test_late_ranks_would_run_the_median_program() -> None:
    found = job({0: 500.0, 1: 990.0, 2: 400.0, 3: 450.0, 4: 800.0})
    assert found.as_peers([1]).unprofiled_ns == 810  # rank 4 is late still
    both = found.as_peers([1, 4])
    assert both.unprofiled_ns == 510
    assert both.basis.endswith("replayed together, with the program of rank 3 in place of theirs")
    assert found.as_peers([0, 1, 4]).basis.endswith(
        "with the program of rank 3 in place of theirs"
    )  # of two the later
    with pytest.raises(Unavailable, match="keep some as peers"):
        found.as_peers(list(range(5)))


def test_most_awaited_of_many_ranks_are_replayed() -> None:
    times = {rank: 900.0 - rank for rank in range(MOST_TOGETHER + 2)}
    found = job(times)
    assert sorted(found.blocks) == list(range(MOST_TOGETHER))
    said = f"the {MOST_TOGETHER} most awaited of {MOST_TOGETHER + 2} ranks"
    assert found.step.basis.startswith(f"{said} replayed together: ")
    assert found.fixed({0: (1,)}).basis.startswith(said)
    assert found.step.traced_ns == 2_000 + MOST_TOGETHER + 1  # of all ranks


def test_ranks_that_never_meet_are_no_job() -> None:
    def refused(*ranks: RankForecast) -> str:
        with pytest.raises(Unavailable) as error:
            JobForecast.of(dict(enumerate(ranks)), lambda fixes, side: {}, [0, 1])
        return str(error.value)

    assert "no steps that all ranks have" in refused(forecast_of(0, 500))
    assert "no steps that all ranks have" in refused(forecast_of(0, 500), forecast_of(1, 500, steps=2.0))
    assert "without a collective" in refused(forecast_of(0, 500), forecast_of(1, 500, meets=False))


@pytest.mark.parametrize("timed", [1, 2])
def test_untimed_pacing_rank_gives_the_step_an_interval(
    timed: int,
) -> None:
    """Rank 0 sets the pace: 1,000 ns, 1,020 at the least slowdown and 970 at the most."""
    took = {0: 990.0, 1: 400.0, 2: 500.0}

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[rank] + SLOWER[side]]) for rank in fixes}

    forecasts = {rank: forecast_of(rank, round(ns), measured=rank >= timed) for rank, ns in took.items()}
    step = JobForecast.of(forecasts, made, list(took)).step
    assert (step.low_ns, step.unprofiled_ns, step.high_ns) == (
        round(970 * (1 - STEP_RESIDUAL)),
        1_000,
        round(1_020 * (1 + STEP_RESIDUAL)),
    )


def test_each_rank_has_its_recorded_and_the_jobs_step() -> None:
    found = job(JOB)
    steps = [found.of_rank(rank) for rank in JOB]
    assert [(one.traced_ns, one.gpu_ns, one.gap_ns) for one in steps] == [
        (2_000, 0, 0),
        (2_001, 10, 1),
        (2_002, 20, 2),
    ]
    assert [one.unprofiled_ns for one in steps] == [1_000] * 3


def test_what_no_replay_of_the_recording_has_stays() -> None:
    """Recorded are 2,001 ns, of which the ranks replayed as recorded take 1,010: the rest stays whatever is fixed."""

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([200.0 if done else 1_000.0]) for rank, done in fixes.items()}

    known = JobForecast.of({rank: forecast_of(rank, 1_010) for rank in (0, 1)}, made, [0, 1])
    assert known.lacking_ns == known.step.unexplained_ns == 2_001 - 1_010
    assert known.step.unprofiled_ns == 2_001
    assert known.step.low_ns < 1_010
    alone = Saving(0, 0, 0, 0.5, 0.4, 0.6, "alone")
    assert known.saving({0: (0,), 1: (0,)}, alone).share == pytest.approx(800 / 2_001)
