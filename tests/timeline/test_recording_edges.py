"""The recording's start: what it tells of a device, and from when on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cached_reports import reported_job
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.steps import StepMarks, Steps

US = 1_000
MS = 1_000 * US


def iteration(trace: TraceBuilder, start: int, first: int = 1, count: int = 5) -> None:
    """Kernels of 1 ms, each launched 10 us before it starts."""
    for i in range(count):
        trace.op("aten::mm", start + i * MS - 15 * US, 12 * US)
        trace.launched((start + i * MS - 10 * US, 5 * US), (start + i * MS, MS), first + i)


def head(trace: TraceBuilder) -> dict[str, int]:
    """Cause -> ns, of the time before the first work."""
    idle = Analysis(trace.load()).index(Idle)
    found: dict[str, int] = {}
    for cause, ns in zip(idle.cause[idle.before < 0], idle.dur_ns[idle.before < 0], strict=True):
        found[CAUSES[cause]] = found.get(CAUSES[cause], 0) + int(ns)
    return found


def copy_that_waits(trace: TraceBuilder, start: int, end: int) -> None:
    """A copy to the device that stood behind work from before the recording; the CPU waits for it."""
    trace.op("aten::to", start, end - start + 10 * US)
    trace.launch("cudaMemcpyAsync", start + 5 * US, 20 * US, 100)
    trace.launch("cudaStreamSynchronize", start + 30 * US, end - start - 25 * US, 101)
    trace.memcpy(end - 2 * US, 2 * US, 100, name="Memcpy HtoD (Pageable -> Device)")


def test_queued_copy_marks_where_the_recording_is_complete() -> None:
    trace = TraceBuilder()
    copy_that_waits(trace, 0, 90 * MS)
    iteration(trace, 90 * MS + 50 * US)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.window_start_ns == 90 * MS - 2 * US
    assert head(trace) == {}
    assert "the first 90.0 ms of the recording have no GPU events" in steps.source
    report = diagnose(trace.load())
    assert not [one for one in report.findings if one.rule == "scheduler-gap"]
    (estimate,) = [one.step for one in report.traces]
    assert estimate is not None
    assert estimate.traced_ns < 6 * MS


def test_waiting_synchronisation_proves_a_busy_device() -> None:
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10 * US)
    trace.launch("cudaDeviceSynchronize", 20 * US, 40 * MS, 50)
    iteration(trace, 41 * MS)
    assert Analysis(trace.load()).index(Steps).window_start_ns == 40 * MS + 20 * US
    assert sum(head(trace).values()) == MS - 20 * US


def test_immediate_synchronisation_proves_an_idle_device() -> None:
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10 * US)
    trace.launch("cudaDeviceSynchronize", 20 * US, 8 * US, 50)
    trace.op("aten::normal_", 30 * US, 900 * US)
    iteration(trace, MS)
    assert sum(head(trace).values()) == MS


@pytest.mark.parametrize(("waited_us", "known_us"), [(50, 1_000), (150, 1_150)])
def test_waits_before_the_first_step_do_not_explain_it(waited_us: int, known_us: int) -> None:
    """It began 1 ms before the first step and reaches so far into it: 0.1 ms is no wait."""
    trace = TraceBuilder()
    trace.launch("cudaDeviceSynchronize", 0, MS + waited_us * US, 50)
    trace.step(0, MS, 11 * MS)
    trace.op("aten::normal_", MS + (waited_us + 10) * US, 4_900 * US)
    iteration(trace, 6 * MS)
    assert Analysis(trace.load()).index(StepMarks).known_ns == {0: known_us * US}


def test_nobody_knows_what_happened_while_no_thread_had_a_row() -> None:
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10 * US)
    iteration(trace, 50 * MS)
    assert sum(head(trace).values()) == 15 * US


def test_work_long_after_its_launch_was_queued() -> None:
    """The CPU's launches of meanwhile are the step's."""
    trace = TraceBuilder()
    for i in range(100):
        trace.launched((i * 10 * US, 5 * US), (20 * MS + i * 100 * US, 100 * US), i + 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.window_start_ns == 20 * MS
    assert steps.cpu_start_ns.tolist() == [0]
    assert steps.of_work.tolist() == [0] * 100
    (estimate,) = [one.step for one in diagnose(trace.load()).traces]
    assert estimate is not None
    assert estimate.traced_ns == 10 * MS
    assert estimate.unprofiled_ns == pytest.approx(10 * MS, rel=0.03)


def test_the_first_step_is_taken_to_begin_as_the_later_ones() -> None:
    """Each step loads for 5 ms: that the first does is no edge."""
    trace = TraceBuilder()
    for step in range(4):
        trace.step(step, step * 10 * MS, 10 * MS)
        iteration(trace, step * 10 * MS + 5 * MS, first=1 + 10 * step, count=4)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.window_start_ns == 0
    assert sum(head(trace).values()) == 5 * MS


def test_other_streams_do_not_make_the_device_known() -> None:
    """A small kernel of a side stream, while the main one is still at the iteration before."""
    trace = TraceBuilder()
    trace.launch("hipLaunchKernel", 0, 5 * US, 900)
    trace.kernel(10 * US, 4 * US, 900, stream=2)
    trace.launch("hipLaunchKernel", 50 * US, 5 * US, 901)
    trace.kernel(460 * MS, 6 * US, 901)
    trace.op("aten::copy_", 100 * US, 460 * MS)
    trace.launch("hipMemcpyWithStream", 110 * US, 460 * MS - 50 * US, 902)
    trace.memcpy(460 * MS + 10 * US, 4 * US, 902, name="Memcpy DtoH (Device -> Host)")
    iteration(trace, 460 * MS + 200 * US)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.window_start_ns == 460 * MS
    (estimate,) = [one.step for one in diagnose(trace.load()).traces]
    assert estimate is not None
    assert estimate.traced_ns < 6 * MS


def test_device_recorded_later_is_unknown_before() -> None:
    trace = TraceBuilder()
    iteration(trace, 20 * US)
    trace.launched((30 * US, 5 * US), (3 * MS, MS), 70, device=1)
    marks = Analysis(trace.load()).index(StepMarks)
    assert marks.known_ns == {0: 5 * US, 1: 3 * MS}
    assert head(trace)["not-recorded"] == 3 * MS - 5 * US


def test_unlaunched_work_concerns_only_its_own_device() -> None:
    """The first work of device 0 was launched before the recording, and the CPU launches late to device 1."""
    trace = TraceBuilder()
    trace.kernel(10 * US, 5 * US, 99)
    iteration(trace, 30 * US)
    trace.launched((3 * MS - 10 * US, 5 * US), (3 * MS, MS), 70, device=1)
    marks = Analysis(trace.load()).index(StepMarks)
    assert marks.known_ns == {0: 10 * US, 1: 10 * US}


@pytest.mark.parametrize(
    ("name", "true_ms"),
    [("lightllm_base", 106.8), pytest.param("lightllm_overlap", 108.8, marks=pytest.mark.slow)],
)
def test_an_iteration_of_which_the_one_before_was_still_running(
    name: str, true_ms: float, shared: Callable[[str], Path]
) -> None:
    """The first copy waited 100 ms for the iteration before, whose work was launched before the recording."""
    report = reported_job(shared(f"jobs/{name}/rank0").parent)
    gaps = [one for one in report.findings if one.rule == "scheduler-gap"]
    assert not [one for one in gaps if one.cause in ("waiting", "unknown", "start", "first-use")]
    assert max((one.cost_share for one in gaps), default=0.0) < 0.1  # what launching the graph takes is left
    longest = max(one.step.unprofiled_ns for one in report.traces if one.step is not None)
    assert longest / 1e6 == pytest.approx(true_ms, rel=0.03)


def test_a_read_back_waits_no_longer_than_the_recording_tells() -> None:
    """It waited for 90 ms of work from before the recording, which is nobody's."""
    trace = TraceBuilder()
    trace.op("aten::item", 0, 90 * MS + 10 * US)
    trace.launch("cudaMemcpyAsync", 5 * US, 20 * US, 100)
    trace.launch("cudaStreamSynchronize", 30 * US, 90 * MS - 25 * US, 101)
    trace.memcpy(90 * MS - 2 * US, 2 * US, 100, name="Memcpy DtoH (Device -> Pinned)", size=4)
    iteration(trace, 90 * MS + 150 * US)
    report = diagnose(trace.load())
    (read,) = (one for one in report.findings if one.rule == "implicit-sync")
    assert read.evidence["waited_ns"] < 10 * US


