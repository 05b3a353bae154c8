"""What the program of a trace is made of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.programs import CALL_NS, OP_NS, STEP_NS, Loop, forecast, program, replay
from tests.support.trace_builder import PID, TraceBuilder
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.replay.sample import _middle

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
            trace.launch("cudaLaunchKernel", at + 10_000, 5_000, correlation=number)
            trace.kernel(at + 20_000, 50_000, correlation=number)
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
            trace.launch("cudaLaunchKernel", at + 3_000, 5_000, correlation=number * 100 + launch + 1)
            trace.kernel(at + 10_000, 4_000, correlation=number * 100 + launch + 1)
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
    trace.launch("cudaLaunchKernel", 105_000, CALL_NS, correlation=1)
    trace.kernel(120_000, 10_000, correlation=1)
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
    trace.launch("cudaLaunchKernel", 100_000, CALL_NS, correlation=1)
    trace.kernel(110_000, 300_000, correlation=1, stream=7)
    trace.launch("cudaStreamWaitEvent", 120_000, CALL_NS, correlation=2)
    trace.launch("cudaLaunchKernel", 130_000, CALL_NS, correlation=3)
    trace.kernel(411_000, 100_000, correlation=3, stream=20)
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
        trace.launch("cudaLaunchKernel", i * 30_000 + 5_000, CALL_NS, correlation=i + 1)
        trace.kernel(i * 30_000 + 12_000, 5_000, correlation=i + 1)
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
def test_as_many_steps_are_replayed_as_fit(
    monkeypatch: pytest.MonkeyPatch, usable: int, most: int, run: list[int]
) -> None:
    monkeypatch.setattr("traceanalyzer.replay.sample._MAX_ROWS", most)
    assert _middle(np.arange(1, usable + 1), np.full(usable, 10)).tolist() == run


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
