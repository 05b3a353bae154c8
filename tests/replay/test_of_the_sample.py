"""Of what the replay takes its means: steps, parts of one, streams and ranks, each of them with another number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay.built import forecast_of, job
from tests.replay.joint_ranks import rank_of
from traceanalyzer.replay.job_saving import Fixes, JobForecast, RankForecast, Side
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.sample import Sample


def sample(steps: int, part: float = 1.0, of_steps: int = 9, left_out: float = 0.0) -> Sample:
    none = np.zeros(steps, np.int64)
    return Sample(np.arange(steps), none, none, part, of_steps, left_out=left_out)


@pytest.mark.parametrize(("steps", "part", "least"), [(1, 1.0, 60), (2, 1.0, 30), (1, 0.5, 120)])
def test_a_step_takes_what_its_busiest_stream_computes(steps: int, part: float, least: float) -> None:
    """60 ns on the first stream, 50 on the second, beside which 99 communicate."""
    work = SimpleNamespace(
        communication=np.array([False, False, True, False]),
        dur_ns=np.array([40.0, 50.0, 99.0, 20.0]),
        stream=np.array([0, 1, 1, 0]),
    )
    program: Any = SimpleNamespace(work=work, sample=sample(steps, part))
    assert Program.least_gpu_ns.fget(program) == least  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (sample(1, of_steps=1), "1 of 1 step"),
        (sample(1), "1 of 9 steps"),
        (sample(1, 0.25), "25 % of a step"),
        (sample(3, left_out=0.249), "3 of 9 steps"),
        (
            sample(3, left_out=0.25),
            "3 of 9 steps; of the time after the first step, 25 % is in steps that are not replayed",
        ),
    ],
)
def test_what_was_replayed_in_words(one: Sample, text: str) -> None:
    assert one.text == text


def test_rank_meets_others_if_any_of_its_work_does() -> None:
    def of(meet: list[int]) -> RankForecast:
        program = SimpleNamespace(sample=sample(1, 0.25), work=SimpleNamespace(meet=np.array(meet)))
        known: Any = SimpleNamespace(program=program, step=None)
        return RankForecast.of(known)

    assert [of(meet).meets for meet in ([-1, 0], [-1, -1], [])] == [True, False, False]
    assert (of([0]).steps, of([0]).text) == (0.25, "25 % of a step")


def test_job_steps_before_and_after_a_fix_divide_alike() -> None:
    """Blocks of four steps: 1,000 ns become 250 ns a step, and where rank 1 is fixed 510 become 127.5."""
    found = job({0: 500.0, 1: 990.0, 2: 400.0}, {1: 100.0}, steps=4.0)
    assert found.base.ns == pytest.approx(250)
    assert found.edited({1: (1,)}).ns == pytest.approx(127.5)
    assert found.as_peers([1]).unprofiled_ns == round(127.5)


def test_the_typical_slowdown_may_be_the_end_of_the_interval() -> None:
    """At the low and at the high slowdown the step is shorter than at the typical one."""
    took = {"typical": 990.0, "low": 890.0, "high": 790.0, "recorded": 1_990.0}

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[side]]) for rank in fixes}

    step = JobForecast.of({rank: forecast_of(rank, 990) for rank in range(2)}, made, [0, 1]).step
    assert step.low_ns < 800
    assert step.high_ns > step.unprofiled_ns == 1_000


def test_peers_are_ranks_that_are_replayed() -> None:
    """Of 18 ranks the last two are not: without the first sixteen nobody is left."""
    found = job({rank: 900.0 - rank for rank in range(18)})
    assert "the program of rank 15 in place" in found.as_peers(list(range(15))).basis


def test_ranks_that_the_job_lacks_leave_their_place_to_others() -> None:
    took = dict.fromkeys(range(17), 500.0)

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[rank]]) for rank in fixes}

    forecasts = {rank: forecast_of(rank, 500) for rank in took}
    found = JobForecast.of(forecasts, made, [99, *range(17)])
    assert sorted(found.blocks) == list(range(16))
