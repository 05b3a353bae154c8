"""Which steps stand for the program: waits for data are the program's, what else kept the host busy is not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.sample import _left_out, _undisturbed, _usual
from traceanalyzer.replay.saving import Forecast

US = 1_000
MS = 1_000 * US
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def training(*, slow: set[int], loading: bool) -> TraceBuilder:
    """Ten steps of 120 ops; the slow ones wait 30 ms for data that 400 ops make, or run every op four times longer."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(10):
        begun = at
        waits = step in slow and loading
        inside = 400 if waits else 4
        each = 75 * US if waits else 20 * US
        trace.annotation(LOADER, at, inside * each + 5 * US)
        for i in range(inside):
            trace.op("aten::stack", at + i * each, each - 5 * US)
        at += inside * each + 10 * US
        pace = 4 if step in slow and not loading else 1
        for _ in range(120):
            number += 1
            trace.op("aten::mm", at, 25 * US * pace)
            trace.launch("cudaLaunchKernel", at + 10 * US * pace, 5 * US * pace, number)
            trace.kernel(at + 18 * US * pace, 10 * US, number)
            at += 30 * US * pace
        trace.step(step, begun, at - begun)
    return trace


def forecast(trace: TraceBuilder) -> Forecast:
    return Analysis(trace.load()).index(Forecast)


@pytest.mark.parametrize("slow", [{2, 3, 4, 5, 6, 7, 8}, {1, 4, 7}])
def test_steps_that_wait_for_data_are_the_program(slow: set[int]) -> None:
    """Most of them, or every third."""
    sample = forecast(training(slow=slow, loading=True)).program.sample
    assert sample.steps.tolist() == list(range(1, 10))
    assert not sample.disturbed


def test_a_rare_slow_step_is_left_out_and_named() -> None:
    """29.9 ms longer than the others: the wait for data of 30 ms in place of 85 us."""
    known = forecast(training(slow={5}, loading=True))
    assert known.program.sample.steps.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    slow = known.step.slow
    assert slow is not None
    assert (slow.count, slow.of, slow.name) == (1, 10, "aten::stack") or slow.name is None
    report = diagnose(training(slow={5}, loading=True).load())
    assert "; 1 of 10 steps takes 29.9 ms longer" in report.traces[0].summary.step


def test_steps_with_a_busy_host_are_left_out_and_counted() -> None:
    made = forecast(training(slow={3, 4, 5, 6, 7}, loading=False))
    sample = made.program.sample
    assert set(sample.steps.tolist()) <= {0, 1, 2, 8, 9}
    assert sample.disturbed
    assert sample.left_out == pytest.approx(0.8, abs=0.05)
    share = f"{100 * sample.left_out:.0f} %"
    assert f"of the time after the first step, {share} is in steps that are not replayed" in made.step.basis
    said = diagnose(training(slow={3, 4, 5, 6, 7}, loading=False).load()).traces[0].summary.step
    assert said.endswith("; 5 of 10 steps, with 80 % of the recorded time, are left out")


def test_of_two_steps_the_much_longer_one_is_left_out() -> None:
    """A recording ends in a step that is long; their median would be between them."""
    trace, at, number = TraceBuilder(), 0, 0
    for step, pause in enumerate((0, 0, 9 * MS)):
        begun = at
        for _ in range(120):
            number += 1
            trace.op("aten::mm", at, 25 * US)
            trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, number)
            trace.kernel(at + 18 * US, 10 * US, number)
            at += 30 * US
        at += pause
        trace.step(step, begun, at - begun)
    assert forecast(trace).program.sample.steps.tolist() == [1]


