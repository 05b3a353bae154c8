"""What stands out in few steps, and which calls recur."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.recurrence import recurring_calls, standing_out
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import StepMarks

US = 1_000


@pytest.mark.parametrize(
    ("spikes", "leading", "alone"),
    [([0], True, True), ([0, 1], True, False), ([2], False, True), ([0, 2], False, False)],
)
def test_the_leading_third_of_seven_steps_is_two(spikes: list[int], leading: bool, alone: bool) -> None:
    ns = np.array([1_000 if step in spikes else 10 for step in range(7)])
    found = standing_out(np.zeros(7, np.int64), np.arange(7), ns, 7, 5.0)
    assert np.flatnonzero(found.leading).tolist() == (spikes if leading else [])
    assert np.flatnonzero(found.alone).tolist() == (spikes if alone else [])


def test_five_times_the_median_does_not_stand_out_yet() -> None:
    for first_ns, expected in ((51, [0]), (50, [])):
        ns = np.array([first_ns, 10, 10, 10])
        found = standing_out(np.zeros(4, np.int64), np.arange(4), ns, 4, 5.0)
        assert np.flatnonzero(found.alone).tolist() == expected


def recurring(trace: TraceBuilder) -> list[bool]:
    """Of the cudaMalloc calls of a trace, which recur."""
    analysis = Analysis(trace.load())
    names = analysis.trace.cpu["name"].astype(str).to_numpy()
    rows = np.flatnonzero(names == "cudaMalloc")
    parts = (analysis.index(kind) for kind in (Nesting, StepMarks, DeviceWork))
    return recurring_calls(analysis.trace, *parts, rows).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("in_steps", "recur"),
    [
        ([0, 1], False),  # the leading third
        ([2], False),  # one of four later steps
        ([2, 4], True),  # half of them
        ([0, 3, 5], True),
    ],
)
def test_calls_recur_that_half_of_the_later_steps_have(in_steps: list[int], recur: bool) -> None:
    trace = TraceBuilder()
    for number in range(6):
        start = number * 1_000 * US
        trace.step(number, start, 1_000 * US)
        if number in in_steps:
            trace.launch("cudaMalloc", start + 10 * US, 50 * US, 90 + number)
        trace.launch("cudaLaunchKernel", start + 100 * US, 5 * US, number + 1)
        trace.kernel(start + 110 * US, 800 * US, number + 1)
    assert recurring(trace) == [recur] * len(in_steps)


def test_without_steps_first_run_of_the_last_kernel_is_start() -> None:
    """What comes before the next launch is in none of the quarters; with it two of them would have an allocation."""
    trace = TraceBuilder()
    for i in range(9):
        if i in (1, 3):
            trace.launch("cudaMalloc", i * 1_000 * US, 50 * US, 100 + i)
        trace.launch("cudaLaunchKernel", (i * 1_000 + 100) * US, 5 * US, i + 1)
        trace.kernel((i * 1_000 + 110) * US, 800 * US, i + 1, name=f"kernel_{min(i, 1)}")
    assert recurring(trace) == [False, False]


@pytest.mark.parametrize(("fresh", "recur"), [(4, True), (40, False)])
def test_without_steps_they_recur_when_the_kernels_have_run_once(fresh: int, recur: bool) -> None:
    """Forty launches, a call before each; `fresh` of the kernels are new, the first ones."""
    trace = TraceBuilder()
    for i in range(40):
        trace.launch("cudaMalloc", i * 1_000 * US, 50 * US, 100 + i)
        trace.launch("cudaLaunchKernel", (i * 1_000 + 100) * US, 5 * US, i + 1)
        trace.kernel((i * 1_000 + 110) * US, 800 * US, i + 1, name=f"kernel_{min(i, fresh)}")
    assert recurring(trace) == [recur] * 40
