"""What lies at the edges of steps, of marks and of what was recorded, and to whom it belongs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.cpu_gaps import CpuGaps
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels
from traceanalyzer.timeline.steps import Steps, steps_that_capture
from traceanalyzer.timeline.synchronisation import SyncCalls

US = 1_000
MS = 1_000 * US


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
        trace.launch("cudaLaunchKernel", (at + 1) * US, 5 * US, number, tid=tid)
        trace.kernel((at + 8) * US, US, number)
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
