"""Loops of backward: which loop recorded their nodes, and whether they run between its repeats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Recorded


def loop(begin_us: int, end_us: int, last_us: int = 0) -> Any:
    """A loop from the one to the other, whose last repeat begins then."""
    at = SimpleNamespace(start_ns=np.array([begin_us, last_us]) * US)
    return SimpleNamespace(at=at, ends_ns=np.array([last_us, end_us]) * US)


def nodes(*at_us: int) -> Any:
    """What another loop recorded: nodes that begin then."""
    return SimpleNamespace(nodes=SimpleNamespace(start_ns=np.array(at_us, np.int64) * US))


def engine(*at_us: int) -> Recorded:
    """All nodes begin then."""
    nothing: Any = SimpleNamespace()
    return Recorded(nothing, np.empty(0, np.int64), np.array(at_us, np.int64) * US)


@pytest.mark.parametrize(
    ("others", "which"),
    [
        ([nodes(100, 110, 120, 130)], 0),
        ([nodes(100, 110, 120)], 0),  # three of four
        ([nodes(100, 110)], -1),
        ([nodes(100), nodes(110, 120, 130)], 1),
        ([nodes(10, 20, 30, 40), nodes(100, 110, 120)], 1),  # before the loop
        ([nodes(200, 210, 220, 230), nodes(100, 110, 120)], 1),  # after it
        ([nodes(10, 20, 30)], -1),
        ([nodes(140, 150, 160)], -1),
        ([nodes()], -1),
        ([], -1),
    ],
)
def test_node_loop_belongs_to_the_loop_that_recorded_it(others: list[Any], which: int) -> None:
    """Four nodes run from 100 us until 140 us, and others before and after."""
    recorded = engine(10, 20, 30, 40, 100, 110, 120, 130, 140, 150, 160, 200, 210, 220, 230)
    assert recorded.forward_of(loop(100, 140, 130), others) == which


@pytest.mark.parametrize(
    ("at_us", "between"), [(99, False), (100, True), (129, True), (130, False), (139, False)]
)
def test_backward_runs_between_repeats_until_the_last_one_begins(at_us: int, between: bool) -> None:
    """Repeats begin at 100 us and at 130 us."""
    assert engine(at_us).runs_between(np.array([100, 130]) * US) is between