@pytest.mark.parametrize(("before", "slow", "first"), [(False, False, 1), (True, False, 0), (True, True, 1)])
def test_first_step_counts_if_recording_began_within_another(before: bool, slow: bool, first: int) -> None:
    """What a cold start takes, the step before has taken; a first step that is slow all the same does not count."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(-1 if before else 0, 4):
        begun = at
        for _ in range(120):
            number += 1
            trace.op("aten::mm", at, 25 * US)
            trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, number)
            trace.kernel(at + 18 * US, 10 * US, number)
            at += 60 * US if slow and step == 0 else 30 * US
        if step >= 0:
            trace.step(step, begun, at - begun)
    assert forecast(trace).program.sample.steps.tolist() == list(range(first, 4))


def test_the_loader_comes_first_where_most_steps_wait_for_it() -> None:
    report = diagnose(training(slow={2, 3, 4, 5, 6, 7, 8}, loading=True).load())
    assert report.findings[0].rule == "dataloader-stall"


def test_no_step_takes_longer_without_the_profiler() -> None:
    """The CPU's time is the device's and the waits', which no recording stretches."""
    for trace in (training(slow=set(), loading=True), training(slow={4}, loading=False)):
        step = forecast(trace).step
        assert step.unprofiled_ns <= step.traced_ns


@pytest.mark.parametrize(
    ("dur", "warm", "usual"),
    [
        ([10, 10, 10, 10], False, [1, 2, 3]),
        ([10, 10, 10, 10], True, [0, 1, 2, 3]),
        ([16, 10, 10, 10], True, [0, 1, 2, 3]),
        ([17, 10, 10, 10], True, [1, 2, 3]),
        ([10, 0, 10, 10], False, [2, 3]),  # an empty one
        ([0, 10, 10, 10], False, [1, 2, 3]),  # the first of all is none of these
        ([0, 0], False, [0]),
        ([10], False, [0]),
        ([10, *[10] * 7, 17, 17, 17], False, list(range(1, 8))),
        ([10, 10, 17, 10, 10, 17, 10], False, list(range(1, 7))),  # every third is slow: that is the program
        ([10, 10, 17, 10, 10, 17, 10, 10, 10], False, [1, 3, 4, 6, 7, 8]),
        ([10, *[10] * 7, 16, 16], False, list(range(1, 10))),
    ],
)
def test_usual_steps_are_neither_empty_nor_cold_nor_hiccups(
    dur: list[int], warm: bool, usual: list[int]
) -> None:
    none = np.zeros(len(dur), bool)
    assert _usual([np.array(dur)], none, warm=warm)[0].tolist() == usual
    captured = none.copy()
    captured[-1:] = len(dur) > 1
    assert len(dur) - 1 not in _usual([np.array(dur)], captured, warm=warm)[0][1:]


def test_a_step_that_is_slow_on_the_device_alone_is_a_hiccup() -> None:
    times = [np.array([10, 10, 11, 15, 10]), np.array([90, 90, 90, 166, 90])]
    usual, slow = _usual(times, np.zeros(5, bool), warm=False)
    assert (usual.tolist(), slow.tolist()) == ([1, 2, 4], [3])


@pytest.mark.parametrize(
    ("pace", "rows", "kept"),
    [
        ([30, 10, 20, 10], [100, 100, 100, 100], [1, 2, 3]),  # twice as slow is the program
        ([30, 10, 20.1, 10], [100, 100, 100, 100], [1, 3]),
        ([11, 10, 20.1, 10], [100, 100, 100, 100], [0, 1, 3]),  # the first, too, as it is as quick
        ([11, 10, 20.1, 10], [97, 100, 100, 100], [1, 3]),  # unless it does something else
        ([30, 10, 50, 10], [100, 100, 102, 102], [1, 3]),
        ([30, 10, 50, 10], [100, 100, 103, 100], [1, 2, 3]),  # another step does more
        ([30, 0, 50, 10], [100, 100, 100, 100], [1, 2, 3]),  # of too few rows to tell
    ],
)
def test_steps_doing_the_same_twice_as_slowly_are_disturbed(
    pace: list[float], rows: list[int], kept: list[int]
) -> None:
    usable = np.arange(1, len(pace))
    found = _undisturbed(usable, np.array(pace, float), np.array(rows))
    assert found.tolist() == kept
    assert (found is usable) == (kept == usable.tolist())


def test_left_out_share_is_of_later_steps_without_capture() -> None:
    dur, capturing = np.array([90, 10, 20, 70, 50]), np.array([False, False, False, False, True])
    assert _left_out(dur, np.array([0, 1, 2]), capturing) == pytest.approx(0.7)
    assert _left_out(dur, np.array([0, 1, 2, 3]), capturing) == 0.0
    assert _left_out(dur[:1], np.array([0]), capturing[:1]) == 0.0
