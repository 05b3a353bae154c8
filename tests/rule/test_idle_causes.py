"""Idle time by its causes: what is a start, what happens once, and what held up the device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps

US = 1_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """Four steps of three kernels; the CPU waits before all of them, and twice in the third step, for the kernels."""
    trace = TraceBuilder()
    trace.launch("cudaDeviceSynchronize", 2 * US, 300 * US, 900)
    for number in range(4):
        trace.step(number, number * 1_000 * US, 1_000 * US)
        for which, start in enumerate((400, 600, 800)):
            at, correlation = (number * 1_000 + start) * US, 10 * number + which + 1
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, correlation)
            trace.kernel(at + 8 * US, 100 * US, correlation)
            if number == 2 and which < 2:
                trace.launch("cudaDeviceSynchronize", at + 20 * US, 95 * US, 500 + correlation)
    return Analysis(trace.load())


@pytest.fixture(scope="module")
def idle(analysis: Analysis) -> IdleTime:
    found = analysis.index(IdleTime)
    assert (found.start_ns[:4] // US - found.start_ns[0] // US).tolist() == [0, 2, 302, 508]
    assert found.cause.values().tolist() == [
        "host-code", "unknown", *["host-code"] * 9, *["synchronisation"] * 2, *["host-code"] * 4, "tail",
    ]  # fmt: skip
    return found


def test_unknown_wait_before_all_work_is_a_start(idle: IdleTime) -> None:
    for min_steps in (3, 5):
        start, _ = idle.standing_out(min_steps, 2.0)
        assert np.flatnonzero(start).tolist() == [0, 1, 2]


def test_what_nobody_knows_may_be_of_a_launch(idle: IdleTime) -> None:
    assert idle.for_launches().cause.values().tolist() == idle.cause.values().tolist()


def test_what_comes_twice_in_one_of_the_later_steps_happens_once(idle: IdleTime) -> None:
    """Host code is in all three of them."""
    once = ["unknown", "synchronisation", "synchronisation", "tail"]
    assert idle.happening_once(4).cause.values().tolist() == once
    assert len(idle.happening_once(5)) == len(idle)


def test_device_delays_are_counted_in_time_order_per_step() -> None:
    """Two waits in each of two steps, the second before the first in the file."""
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, number * 1_000 * US, 1_000 * US)
        for which, start in enumerate((600, 400, 800) if number else (400, 600, 800)):
            at, correlation = (number * 1_000 + start) * US, 10 * number + which + 1
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, correlation)
            trace.kernel(at + 8 * US, 100 * US, correlation)
            if start < 800:
                trace.launch("cudaDeviceSynchronize", at + 20 * US, 95 * US, 500 + correlation)
    found = Analysis(trace.load()).index(IdleTime).charged_to("synchronisation")
    first, second, *later = found.held_up_at().tolist()
    assert first != second
    assert later == [first, second]


def test_two_pauses_before_one_op_are_two() -> None:
    """Between them the optimizer steps, whose time is torch's."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, at in enumerate((5, 515), start=1):
        trace.op("aten::mm", at * US, 10 * US)
        trace.launch("cudaLaunchKernel", (at + 2) * US, 4 * US, number)
        trace.kernel((at + 8) * US, 30 * US, number)
    trace.annotation("Optimizer.step#SGD.step", 215 * US, 100 * US)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [200, 200]
    assert found.after.start_ns.tolist() == [found.after.start_ns[0]] * 2
    assert (found.repeated(), found[np.array([0, 1, 1])].repeated()) == (0, 1)


def test_event_wait_only_in_the_first_step_is_no_start() -> None:
    """It was launched in time: the cause says why."""
    trace = TraceBuilder()
    for number in range(6):
        trace.step(number, number * 2_000 * US, 2_000 * US)
    trace.launch("cudaLaunchKernel", 1 * US, 2 * US, 5)
    trace.kernel(4 * US, 2 * US, 5)
    trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, 72 * US, 1)
    trace.launch("cudaStreamWaitEvent", 40 * US, 1 * US, 9)
    trace.launch("cudaLaunchKernel", 60 * US, 5 * US, 2)
    trace.kernel(1_000 * US, 50 * US, 2)
    for number in range(1, 6):
        trace.launch("cudaLaunchKernel", number * 2_000 * US, 5 * US, 10 + number)
        trace.kernel((number * 2_000 + 8) * US, 1_900 * US, 10 + number)
    idle = Analysis(trace.load()).index(IdleTime)
    start, alone = idle.standing_out(3, 2.0)
    waiting = idle.cause.one_of("waiting")
    assert (idle.dur_ns[waiting] // US).tolist() == [900]
    assert not (start | alone)[waiting].any()
