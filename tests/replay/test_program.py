"""What the program of a trace is made of, and whose time each part is."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay.programs import CALL_NS, OP_NS, STEP_NS, Loop, forecast, program, replay
from tests.support.kernels_alone import recorded
from tests.support.trace_builder import PID, TID, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import rank_within
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.program import Program, loading
from traceanalyzer.replay.sample import mean_pace, middle_steps
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.segments import python_call_counts, stalled_ns, without_waits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting

MAIN, AUTOGRAD, WATCHDOG = 1000, 1001, 1002


def test_segments_are_the_steps_without_the_first() -> None:
    loop = Loop(steps=4)
    loop.op("aten::mm", 100_000, 50_000)
    built = program(loop.load())
    assert built.sample.steps.tolist() == [1, 2, 3]
    assert built.segments.cpu_ns.sum() == 3 * STEP_NS
    assert len(built.work.entry) == 3


def test_a_rare_slow_step_is_a_hiccup_and_a_regular_one_is_not() -> None:
    def durations(slow: set[int]) -> list[int]:
        trace, at = TraceBuilder(), 0
        for number in range(12):
            dur = 2 * STEP_NS if number in slow else STEP_NS
            trace.step(number, at, dur)
            trace.launched((at + 10_000, 5_000), (at + 20_000, 50_000), number)
            at += dur
        return program(trace.load()).sample.steps.tolist()

    assert 5 not in durations({5})
    assert {3, 6, 9} <= set(durations({3, 6, 9}))
    assert not {3, 7, 9} & set(durations({3, 7, 9}))


@pytest.mark.parametrize(
    ("spacing_us", "pauses_us", "replayed"),
    [
        ((20, 90, 80, 25), (0, 0, 0, 0), [0, 3]),  # each row later: the host was busy with something else
        ((30, 35, 50, 40), (0, 0, 0, 0), [1, 2, 3]),  # as steps of a quiet host differ
        ((20, 20, 20, 20), (0, 9_000, 9_000, 0), [1, 2, 3]),  # one long gap each: the program's
    ],
)
def test_steps_in_which_every_row_is_slower_are_no_measure(
    spacing_us: tuple[int, ...], pauses_us: tuple[int, ...], replayed: list[int]
) -> None:
    trace, at = TraceBuilder(), 0
    for number, (spacing, pause) in enumerate(zip(spacing_us, pauses_us, strict=True)):
        begin = at
        for launch in range(70):
            trace.op("aten::mm", at + 1_000, 12_000)
            trace.launched((at + 3_000, 5_000), (at + 10_000, 4_000), number * 100 + launch + 1)
            at += spacing * 1_000
        at += pause * 1_000
        trace.step(number, begin, at - begin)
    sample = program(trace.load()).sample
    assert sample.steps.tolist() == replayed
    assert sample.disturbed == (0 in replayed)
    assert ("something else kept the host busy" in sample.text) == (0 in replayed)


def test_the_innermost_row_owns_the_time() -> None:
    loop = Loop(steps=1)
    loop.op("aten::mm", 100_000, 50_000)
    trace = loop.load()
    built = program(trace)
    names = trace.cpu["name"].astype(str).to_numpy()[built.timeline.row].tolist()
    assert names == ["ProfilerStep#0", "aten::mm", "cudaLaunchKernel", "aten::mm", "ProfilerStep#0"]
    assert built.segments.cpu_ns.tolist() == [100_000, 10_000, 5_000, 5_000, STEP_NS - 120_000]
    assert built.segments.gap.tolist() == [True, False, False, False, True]


def two_threads(tid: int, begin: int, dur: int) -> TraceBuilder:
    """A step of two ops on the main thread, and an op of another thread."""
    trace = TraceBuilder()
    trace.step(0, 0, STEP_NS)
    for at in (100_000, 600_000):
        trace.op("aten::mm", at, OP_NS)
    trace.launched((105_000, CALL_NS), (120_000, 10_000), 1)
    trace.op("aten::mul", begin, dur, pid=PID, tid=tid)
    return trace


def test_autograd_runs_in_place_of_the_main_thread() -> None:
    trace = two_threads(AUTOGRAD, 200_000, 100_000).load()
    built = program(trace)
    assert len(built.timeline.threads) == 2
    names = trace.cpu["name"].astype(str).to_numpy()[built.timeline.row]
    assert built.segments.cpu_ns[names == "aten::mul"].sum() == 100_000
    assert built.segments.cpu_ns.sum() == STEP_NS


def test_a_thread_beside_the_main_one_is_no_part_of_it() -> None:
    built = program(two_threads(WATCHDOG, 50_000, 800_000).load())
    assert len(built.timeline.threads) == 1


def test_the_profilers_buffer_request_is_no_part_of_the_program() -> None:
    loop = Loop(steps=1)
    loop.op("aten::mm", 100_000, 50_000, dur=400_000)
    loop.trace.overhead("Activity Buffer Request", 250_000, 150_000)
    assert program(loop.load()).segments.cpu_ns.sum() == STEP_NS  # the thread went on meanwhile
    loop.trace.overhead("Activity Buffer Request", 350_000, 100_000)
    assert program(loop.load()).segments.cpu_ns.sum() == STEP_NS - 100_000


def test_a_synchronisation_waits_for_what_was_launched_before() -> None:
    loop = Loop(steps=4)
    loop.op("aten::mm", 100_000, 500_000)
    loop.sync(200_000, 430_000)
    built = program(loop.load())
    assert len(built.waits.row) == 3
    assert built.waits.own_ns.tolist() == [4_000.0] * 3
    step = replay(built, slowdown=1.0)
    assert step.ns == pytest.approx(STEP_NS, rel=0.02)
    assert step.bound == "wait"


@pytest.mark.parametrize(("others_ns", "tail_ns"), [(0, 4_000.0), (26_000, 6_000.0)])
def test_wait_hidden_by_a_late_cpu_costs_as_much(others_ns: int, tail_ns: float) -> None:
    """The first synchronisation begins when its work has ended; the second one, where there is one, waits."""
    loop = Loop()
    loop.op("aten::mm", 100_000, 2_000)
    loop.sync(130_000, 3_000)
    if others_ns:
        loop.op("aten::mm", 200_000, 20_000)
        loop.sync(215_000, others_ns)
    built = program(loop.load())
    assert built.waits.tail_ns.tolist() == [tail_ns] * len(built.waits.row)
    hurried = replay(built, slowdown=40.0)
    assert hurried.ns >= 2_000 + tail_ns


@pytest.mark.parametrize(("dur", "tail"), [(425_000, 10_000.0), (530_000, 15_000.0)])
def test_a_synchronisation_returns_soon_after_what_it_waited_for(dur: int, tail: float) -> None:
    """What it takes beyond 15 us is not the way back from the device, and no part of the program."""
    loop = Loop(steps=4)
    loop.op("aten::mm", 100_000, 500_000)
    loop.sync(200_000, dur)
    assert program(loop.load()).waits.tail_ns.tolist() == [tail] * 3


def test_a_blocking_copy_waits_for_itself() -> None:
    loop = Loop(steps=3)
    for number, begin in enumerate(loop.begins):
        loop.trace.launch("cudaMemcpyAsync", begin + 100_000, 400_000, correlation=100 + number)
        name = "Memcpy HtoD (Pageable -> Device)"
        loop.trace.memcpy(begin + 110_000, 380_000, correlation=100 + number, name=name)
    built = program(loop.load())
    assert built.waits.copy.tolist() == [0, 1]
    assert replay(built, slowdown=1.0).ns == pytest.approx(STEP_NS, rel=0.02)


def test_other_streams_are_awaited_where_the_trace_allows() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, STEP_NS)
    trace.launched((100_000, CALL_NS), (110_000, 300_000), 1, stream=7)
    trace.launch("cudaStreamWaitEvent", 120_000, CALL_NS, correlation=2)
    trace.launched((130_000, CALL_NS), (411_000, 100_000), 3, stream=20)
    built = program(trace.load())
    assert built.work.edge_to.tolist() == [1]
    assert built.work.edge_from.tolist() == [0]


def test_gaps_are_as_traced_only_where_work_was_queued() -> None:
    loop = Loop(steps=1)
    for at in (100_000, 130_000, 160_000):
        loop.op("aten::mm", at, 200_000)
    loop.op("aten::mm", 900_000, 200_000)
    assert program(loop.load()).work.gap_ns.tolist() == [1_000.0] * 4


@pytest.mark.parametrize("linked", [False, True])
def test_without_launches_there_is_no_program(linked: bool) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, STEP_NS)
    trace.op("aten::mm", 1_000, 10_000)
    trace.kernel(20_000, 10_000, correlation=5)
    if linked:  # but before the steps
        trace.launch("cudaLaunchKernel", -50_000, 5_000, correlation=5)
    with pytest.raises(Unavailable):
        program(trace.load())


def test_without_marks_the_window_is_the_step() -> None:
    trace = TraceBuilder()
    for i in range(20):
        trace.op("aten::mm", i * 30_000, OP_NS)
        trace.launched((i * 30_000 + 5_000, CALL_NS), (i * 30_000 + 12_000, 5_000), i + 1)
    known = forecast(trace.load())
    assert known.program.sample.text == "1 of 1 step"
    assert known.step.bound == "cpu"


def test_a_step_that_is_too_long_is_replayed_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(steps=1)
    for at in range(10_000, 910_000, 30_000):
        loop.op("aten::mm", at, 5_000)
    whole = replay(program(loop.load()), slowdown=1.0)
    monkeypatch.setattr("traceanalyzer.replay.sample._MAX_ROWS", 30)
    assert program(loop.load()).sample.part == 1
    monkeypatch.setattr("traceanalyzer.replay.sample._MAX_ROWS_OF_ONE", 30)
    built = program(loop.load())
    assert built.sample.part < 0.6
    assert built.sample.text.endswith("% of a step")
    assert replay(built, slowdown=1.0).ns == pytest.approx(whole.ns, rel=0.1)


def test_many_steps_are_replayed_as_a_run_from_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(steps=20)
    loop.op("aten::mm", 100_000, 5_000)
    monkeypatch.setattr("traceanalyzer.replay.sample._MAX_ROWS", 10)
    steps = program(loop.load()).sample.steps
    assert 1 <= len(steps) < 10
    assert np.diff(steps).tolist() == [1] * (len(steps) - 1)


@pytest.mark.parametrize(
    ("usable", "most", "run"),
    [(4, 30, [2, 3, 4]), (4, 40, [1, 2, 3, 4]), (5, 20, [3, 4]), (12, 50, [7, 8, 9, 10, 11]), (3, 5, [2])],
    ids=["before the middle", "all", "after the middle", "from the middle", "one at least"],
)
def test_fitting_step_count(monkeypatch: pytest.MonkeyPatch, usable: int, most: int, run: list[int]) -> None:
    monkeypatch.setattr("traceanalyzer.replay.sample._MAX_ROWS", most)
    assert middle_steps(np.arange(1, usable + 1), np.full(usable, 10)).tolist() == run


@pytest.mark.parametrize(("others", "waits"), [(0, 3), (1, 3), (2, 0), (8, 0)])
def test_device_end_gaps_are_waits_if_most_of_their_place_are(others: int, waits: int) -> None:
    """No call is recorded; a loader without workers decodes for as long whatever the device does."""
    loop = Loop(step_ns=20_000_000)
    loop.op("aten::mm", 100_000, 5_000_000)
    pauses = [6_000_000 + number * 1_500_000 for number in range(others)]
    for begin in loop.begins:
        start = begin + 5_150_000
        for pause in pauses:
            loop.trace.op("aten::div", start, begin + pause - start)
            start = begin + pause + 1_200_000
        loop.trace.op("aten::div", start, begin + 19_990_000 - start)
    assert (program(loop.load()).waits.row < 0).sum() == waits


US = 1_000


def timeline(*edges_us: float) -> CpuTimeline:
    """Segments from each edge to the next, of one step."""
    edges = np.array([round(edge * US) for edge in edges_us])
    none = np.full(len(edges) - 1, -1)
    return CpuTimeline(edges[:-1], edges[1:], none, none * 0, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("start", "end", "waited", "left"),
    [
        (1_500, 4_950, 3_000, 1_000),  # waits in it from 1.5 to 4.5 ms
        (500, 4_950, 3_000, 1_500),  # in it from 1 to 3.5 ms: what it waited before is no part of the segment
        (500, 4_900, 3_000, 1_500),  # the CPU goes on within 0.1 ms of its end
        (500, 4_899.999, 3_000, 4_000),
        (1_500, 4_950, 1_000, 3_000),
        (1_500, 4_950, 999.999, 4_000),  # the CPU may be busy so long by chance
        (0, 4_950, 1_000, 4_000),  # all of the waiting was before
        (1_000, 4_950, 9_000, 0),
    ],
)
def test_cpu_waits_in_segment_before_collective(start: float, end: float, waited: float, left: float) -> None:
    """From 1 to 5 ms, between two others."""
    waiting: Any = SimpleNamespace(waiting_ns=np.array([round(waited * US)]), entry=np.zeros(1, np.int64))
    work: Any = SimpleNamespace(start_ns=np.array([round(start * US)]), end_ns=np.array([round(end * US)]))
    took = np.array([1_000.0, 4_000.0, 1_000.0]) * US
    found = without_waits(took, work, timeline(0, 1_000, 5_000, 6_000), waiting)
    assert found.tolist() == [1_000 * US, left * US, 1_000 * US]


@pytest.mark.parametrize(("until_us", "stalled_us"), [(191, 91), (190, 0), (400, 100)])
def test_buffer_request_stalls_the_segment_that_contains_it(until_us: int, stalled_us: int) -> None:
    """From 100 to 200 us; a row of another kind stalls none."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10 * US)
    trace.overhead("Activity Buffer Request", 100 * US, 100 * US)
    trace.overhead("Resource", 20 * US, 50 * US)
    analysis = Analysis(trace.load())
    found = stalled_ns(analysis.trace, analysis.index(Nesting), timeline(0, 80, until_us, 500))
    assert found.tolist() == [0, stalled_us * US, 0]


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (["f.py(1): f"] * 4, [2.5, 1.5]),  # the third lies half in either
        (["<built-in function perf_counter>"] * 4, [0, 0]),  # a loop that looks at the clock lasts as long as ever
        (["<built-in function perf_counter>", "f.py(1): f"] * 2, [0, 1.5]),  # where most do
    ],
)
def test_python_calls_are_counted_where_they_are_recorded(names: list[str], counted: list[float]) -> None:
    trace = TraceBuilder(with_stack=1)
    for number, (name, start, end) in enumerate(zip(names, (10, 80, 90, 200), (20, 90, 110, 300), strict=True)):
        trace.python(name, start * US, (end - start) * US, python_id=number)
    trace.python("f.py(9): g", 900 * US, 10 * US, python_id=9)
    found = python_call_counts(trace.load(), timeline(5, 100, 400))
    assert found.tolist() == counted