def known_ns(trace: TraceBuilder) -> int:
    """From when on the recording tells of the one device."""
    (known,) = Analysis(trace.load()).index(StepMarks).known_ns.values()
    return known


@pytest.mark.parametrize(("delay_ns", "known"), [(200 * US, 0), (200 * US + 1, 205 * US + 1)])
def test_work_200_us_after_its_launch_was_not_queued(delay_ns: int, known: int) -> None:
    trace = TraceBuilder()
    trace.launched((0, 5 * US), (5 * US + delay_ns, MS), 1)
    assert known_ns(trace) == known


@pytest.mark.parametrize(("quiet_ns", "known"), [(MS, 0), (MS + 1, MS + 10 * US + 1)])
def test_a_millisecond_without_a_row_is_python(quiet_ns: int, known: int) -> None:
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10 * US)
    trace.launched((10 * US + quiet_ns, 5 * US), (20 * US + quiet_ns, MS), 1)
    assert known_ns(trace) == known


@pytest.mark.parametrize(
    ("later_us", "work_us", "known"),
    [
        (2_500, 1_000, 0),  # half of the first step's
        (2_499, 1_000, 5 * MS - 20 * US),
        (5_000, 9_000, 5 * MS - 20 * US),  # of which the device works for 4 ms at the step before
    ],
)
def test_later_steps_with_half_the_idle_head_explain_the_first(
    later_us: int, work_us: int, known: int
) -> None:
    """Each launches once, the first after 5 ms, in which a call waits for work that is not recorded."""
    trace = TraceBuilder()
    trace.launch("cudaDeviceSynchronize", 0, 5 * MS - 20 * US, 99)
    for step in range(4):
        trace.step(step, step * 10 * MS, 10 * MS)
        at = step * 10 * MS + (later_us * US if step else 5 * MS)
        trace.launched((at - 10 * US, 5 * US), (at, work_us * US), step + 1)
    assert known_ns(trace) == known
    assert known_ns(trace.shifted(1_000 * MS)) == known + 1_000 * MS


