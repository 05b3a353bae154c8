"""Edges of the recording, of marks and of steps, and to whom time there belongs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.cached_reports import reported_job
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.cpu_gaps import CpuGaps
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels
from traceanalyzer.timeline.steps import StepMarks, Steps, steps_that_capture
from traceanalyzer.timeline.synchronisation import SyncCalls

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
    ("name", "true_ms"), [("lightllm_base", 106.8), pytest.param("lightllm_overlap", 108.8, marks=pytest.mark.slow)]
)
def test_iteration_after_a_running_one(name: str, true_ms: float, shared: Callable[[str], Path]) -> None:
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
def test_later_steps_with_half_the_head_explain_the_first(later_us: int, work_us: int, known: int) -> None:
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


def launched(trace: TraceBuilder, at: int, start: int, dur: int, number: int, stream: int = 7) -> None:
    trace.launched((at, 5), (start, dur), number, stream=stream)


def steps_of(trace: TraceBuilder) -> Steps:
    return Analysis(trace.load()).index(Steps)


def test_work_of_an_earlier_step_belongs_to_no_step() -> None:
    """The first step begins at its mark, though the window begins with that work."""
    trace = TraceBuilder()
    launched(trace, 100, 200, 100, 9)
    for number in range(2):
        trace.step(number, 1_000 * (number + 1), 1_000)
        launched(trace, 1_000 * (number + 1) + 50, 1_000 * (number + 1) + 100, 500, number + 1)
    steps = steps_of(trace)
    assert steps.bounds_ns[0].tolist() == [1_000, 2_000, 3_000]
    assert (steps.window_start_ns, steps.warm) == (200, True)


def test_unlinked_work_before_the_first_mark_is_no_step() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 100, 9)
    trace.step(0, 1_000, 1_000)
    launched(trace, 1_050, 1_100, 500, 1)
    assert not steps_of(trace).warm


def test_step_begins_after_work_of_earlier_steps() -> None:
    """The first step's long kernel is still running when the second's has ended."""
    trace = TraceBuilder()
    for number, (dur, stream) in enumerate(((4_900, 7), (300, 20), (1_000, 7))):
        trace.step(number, 1_000 * number, 1_000)
        start = 1_000 * number + 100 if number < 2 else 5_100
        launched(trace, 1_000 * number + 50, start, dur, number + 1, stream)
    assert steps_of(trace).bounds_ns[0].tolist() == [0, 5_000, 5_000, 6_100]


def test_an_empty_step_after_a_single_one_is_no_measure() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000)
    launched(trace, 10, 20, 900, 1)
    trace.step(1, 1_000, 99)
    assert steps_of(trace).steady.tolist() == [True, False]


@pytest.mark.parametrize(("unseen_us", "said"), [(999, False), (1_000, True)])
def test_unrecorded_millisecond_is_reported(unseen_us: int, said: bool) -> None:
    """A synchronisation waited until then, for work that was launched before the recording."""
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10)
    trace.launch("cudaDeviceSynchronize", 20, unseen_us * US - 20, 50)
    trace.op("aten::mm", unseen_us * US + 10, 5_000)
    launched(trace, unseen_us * US + 20, unseen_us * US + 30, MS, 1)
    assert ("have no GPU events and are left out" in steps_of(trace).source) is said


def test_nothing_is_left_out_before_unlinked_work() -> None:
    """It was running when the recording began to tell, whatever the CPU did before."""
    trace = TraceBuilder()
    trace.step(0, 0, 10 * MS)
    trace.kernel(3 * MS, MS, 9)
    trace.launched((5 * MS, 5), (6 * MS, MS), 1)
    steps = steps_of(trace)
    assert (steps.window_start_ns, "left out" in steps.source) == (3 * MS, False)


def test_optimizer_steps_reach_from_end_to_end() -> None:
    trace = TraceBuilder()
    launched(trace, 10, 20, 900, 1)
    for at in (100, 500):
        trace.annotation("Optimizer.step#Adam.step", at, 100)
    trace.op("aten::mm", 700, 300)
    steps = steps_of(trace)
    assert steps.kind == "Optimizer.step"
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([10, 200], [200, 1_000])
    once = TraceBuilder()
    launched(once, 10, 20, 900, 1)
    once.annotation("Optimizer.step#Adam.step", 100, 100)
    assert steps_of(once).kind == "window"


def test_of_two_marks_that_begin_together_the_longer_is_the_step() -> None:
    trace = TraceBuilder()
    launched(trace, 10, 20, 980, 1)
    for at, dur in ((0, 100), (0, 400), (500, 400), (500, 50)):
        trace.annotation("mine", at, dur)
    steps = steps_of(trace)
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([0, 500], [500, 900])


def test_a_gap_is_where_no_launching_thread_has_an_op() -> None:
    """A short op of another thread lies in a long one, which is what came before the gap."""
    trace = TraceBuilder()
    trace.step(0, 0, MS)
    for number, (at, dur, tid) in enumerate(((0, 100, TID), (10, 10, TID + 1), (150, 50, TID)), 1):
        trace.op(f"aten::op{number}", at * US, dur * US, tid=tid)
        trace.launched(((at + 1) * US, 5 * US), ((at + 8) * US, US), number, tid=tid)
    analysis = Analysis(trace.load())
    gaps, names = analysis.index(CpuGaps), analysis.trace.cpu["name"]
    assert (gaps.start_ns.tolist(), gaps.end_ns.tolist()) == ([100 * US], [150 * US])
    assert [names.iloc[int(rows[0])] for rows in (gaps.before, gaps.after)] == ["aten::op1", "aten::op3"]
    asked = Analysis(trace.load(), (120 * US, 900 * US)).index(CpuGaps)
    assert (asked.start_ns.tolist(), asked.end_ns.tolist()) == ([120 * US], [150 * US])


def test_launch_outside_ops_belongs_to_its_external_id() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 50, external_id=77)
    trace.launched((100, 5), (120, 30), 1, external_id=77)
    assert Analysis(trace.load()).index(DeviceWork).op.tolist() == [op]


def test_a_single_launch_without_device_records_is_told() -> None:
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 5, 1)
    with pytest.raises(Unavailable, match="1 launches, but no device records"):
        Analysis(trace.load()).index(DeviceWork)


def test_executions_are_compared_in_launch_order() -> None:
    """Of two streams the second begins first; what was launched before the first mark is in no step."""
    trace = TraceBuilder()
    launched(trace, 10, 20, 70, 99)
    for number in range(2):
        begin = 1_000 * (number + 1)
        trace.step(number, begin, 1_000)
        launched(trace, begin + 10, begin + 300, 50, 2 * number + 1)
        launched(trace, begin + 20, begin + 100, 80, 2 * number + 2, stream=20)
    table = Analysis(trace.load()).index(RepeatedKernels)
    assert (table.dur_ns.tolist(), table.place.tolist()) == ([50, 80, 50, 80], [0, 1, 0, 1])


def test_of_a_collective_without_a_launch_no_waiting_is_expected() -> None:
    trace = TraceBuilder()
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)"
    trace.launch("cudaLaunchKernel", 0, 5, 1)
    for start, dur, number in ((50, 100, 1), (200, 60, 2)):
        trace.kernel(start, dur, number, name=name)
    analysis = Analysis(trace.load())
    found = CollectiveWaits.expected(analysis.trace, analysis.index(DeviceWork))
    assert found.entry.tolist() == [0]
    assert (found.waiting_ns.tolist(), found.meets.tolist()) == ([0], [True])


@pytest.mark.parametrize(
    ("at", "end", "tid", "own"),
    [
        (0, 100, TID + 1, True),  # before the first op begins
        (0, 101, TID + 1, False),
        (250, 260, TID, False),  # launches follow
        (400, 410, TID, True),
    ],
)
def test_profiler_synchronises_around_all_ops(at: int, end: int, tid: int, own: bool) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 100, 50)
    for number, start in enumerate((110, 300), 1):
        launched(trace, start, start + 10, 5, number)
    trace.launch("cudaDeviceSynchronize", at, end - at, 9, tid=tid)
    assert Analysis(trace.load()).index(SyncCalls).profiler.tolist() == [own]


def test_no_thread_has_a_row_around_anything() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, tid=TID + 1)
    nesting = Analysis(trace.load()).index(Nesting)
    instant = np.array([50])
    assert nesting.around(-1, instant, instant).tolist() == [-1]
    assert nesting.around(0, instant, instant).tolist() == [0]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([False, False], ""),
        ([True, False], "; 1 of 2 captures a CUDA graph, once each, and do not count as the usual step"),
        ([True, True, False], "; 2 of 3 capture CUDA graphs, once each, and do not count as the usual step"),
    ],
)
def test_how_many_steps_capture_is_said(steps: list[bool], said: str) -> None:
    assert steps_that_capture(np.array(steps)) == said
