"""What happens once at the head of a program, and what recurs after the leading third of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.stalled_calls import KINDS, FirstUse
from traceanalyzer.model.analysis import Analysis

US = 1_000
STEPS = 12  # the leading third is 4


def once(trace: TraceBuilder) -> list[tuple[str, int]]:
    """(kind, step) of each row that is found."""
    loaded = trace.load()
    found = Analysis(loaded).index(FirstUse)
    starts = loaded.cpu["start_ns"].to_numpy()[found.row] - loaded.cpu["start_ns"].min()
    return [(KINDS[kind], int(start) // (1_000 * US)) for kind, start in zip(found.kind, starts, strict=True)]


def steps(
    *, allocating: Sequence[int] = (), slow: Sequence[int] = (), usual_us: int = 5, slow_us: int = 500
) -> TraceBuilder:
    """Steps of 1 ms with three launches; some have a cudaMalloc, in some the last launch stands still."""
    trace = TraceBuilder()
    for number in range(STEPS):
        start = number * 1_000 * US
        trace.step(number, start, 1_000 * US)
        if number in allocating:
            trace.launch("cudaMalloc", start + 10 * US, 50 * US, 900 + number)
        for i in range(3):
            at, dur = start + (100 + 50 * i) * US, slow_us if number in slow and i == 2 else usual_us
            trace.launched((at, dur * US), (at + dur * US, 5 * US), 10 * number + i + 1)
    return trace


@pytest.mark.parametrize(
    ("allocating", "is_once"),
    [
        ([0, 1, 2, 3], True),  # the head
        ([0, 4, 5, 6], True),  # three of the eight steps after it
        ([4, 5, 6, 7], False),  # half of them, though none of the last
        ([8, 9, 10, 11], False),
    ],
)
def test_calls_in_half_of_later_steps_are_not_first_use(allocating: list[int], is_once: bool) -> None:
    expected = [("allocating", step) for step in allocating] if is_once else []
    assert once(steps(allocating=allocating)) == expected


def test_stalled_call_is_first_use_only_in_the_leading_third() -> None:
    assert once(steps(slow=[0, 3, 4, 5])) == [("first use of a library", 0), ("first use of a library", 3)]


def test_allocations_in_every_step_are_no_first_use() -> None:
    trace = steps(allocating=range(1, STEPS))
    trace.launch("cudaMalloc", 400 * US, 550 * US, 900)  # eleven times the usual
    assert once(trace) == []


def test_a_slow_allocation_at_the_head_is_told_once() -> None:
    trace = steps(allocating=[1, 2])
    trace.launch("cudaMalloc", 400 * US, 550 * US, 900)
    assert once(trace) == [("allocating", step) for step in (1, 2, 0)]


@pytest.mark.parametrize(
    ("name", "dur_us", "kind"),
    [
        ("cudaMalloc", 100_000, "first use of a library"),
        ("cudaMalloc", 99_999, "allocating"),
        ("cudaHostAlloc", 100_000, "allocating"),  # takes as long as the memory is large
    ],
)
def test_allocation_of_100_ms_prepares_the_device(name: str, dur_us: int, kind: str) -> None:
    trace = TraceBuilder()
    for number in range(STEPS):
        trace.step(number, number * 1_000_000 * US, 900_000 * US)
        trace.launch("cudaLaunchKernel", (number * 1_000_000 + 800_000) * US, 5 * US, number + 1)
        trace.kernel((number * 1_000_000 + 800_010) * US, 5 * US, number + 1)
    trace.launch(name, 10 * US, dur_us * US, 900)
    assert once(trace) == [(kind, 0)]


@pytest.mark.parametrize(("calls", "is_once"), [(7, True), (8, False)])
def test_few_calls_per_part_without_steps_are_no_storm(calls: int, is_once: bool) -> None:
    """Two steps are too few to compare: the first use of a library makes a dozen calls, a storm hundreds a step."""
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, number * 4_000 * US, 4_000 * US)
    for part in range(8):
        start = part * 1_000 * US
        for i in range(calls):
            trace.launch("cudaMalloc", start + (10 + 60 * i) * US, 50 * US, 900 + 10 * part + i)
        trace.launched((start + 900 * US, 5 * US), (start + 950 * US, 50 * US), part + 1)
    assert len(once(trace)) == (8 * calls if is_once else 0)


def test_op_that_waits_for_events_is_tuning() -> None:
    """The outermost op: the user's call. Waiting for an event in no op is none."""
    trace = steps()
    trace.op("aten::conv2d", 400 * US, 300 * US)
    trace.op("aten::cudnn_convolution", 410 * US, 280 * US)
    for i in range(3):
        trace.launch("cudaEventSynchronize", (420 + 60 * i) * US, 50 * US, 900 + i)
    trace.launch("cudaEventSynchronize", 800 * US, 20 * US, 910)
    loaded = trace.load()
    found = Analysis(loaded).index(FirstUse)
    assert loaded.cpu["name"].iloc[found.row].tolist() == ["aten::conv2d"]
    assert [KINDS[kind] for kind in found.kind] == ["tuning"]


