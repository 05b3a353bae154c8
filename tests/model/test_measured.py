"""Times that the recorder left in a trace: which are taken, and whether those before and after differ."""

from __future__ import annotations

from typing import Any

import pytest

from traceanalyzer.model.step_times import RECORDING, MeasuredStep, measured_step


@pytest.mark.parametrize(
    ("told", "ms", "unit"),
    [
        (
            {"before_ms": [10, 12.0, 20.0], "after_ms": [50.0], "unit": "optimizer step"},
            12.0,
            "optimizer step",
        ),
        ({"before_ms": [], "after_ms": [50.0, 60.0], "unit": "mark"}, 55.0, "mark"),
        ({"before_ms": [10.0], "unit": 7}, 10.0, "step"),
        ({"before_ms": [86_399_999]}, 86_399_999.0, "step"),
        ({"before_ms": [86_400_000]}, None, ""),  # a day
        ({"before_ms": [0, 10.0]}, None, ""),  # one that is none: none is taken
        ({"before_ms": [True]}, None, ""),
        ({"before_ms": [float("inf")]}, None, ""),
        ({"before_ms": ["10"], "after_ms": [11.0]}, 11.0, "step"),
        ({"before_ms": 10.0}, None, ""),
        ({}, None, ""),
        (None, None, ""),
    ],
)
def test_measured_step_is_the_median_before_else_after(told: Any, ms: float | None, unit: str) -> None:
    found = measured_step({RECORDING: told})
    assert (found and found.ms, found and found.unit) == ((ms, unit) if ms else (None, None))


@pytest.mark.parametrize(
    ("before", "after", "differ", "parts"),
    [
        ((), (10.0, 12.0), False, (None, 11.0)),
        ((10.0, 12.0), (), False, (11.0, None)),
        ((100.0,), (102.0,), False, (100.0, 102.0)),  # clocks differ by as much
        ((100.0,), (102.1,), True, (100.0, 102.1)),
        ((102.1,), (100.0,), True, (102.1, 100.0)),
        ((90.0, 100.0), (106.0, 106.0), True, (95.0, 106.0)),
        ((90.0, 100.0), (105.0, 105.0), False, (95.0, 105.0)),  # blocks of one side spread as far
        ((105.0, 105.0), (90.0, 100.0), False, (105.0, 95.0)),
    ],
)
def test_times_before_and_after_differ_by_over_two_percent(
    before: tuple[float, ...],
    after: tuple[float, ...],
    differ: bool,
    parts: tuple[float | None, float | None],
) -> None:
    step = MeasuredStep(100.0, before, after, "step")
    assert (step.differ, step.parts_ms) == (differ, parts)
