"""The longest stretches without work: which, how long, and what is named of each."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.plot_data import Stretch, longest_stretches

US = 1_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loading(*loaded_us: int, slow_us: int = 100) -> TraceBuilder:
    """Steps in which data is loaded, so long each, then an op takes its time to launch 50 us of work."""
    trace, at = TraceBuilder(), 0
    for number, us in enumerate(loaded_us, 1):
        begin = at
        trace.op(LOADER, at, us * US)
        at += us * US
        trace.op("aten::mm", at, (slow_us + 5) * US)
        trace.launch("cudaLaunchKernel", at + slow_us * US, 5 * US, number)
        at += (slow_us + 5) * US
        trace.kernel(at, 50 * US, number)
        at += 60 * US
        trace.step(number, begin, at - begin - US)
    return trace


def stretches(trace: TraceBuilder, window: tuple[int, int] | None = None, **more: int) -> tuple[Stretch, ...]:
    return longest_stretches(Analysis(trace.load(), window), **more)


@pytest.mark.parametrize(
    ("loaded_us", "slow_us", "cause", "op"),
    [(300, 100, "idle:data-loading", LOADER), (100, 300, "idle:dispatching", "aten::mm")],
)
def test_a_stretch_is_named_by_its_longest_piece(loaded_us: int, slow_us: int, cause: str, op: str) -> None:
    for found in stretches(loading(*[loaded_us] * 3, slow_us=slow_us))[:2]:
        assert (found.cause, found.op) == (cause, op)
        assert found.end_ns - found.start_ns == pytest.approx(415 * US, abs=1)


def test_the_longest_come_first_each_with_its_step() -> None:
    """A step of a device ends where its last work does, and the wait for the next one's data is the next one's."""
    found = stretches(loading(10, 200, 400, 300))
    lengths = [one.end_ns - one.start_ns for one in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[:4] == [515 * US, 415 * US, 315 * US, 115 * US]
    assert [one.step for one in found[:3]] == [2, 3, 1]


def test_equal_stretches_are_in_time_order_and_limited() -> None:
    found = stretches(loading(*[200] * 12), most=5)
    assert len(found) == 5
    assert [one.start_ns for one in found] == sorted(one.start_ns for one in found)
    assert len(stretches(loading(*[200] * 12))) == 8


def test_of_a_window_those_that_lie_in_it() -> None:
    trace = loading(100, 900, 100, 200, 100)
    every = stretches(trace)
    assert every[0].end_ns - every[0].start_ns == 1_015 * US
    found = stretches(trace, (1_500 * US, 2_600 * US))
    assert found
    assert all(one.start_ns >= 1_500 * US and one.end_ns <= 2_600 * US for one in found)


def test_without_marks_a_stretch_is_of_no_step() -> None:
    trace = loading(200)
    trace.events = [one for one in trace.events if not one["name"].startswith("ProfilerStep")]
    assert {one.step for one in stretches(trace)} == {None}