@pytest.mark.parametrize(("slow_us", "found"), [(199, 0), (200, 1)])
@pytest.mark.parametrize("others_us", [(30, 10, 20), (30, 10, 20, 12)])
def test_usual_call_time_is_the_lower_median(others_us: tuple[int, ...], slow_us: int, found: int) -> None:
    trace = steps()
    for number, dur_us in enumerate((*others_us, slow_us)):
        trace.launch("cudaFuncGetAttributes", (300 + 210 * number) * US - 200 * US, dur_us * US, 900 + number)
    assert len(once(trace)) == found


@pytest.mark.parametrize(("stalled_us", "found"), [(400, 1), (401, 0)])
def test_what_the_profiler_did_in_a_call_is_not_the_librarys(stalled_us: int, found: int) -> None:
    """The call takes 500 us, and so long of it the profiler asks for a buffer."""
    trace = steps(slow=[0])
    trace.overhead("Activity Buffer Request", 210 * US, stalled_us * US)
    assert len(once(trace)) == found


@pytest.mark.parametrize(("calls", "found"), [(False, []), (True, [("first use of a library", 0)])])
def test_stalled_op_is_first_use_only_if_it_makes_calls(calls: bool, found: list[tuple[str, int]]) -> None:
    """What computes on the CPU alone may be meant to take that long."""
    trace = steps()
    for number in range(3):
        trace.op("aten::sort", (number * 1_000 + 1_500) * US, 5 * US)
    trace.op("aten::sort", 400 * US, 400 * US)
    if calls:
        trace.launch("cudaFuncGetAttributes", 410 * US, 5 * US, 900)
    assert once(trace) == found


@pytest.mark.parametrize(("earlier", "found"), [(False, [("first use of a library", 6)]), (True, [])])
def test_first_call_of_a_name_is_first_use_in_any_step(earlier: bool, found: list[tuple[str, int]]) -> None:
    trace = steps()
    for number in (*([2] if earlier else []), 7, 8, 9):
        trace.launch("cudaFuncGetAttributes", (number * 1_000 + 500) * US, 5 * US, 900 + number)
    trace.launch("cudaFuncGetAttributes", 6_400 * US, 400 * US, 950)
    assert once(trace) == found


def test_later_tiny_allocations_keep_the_first_slow_one() -> None:
    """Shorter than 10 us in every later step."""
    trace = steps(allocating=[0])
    for number in range(1, STEPS):
        trace.launch("cudaMalloc", (number * 1_000 + 500) * US, 9_999, 900 + number)
    assert ("allocating", 0) in once(trace)
    for number in range(1, STEPS):
        trace.launch("cudaMalloc", (number * 1_000 + 600) * US, 10 * US, 950 + number)
    assert once(trace) == []


@pytest.mark.parametrize(("dur_us", "found"), [(999, []), (1_000, [("first use of a library", 0)])])
def test_single_call_of_a_name_must_stall_for_a_millisecond(
    dur_us: int, found: list[tuple[str, int]]
) -> None:
    trace = TraceBuilder()
    for number in range(STEPS):
        trace.step(number, number * 2_000 * US, 2_000 * US)
        trace.launch("cudaLaunchKernel", (number * 2_000 + 1_500) * US, 5 * US, number + 1)
        trace.kernel((number * 2_000 + 1_510) * US, 5 * US, number + 1)
    trace.launch("cublasCreate", 100 * US, dur_us * US, 900, category="cuda_driver")
    assert once(trace) == found


def test_waiting_for_the_device_is_no_first_use() -> None:
    trace = steps()
    for number in range(3):
        trace.launch("cudaDeviceSynchronize", (number * 1_000 + 1_500) * US, 5 * US, 900 + number)
    trace.launch("cudaDeviceSynchronize", 400 * US, 400 * US, 910)
    assert once(trace) == []
