"""Ranks beside each other: the median of the others, and what each waits in a step of a block of several."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.joint_ranks import rank_of
from traceanalyzer.replay.joint_replay import job_step
from traceanalyzer.replay.peer_comparison import _median_of_others


@pytest.mark.parametrize("ranks", range(2, 8))
def test_a_rank_s_peers_are_all_others_and_not_itself(ranks: int) -> None:
    """Column by column, whatever place it has among them, equal values included."""
    values = np.random.default_rng(ranks).integers(0, 9, (ranks, 20)).astype(float)
    others = np.array([np.median(np.delete(values, at, axis=0), axis=0) for at in range(ranks)])
    assert _median_of_others(values).tolist() == others.tolist()


def test_what_ranks_wait_is_that_of_one_of_the_block_s_steps() -> None:
    """Rank 1 waits 200 ns in the first step and rank 0 150 ns in the second."""
    step = job_step({0: rank_of([300.0, 50.0]), 1: rank_of([100.0, 200.0])}, 2)
    assert step.ns == pytest.approx((300 + 10 + 200 + 10) / 2)
    assert step.waiting_ns == {0: 75.0, 1: 100.0}
    assert step.last == {0: 0.5, 1: 0.5}