def test_waiting_for_data_is_that_of_threads_that_launch() -> None:
    trace = TraceBuilder()
    for tid, at in ((TID, 100), (TID + 1, 300)):
        trace.annotation("enumerate(DataLoader)#_Iter.__next__", at, 50, tid=tid)
    trace.launched((0, 5), (10, 5), 1)
    analysis = Analysis(trace.load())
    found = loading(analysis.trace, analysis.index(Nesting), analysis.index(DeviceWork))
    assert [side.tolist() for side in found] == [[100], [150]]


def test_step_is_at_least_the_busiest_streams_compute() -> None:
    """Two halves of a step, which have 300 and 250 ns on two streams; communication may wait."""
    work = SimpleNamespace(
        communication=np.array([False, False, True, False]), dur_ns=np.array([100.0, 200.0, 900.0, 250.0]),
        stream=np.array([0, 0, 0, 1]),
    )  # fmt: skip

    class Sample:
        part = 0.5

        def __len__(self) -> int:
            return 2

    program: Any = SimpleNamespace(work=work, sample=Sample())
    assert Program.least_gpu_ns.fget(program) == 300  # type: ignore[attr-defined]


@pytest.mark.parametrize(("rows", "pace"), [(100, 1.0), (99, 0.0)])
def test_the_pace_of_a_step_is_its_mean_without_stalls(rows: int, pace: float) -> None:
    """However many they are up to a tenth, and wherever; of a few rows it tells nothing."""
    apart = np.ones(rows, np.int64)
    apart[::10] = 10_000
    assert mean_pace(apart) == pace


