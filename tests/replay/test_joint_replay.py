"""Ranks replayed together: a collective ends when the last one has come."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.joint_ranks import rank_of
from traceanalyzer.replay.joint_replay import job_step
from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.schedule import Schedule


def rank(compute: float, transfer: float, meet: int = 7, *, collectives: int = 1) -> Block:
    """A step: one kernel, then collectives, all on one stream; the CPU takes 1 ns and waits for the device."""
    size = 1 + collectives
    none = np.empty(0, np.int64)
    meets = np.array([-1, *(meet + at for at in range(collectives))])
    schedule = Schedule(
        1.0, np.zeros(size), np.zeros(size, np.int64), np.array([compute, *[transfer] * collectives]),
        np.zeros(size), np.zeros(size), np.array([size]), np.array([1.0]), np.zeros(1), np.ones((1, 1), bool),
        none, none, 1, meets,
    )  # fmt: skip
    return Block.of(schedule, meeting=True)


def test_a_job_takes_as_long_as_its_slowest_rank() -> None:
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 10.0), 2: rank(150.0, 10.0)}, 1)
    assert step.ns == pytest.approx(310.0)
    assert step.waiting_ns == pytest.approx({0: 200.0, 1: 0.0, 2: 150.0}, abs=1)
    assert step.last == {0: 0.0, 1: 1.0, 2: 0.0}


def test_ranks_that_are_slow_in_turn_add_up() -> None:
    """Rank 0 is late to the first collective, rank 1 to the second: neither alone takes as long as both together."""
    first = rank_of([300.0, 50.0])
    second = rank_of([100.0, 200.0])
    assert job_step({0: first, 1: second}, 1).ns == pytest.approx(300 + 10 + 200 + 10)


def test_a_rank_without_collectives_waits_for_nobody() -> None:
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 10.0, meet=-8)}, 1)
    assert step.waiting_ns == {0: 0.0, 1: 0.0}


def test_collectives_in_another_order_end_the_replay_too() -> None:
    """Two ranks that launch two collectives the other way round, as two groups on one stream would hang."""
    one, other = rank(10.0, 5.0, meet=3, collectives=2), rank(10.0, 5.0, meet=3, collectives=2)
    swapped = [other.stretches[at] for at in range(len(other.stretches))]
    meets = [at for at, stretch in enumerate(swapped) if stretch.meet >= 0]
    assert len(meets) == 2
    turned = rank_of([10.0, 0.0])
    assert job_step({0: one, 1: turned}, 1).ns > 0


def test_collective_takes_its_ranks_time_once_all_arrive() -> None:
    """They come at 100 and 300 ns; on one it takes 10, on the other 30, which begins the next of 13 steps later."""
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 30.0)}, 1)
    assert step.waiting_ns == pytest.approx({0: (200 + 12 * 220) / 13, 1: 0.0}, abs=0.1)
    assert step.ns == pytest.approx(330.0)


def test_waiting_on_a_collective_waits_for_all_ranks() -> None:
    """A kernel of 300 ns on the rank that comes first, at 100 ns, and of 5 on the one that comes at 300: the first step
    of the one ends at 610, so that in all later ones of 13 the other waits for it: 710 - 615."""

    def beside(compute: float, after: float) -> Block:
        zeros = np.zeros(3)
        schedule = Schedule(
            1.0, zeros, np.array([0, 0, 1]), np.array([compute, 10.0, after]), zeros, zeros, np.array([3]),
            np.array([1.0]), np.zeros(1), np.ones((1, 2), bool), np.array([2]), np.array([1]), 2, np.array([-1, 0, -1]),
        )  # fmt: skip
        return Block.of(schedule, meeting=True)

    step = job_step({0: beside(100.0, 300.0), 1: beside(300.0, 5.0)}, 1)
    assert step.ns == pytest.approx(410)
    assert step.waiting_ns == pytest.approx({0: 200 / 13, 1: 12 * 95 / 13}, abs=0.1)
    assert step.last == pytest.approx({0: 12 / 13, 1: 1 / 13})


def test_ranks_wait_for_those_of_their_own_group_only() -> None:
    """Two groups of two, whose collectives end at 300 + 10 and at 50 + 10 ns."""
    groups = {0: (100.0, 0), 1: (300.0, 0), 2: (10.0, 1), 3: (50.0, 1)}
    step = job_step({one: rank_of([compute], meet) for one, (compute, meet) in groups.items()}, 1)
    assert step.ns == pytest.approx(310)
    assert step.waiting_ns == pytest.approx({0: 200, 1: 0, 2: 40, 3: 0}, abs=1)
    assert step.last == {0: 0.0, 1: 0.5, 2: 0.0, 3: 0.5}


def test_first_rank_waits_until_its_partner_is_free() -> None:
    """As in a pipeline: rank 1 meets rank 0 at 300 ns, and rank 2, which comes at 10, only at 300 + 10 + 50. From the
    second of 13 steps on rank 0 begins 60 ns before rank 1, and so waits 260 instead of 200.
    """
    step = job_step({0: rank_of([100.0]), 1: rank_of([300.0, 50.0]), 2: rank_of([10.0], first=1)}, 1)
    assert step.ns == pytest.approx(300 + 10 + 50 + 10)
    assert step.waiting_ns == pytest.approx({0: (200 + 12 * 260) / 13, 1: 0, 2: 350}, abs=1)
    assert step.last == {0: 0.0, 1: 1.0, 2: 0.0}
