"""What bounds a step, when that is open, and which measured step cannot be of a recording: at either side of limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.replay.run import Bound, Step, _bound
from traceanalyzer.replay.saving import Forecast, _bounds


@pytest.mark.parametrize(
    ("cpu_ns", "gpu_ns", "waits", "communication", "bound"),
    [
        (97.0, 90.0, True, 0.0, "cpu"),
        (96.9, 90.0, True, 0.0, "wait"),
        (96.9, 90.0, False, 0.0, "gpu"),  # nobody waits: the device is what is left
        (98.0, 98.1, True, 0.0, "gpu"),  # busier than the CPU
        (98.0, 98.0, True, 0.0, "cpu"),
        (10.0, 97.0, True, 0.0, "gpu"),
        (10.0, 96.9, True, 0.0, "wait"),
        (10.0, 99.0, True, 0.5, "gpu"),
        (10.0, 99.0, True, 0.51, "communication"),
    ],
)
def test_step_is_bound_by_the_side_that_is_nearly_always_busy(
    cpu_ns: float, gpu_ns: float, waits: bool, communication: float, bound: str
) -> None:
    """Of 100 ns; collectives of another stream, and those that an edit took away, say nothing."""
    dur = np.array([100 * (1 - communication), 100 * communication, 500.0, 900.0])
    edited: Any = SimpleNamespace(
        waits=np.array([False, waits]),
        alive=np.array([True, True, True, False]),
        stream=np.array([1, 1, 0, 1]),
        dur_ns=dur,
        program=SimpleNamespace(work=SimpleNamespace(communication=np.array([False, True, True, True]))),
    )
    block: Any = SimpleNamespace(cpu_ns=cpu_ns, taken_ns=[5.0, gpu_ns])
    assert _bound(edited, block, 100.0) == bound


def steps(*idle: tuple[float, Bound]) -> tuple[Step, Step, Step]:
    first, second, third = (Step(100.0, 0.0, 100.0 * (1 - share), 0.0, bound) for share, bound in idle)
    return first, second, third


@pytest.mark.parametrize(
    ("base", "bounds"),
    [
        (steps((0.2, "cpu"), (0.11, "cpu"), (0.3, "cpu")), ("cpu",)),
        (steps((0.2, "cpu"), (0.09, "gpu"), (0.3, "cpu")), ("gpu", "cpu")),
        (steps((0.0, "gpu"), (0.0, "gpu"), (0.09, "cpu")), ("gpu",)),
        (steps((0.0, "gpu"), (0.0, "gpu"), (0.11, "wait")), ("gpu", "wait")),
        (steps((0.2, "cpu"), (0.0, "communication"), (0.3, "wait")), ("communication", "wait")),
        (steps((0.2, "cpu"), (0.0, "wait"), (0.3, "gpu")), ("gpu", "cpu")),
    ],
)
def test_bound_is_open_if_the_device_idles_at_one_slowdown(
    base: tuple[Step, Step, Step], bounds: tuple[str, ...]
) -> None:
    assert _bounds(base) == bounds


@pytest.mark.parametrize(
    ("given_ms", "why"),
    [
        (11.0, None),
        (11.1, "a step takes only 10.0 ms even with the profiler"),
        (4.5, None),
        (4.4, "the GPU alone is busy for 5.00 ms of each step"),
    ],
)
def test_measured_step_is_at_most_a_tenth_above_the_recorded(given_ms: float, why: str | None) -> None:
    known: Any = SimpleNamespace(
        step=SimpleNamespace(traced_ns=10_000_000), program=SimpleNamespace(least_gpu_ns=5_000_000.0)
    )
    assert Forecast.doubt(known, given_ms) == why