def test_places_within_groups_that_come_in_runs_or_not() -> None:
    assert rank_within(np.array([3, 3, 1, 3, 1, 0])).tolist() == [0, 1, 0, 2, 1, 0]


def rank(*, op_us: int, waits_us: tuple[int, ...]) -> Forecast:
    """The prediction of such a recording."""
    return Analysis(recorded(op_us=op_us, waits_us=waits_us)).index(Forecast)


def test_rank_that_always_launches_waits_less_unprofiled() -> None:
    made = rank(op_us=20, waits_us=(2_000, 0, 2_000, 2_000, 2_000))
    quick = rank(op_us=20, waits_us=(0, 0, 0, 0, 0))
    assert made.program.awaited == pytest.approx(1_500 / 5_600, abs=0.05)
    assert "other ranks' launching" in made.step.basis
    # The peers' launching is quickened as its own is: the recorded step and the predicted one have one ratio.
    ratio = quick.step.unprofiled_ns / quick.step.traced_ns
    assert made.step.unprofiled_ns / made.step.traced_ns == pytest.approx(ratio, abs=0.03)


def test_rank_with_little_to_launch_waits_as_long() -> None:
    made = rank(op_us=6, waits_us=(4_000, 0, 4_000, 4_000, 4_000))
    assert made.program.awaited == 0
    assert "other ranks' launching" not in made.step.basis
    assert made.step.unprofiled_ns >= 0.8 * made.step.traced_ns


