"""One call that stands still many times longer than its kind; stretches that are neither python's nor the code's."""

from __future__ import annotations

import pytest

from tests.idle.one_gap import FIRST, LATE, US, gap, judged
from tests.support.trace_builder import TraceBuilder


def test_a_call_that_takes_many_times_its_usual_is_named() -> None:
    trace = gap()
    for number in range(5):
        trace.op("aten::empty", 1_100 * US + 20 * US * number, 10 * US)
    trace.op("aten::empty", 5 * US, 1 * US)  # not the first of its name, else it were first use
    trace.op("aten::empty", FIRST + 10 * US, 800 * US)
    assert judged(trace) == ("long-call", "aten::empty", "aten::empty")


def test_calls_that_always_take_so_long_are_not_unusual() -> None:
    trace = gap()
    trace.op("aten::empty", 1_100 * US, 800 * US)
    trace.op("aten::empty", FIRST + 10 * US, 800 * US)
    assert judged(trace)[0] == "dispatching"


def test_a_synchronising_call_is_no_long_call() -> None:
    trace = gap()
    for number in range(5):
        trace.launch("cudaStreamSynchronize", 1_100 * US + 20 * US * number, 2 * US, 50 + number)
    trace.launch("cudaStreamSynchronize", FIRST - 20 * US, 820 * US, 9)
    assert judged(trace)[0] == "synchronisation"


def test_python_is_not_blamed_for_the_autograd_engines_thread() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.python("run_backward", 10 * US, 1_900 * US, python_id=1)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, FIRST - 28 * US, 1)
    trace.op("autograd::engine::evaluate_function: MmBackward0", LATE - 10 * US, 20 * US, tid=77)
    trace.launch("cudaLaunchKernel", LATE - 8 * US, 5 * US, 2, tid=77)
    trace.kernel(LATE, 50 * US, 2)
    assert judged(trace)[0] == "engine"


def test_what_the_profilers_own_step_takes_is_the_profilers() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, FIRST)
    trace.step(1, LATE - 50 * US, 200 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, FIRST - 28 * US, 1)
    trace.op("aten::add", LATE - 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", LATE - 8 * US, 5 * US, 2)
    trace.kernel(LATE, 50 * US, 2)
    assert judged(trace)[0] == "profiler-overhead"


@pytest.mark.parametrize(("took", "cause"), [(900, "dispatching"), (1_100, "first-use")])
def test_single_call_is_unusual_from_one_millisecond(took: int, cause: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, FIRST - 28 * US, 1)
    trace.launch("cudaFuncSetAttribute", FIRST + 10 * US, took * US, 9)
    end = FIRST + (took + 30) * US
    trace.launch("cudaLaunchKernel", end - 8 * US, 5 * US, 2)
    trace.kernel(end, 50 * US, 2)
    assert judged(trace)[0] == cause


def test_the_thread_of_the_users_annotations_is_no_engines() -> None:
    """Where no thread of its own runs the backward pass, python may run between its ops."""
    trace = gap()
    trace.op("autograd::engine::evaluate_function: MmBackward0", 40 * US, 5 * US)
    assert judged(trace)[0] == "host-code"