@pytest.mark.parametrize(("beside_us", "known"), [(999, 100 * MS), (1_000, 0)])
def test_hundredth_on_another_stream_makes_the_device_known(beside_us: int, known: int) -> None:
    trace = TraceBuilder()
    trace.launch("hipLaunchKernel", 0, 5 * US, 1)
    trace.kernel(10 * US, beside_us * US, 1, stream=2)
    trace.launch("hipLaunchKernel", 50 * US, 5 * US, 2)
    trace.kernel(100 * MS, MS, 2)
    trace.op("aten::copy_", 60 * US, 100 * MS)
    assert known_ns(trace) == known


@pytest.mark.parametrize(("second_ms", "known"), [(150, 100 * MS), (100, 0)])
def test_queued_stream_sets_the_edge_in_the_first_step_only(second_ms: int, known: int) -> None:
    """Until 100 ms another stream runs for 4 us; from the second step on the device is known."""
    trace = TraceBuilder()
    trace.step(0, 0, second_ms * MS)
    trace.step(1, second_ms * MS, 50 * MS)
    trace.launch("hipLaunchKernel", 0, 5 * US, 1)
    trace.kernel(10 * US, 4 * US, 1, stream=2)
    trace.launch("hipLaunchKernel", 50 * US, 5 * US, 2)
    trace.kernel(100 * MS, MS, 2)
    trace.op("aten::copy_", 60 * US, 99 * MS)
    iteration(trace, second_ms * MS + 2 * MS, first=3)
    assert known_ns(trace) == known