def test_steps_with_one_longer_recorder_wait_predict_alike() -> None:
    """The first step of other ranks begins late: two cuts of one recording say the same."""
    early = rank(op_us=20, waits_us=(0, 2_500, 100, 100, 100, 100))
    late = rank(op_us=20, waits_us=(100, 100, 100, 100))
    assert early.step.unprofiled_ns == pytest.approx(late.step.unprofiled_ns, rel=0.15)


@pytest.mark.parametrize(
    ("kernel_us", "wait_us", "low", "says"), [(5, 2_000, False, True), (10, 3_900, True, True), (5, 0, False, False)]
)
def test_launch_bound_says_what_peers_launch(kernel_us: int, wait_us: int, low: bool, says: bool) -> None:
    """The confidence is low where most of it is the peers'."""
    trace = recorded(op_us=20, waits_us=(wait_us, 0, wait_us, wait_us, wait_us), kernel_us=kernel_us)
    (one,) = (one for one in diagnose(trace).findings if one.rule == "launch-bound")
    words = (
        "mostly within collectives: probably for other ranks, which launch"
        if low
        else "waits for other ranks that launch"
    )
    assert (words in one.message) == says
    assert ("Pass the files of all ranks" in one.advice) == says
    assert (one.confidence is Confidence.LOW) == low
