"""Which steps stand for the program, and the device's side of it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay.programs import program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.sample import left_out_share, undisturbed_steps
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.steady_work import (
    latencies_ns,
    previous_on_stream,
    recorded_edges,
    usual_latency_ns,
    work_gaps,
)
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

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
            trace.launched((at + 10 * US * pace, 5 * US * pace), (at + 18 * US * pace, 10 * US), number)
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
    assert "; 1 of 10 steps (50 % of the recorded time) takes 29.9 ms longer" in report.traces[0].summary.step


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
            trace.launched((at + 10 * US, 5 * US), (at + 18 * US, 10 * US), number)
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
            trace.launched((at + 10 * US, 5 * US), (at + 18 * US, 10 * US), number)
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
def test_steps_twice_as_slow_are_disturbed(pace: list[float], rows: list[int], kept: list[int]) -> None:
    usable = np.arange(1, len(pace))
    found = undisturbed_steps(usable, np.array(pace, float), np.array(rows))
    assert found.tolist() == kept
    assert (found is usable) == (kept == usable.tolist())


def test_left_out_share_is_of_later_steps_without_capture() -> None:
    dur, capturing = np.array([90, 10, 20, 70, 50]), np.array([False, False, False, False, True])
    assert left_out_share(dur, np.array([0, 1, 2]), capturing) == pytest.approx(0.7)
    assert left_out_share(dur, np.array([0, 1, 2, 3]), capturing) == 0.0
    assert left_out_share(dur[:1], np.array([0]), capturing[:1]) == 0.0


@pytest.mark.parametrize(
    ("delays_us", "latency_us"),
    [
        ((), 5.5),
        ((5, 9, 9, 9, 9, 9), 9),  # the quickest fifth
        ((5, 5, 9, 9, 9, 9), 5),
        ((1, 1, 1), 2),
        ((30, 30), 20),
    ],
)
def test_how_long_an_idle_stream_takes_to_begin(delays_us: tuple[int, ...], latency_us: float) -> None:
    assert usual_latency_ns(np.array(delays_us, np.int64) * US) == latency_us * US


def test_first_graph_work_has_its_own_latency() -> None:
    """Two launches of 5 us; a graph that takes 40, whose second kernel is usual; one of 3 us, and one after work."""
    work: Any = SimpleNamespace(
        delay_ns=np.array([5, 5, 40, 41, 3, 90]) * US,
        shared=np.array([False, False, True, True, True, True]),
        call=np.array([0, 1, 2, 2, 3, 4]),
    )
    idle = np.array([True, True, True, True, True, False])
    assert latencies_ns(work, np.arange(6), idle).tolist() == [5_000, 5_000, 40_000, 5_000, 5_000, 5_000]


def test_the_work_before_on_the_same_stream() -> None:
    """Also of work that is not among those that are asked about, and none for the first of each."""
    key = np.array([0, 1, 0, 1, 0])
    assert previous_on_stream(SimpleNamespace(), key, np.array([4, 1, 2, 3])).tolist() == [2, -1, 0, 1]  # type: ignore[arg-type]
    assert previous_on_stream(SimpleNamespace(), key, np.empty(0, np.int64)).tolist() == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call_end_ns", "gap"),
    [
        (1_999, 3_000),  # it stood in the queue for more than 8 us when the work before was done
        (2_000, 700),
    ],
)
def test_gap_is_as_traced_where_work_was_queued_for_8_us(call_end_ns: int, gap: int) -> None:
    """Else it is the median of its pair: one other pair of kernels, which was queued, tells 700 ns."""
    work: Any = SimpleNamespace(
        shared=np.zeros(4, bool),
        call=np.arange(4),
        start_ns=np.array([0, 10_000, 40_000, 50_700]),
        end_ns=np.array([7_000, 20_000, 50_000, 60_000]),
        call_end_ns=np.array([0, call_end_ns, 39_000, 41_000]),
    )
    before, traced = np.array([-1, 0, -1, 2]), np.array([0, 3_000, 0, 700])
    found, pairs = work_gaps(work, np.zeros(4, np.int64), np.arange(4), before, traced)
    assert found[[1, 3]].tolist() == [gap, 700]
    assert pairs.tolist() == [[1_850 if gap == 3_000 else 700]]


def test_launch_after_previous_work_ended_is_not_queued() -> None:
    """However late it began; each pair of kinds has its own median, and where none was queued the usual 1 us."""
    work: Any = SimpleNamespace(
        shared=np.zeros(5, bool),
        call=np.arange(5),
        start_ns=np.array([0, 50_000, 80_000, 90_500, 200_000]),
        end_ns=np.array([10_000, 60_000, 90_000, 95_000, 210_000]),
        call_end_ns=np.array([0, 10_001, 61_000, 70_000, 150_000]),
    )
    kinds, before = np.array([0, 0, 1, 1, 0]), np.array([-1, 0, 1, 2, 3])
    found, pairs = work_gaps(work, kinds, np.arange(5), before, np.array([0, 40_000, 20_000, 500, 105_000]))
    assert found[1:].tolist() == [500, 500, 500, 500]  # one queued gap is all there is
    assert pairs.tolist() == [[1_000, 1_000], [1_000, 500]]


def test_work_is_in_order_of_launch_and_streams_are_of_a_device() -> None:
    """Three launches a step: a graph of two kernels on one device, and on stream 7 of another one before and after."""
    trace = TraceBuilder()
    for step in range(3):
        begin, number = step * 1_000 * US, 10 * step
        trace.step(step, begin, 1_000 * US)
        for i, (name, at) in enumerate((("cudaLaunchKernel", 0), ("cudaGraphLaunch", 20), ("cudaLaunchKernel", 40))):
            trace.launch(name, begin + at * US, 5 * US, number + i + 1)
        trace.kernel(begin + 200 * US, 10 * US, number + 1, device=1)
        trace.kernel(begin + 130 * US, 30 * US, number + 2)
        trace.kernel(begin + 100 * US, 20 * US, number + 2)
        trace.kernel(begin + 300 * US, 40 * US, number + 3, device=1)
    work = program(trace.load()).work
    assert work.dur_ns[:4].tolist() == [10_000, 20_000, 30_000, 40_000]
    assert work.stream[:4].tolist() == [1, 0, 0, 1]
    assert work.before[:4].tolist() == [-1, -1, 1, 0]
    assert work.streams == 2


def test_launch_on_an_idle_stream_shows_the_latency() -> None:
    """In each step one of 5 us, and one that begins 2 us after its call, when the first has just ended."""
    trace = TraceBuilder()
    for step in range(4):
        begin, number = step * 1_000 * US, 10 * step
        trace.step(step, begin, 1_000 * US)
        trace.launched((begin + 10 * US, 3 * US), (begin + 15 * US, 25 * US), number + 1)
        trace.launched((begin + 39 * US, 3 * US), (begin + 41 * US, 5 * US), number + 2)
    assert set(program(trace.load()).work.latency_ns.tolist()) == {5_000.0}


def test_what_waited_for_another_stream_has_no_gap_of_its_own() -> None:
    """The first of two kernels on the second stream begins when the first stream is done, the next 5 us after it."""
    trace = TraceBuilder()
    for step in range(4):
        begin, number = step * 1_000 * US, 10 * step
        trace.step(step, begin, 1_000 * US)
        for i, (at, start, dur, stream) in enumerate(((0, 10, 50, 7), (12, 62, 10, 20), (16, 77, 10, 20))):
            trace.launch("cudaLaunchKernel", begin + at * US, 3 * US, number + i + 1)
            trace.kernel(begin + start * US, dur * US, number + i + 1, stream=stream)
        trace.launch("cudaStreamWaitEvent", begin + 8 * US, 2 * US, number + 9)
    work = program(trace.load()).work
    assert work.gap_ns[np.isin(np.arange(len(work.gap_ns)) % 3, [1])].tolist() == [1_000] * 3
    assert work.gap_ns[2::3].tolist() == [5_000] * 3
    pairs = zip(work.edge_to.tolist(), work.edge_from.tolist(), strict=True)
    assert list(pairs) == [(1, 0), (4, 3), (6, 2), (7, 6)]  # the first stream's next, for what the other had then


def test_a_collective_takes_what_it_takes_once_all_are_there() -> None:
    """One of 100 us that waited for 60, and one that nobody else's trace has."""
    trace = TraceBuilder()
    for step in range(3):
        trace.step(step, step * 1_000 * US, 1_000 * US)
        for i in range(2):
            number = 10 * step + i + 1
            trace.launch("cudaLaunchKernel", (step * 1_000 + 300 * i) * US, 5 * US, number)
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            trace.kernel((step * 1_000 + 300 * i + 10) * US, 100 * US, number, name=name)
    analysis = Analysis(trace.load())
    own = np.array([2, 4])
    waits = CollectiveWaits(own, np.array([60, 60]) * US, own * 0, np.array([8, 9]), np.ones(2, bool))
    needed = (analysis.index(one) for one in (DeviceWork, Nesting, Steps, SyncCalls))
    work = Program.build(analysis.trace, *needed, waits).work  # type: ignore[arg-type]
    assert work.dur_ns.tolist() == [40_000, 100_000, 40_000, 100_000]
    assert work.meet.tolist() == [8, -1, 9, -1]


@pytest.mark.parametrize("streams", [10, 100, 500])
def test_edges_are_linear_in_the_streams(streams: int) -> None:
    """Each of 2,000 pieces of work goes to the next stream, and each second one comes after a wait."""
    at = np.arange(2_000)
    work: Any = SimpleNamespace(call_start_ns=at * 10, start_ns=at * 100, end_ns=at * 100 + 50)
    _, edges = recorded_edges(work, at, at % streams, at[::2] * 10 - 5, np.zeros(len(at), bool))
    assert edges.shape[1] < 32 * 2_000
