"""The hottest op of a step."""

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, found, program
from tests.support.hotspot_programs import ADD
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.report.facts import rates

SPAN = 1_000 * US
CAST = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda(float)#1}, Arrays>(int)"
)


def streams(count: int, *, marked: bool = True) -> Finding:
    """An op whose kernels take 900 of 1,000 us on each of some streams at once."""
    trace, number = TraceBuilder(), 0
    for step in range(4):
        begin = step * SPAN
        if marked:
            trace.step(step, begin, SPAN - 10 * US)
        trace.op("aten::conv2d", begin + US, 80 * US)
        for stream in range(count):
            number += 1
            trace.launch("cudaLaunchKernel", begin + (5 + 8 * stream) * US, 5 * US, number)
            trace.kernel(begin + 50 * US, 900 * US, number, name=NVJET, stream=7 + stream)
    (one,) = found(trace.load(), "hotspot")
    return one


def test_what_runs_at_the_same_time_adds_up_to_more_than_a_step() -> None:
    one = streams(2)
    assert "takes 1.80 ms of GPU time a step, 100.0 % of all GPU work" in one.message
    assert one.evidence["part_share"] == 1.0
    alone = streams(1)
    assert alone.message.startswith("aten::conv2d takes 900 ")
    assert 0.89 < alone.evidence["part_share"] < 1
    assert "at the same time" not in alone.message


def test_without_steps_the_recording_is_one() -> None:
    one = streams(1, marked=False)
    assert (one.evidence["gpu_ns"], one.count) == (4 * 900 * US, 4)


def test_the_only_kernel_of_a_custom_op_is_not_told_twice() -> None:
    trace = TraceBuilder()
    for step in range(3):
        begin = step * SPAN
        trace.step(step, begin, SPAN - 10 * US)
        trace.launched((begin + 5 * US, 5 * US), (begin + 20 * US, 900 * US), step + 1, name="my_kernel")
    (one,) = found(trace.load(), "hotspot")
    assert one.message.count("my_kernel") == 1
    trace = TraceBuilder()
    for step in range(3):
        begin = step * SPAN
        trace.step(step, begin, SPAN - 10 * US)
        trace.op("my::op", begin + US, 50 * US)
        trace.launched((begin + 5 * US, 5 * US), (begin + 20 * US, 900 * US), step + 1, name=ADD)
    (other,) = found(trace.load(), "hotspot")
    assert "; its kernels: vectorized_elementwise_kernel" in other.message


def test_without_prediction_shares_are_of_recorded_steps() -> None:
    """No launch is in the file: four steps of a millisecond, with 900 us of work each."""
    trace = TraceBuilder()
    for step in range(4):
        begin = step * SPAN
        trace.step(step, begin, SPAN)
        trace.kernel(begin + 50 * US, 900 * US, step + 1, name=NVJET)
    (one,) = found(trace.load(), "hotspot")
    assert one.evidence["part_share"] == pytest.approx(0.9, rel=0.05)
    assert "of the recorded step" in one.message


def test_more_than_memory_delivers_comes_from_caches() -> None:
    add = Op("aten::add", ADD, 10, [[8192, 8192], [8192, 8192]], [F32, F32])
    (one,) = found(program([add]), "hotspot")
    assert (one.cause, "or from caches" in one.message) == ("memory", True)


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("at::cuda::(anonymous namespace)::spin_kernel(long)", "at::cuda::spin_kernel"),
        (CAST, "vectorized_elementwise_kernel(bfloat16_copy_kernel)"),
        ("void at::native::reduce_kernel<8, 1, at::native::ReduceOp<float> >(int)", "reduce_kernel(ReduceOp)"),
    ],
)
def test_kernels_have_short_names(kernel: str, short: str) -> None:
    assert short_kernel(kernel) == short


def test_no_op_reaches_more_than_the_peak() -> None:
    quick = program([Op("aten::mm", NVJET, 50, [[4096, 4096], [4096, 4096]], [BF16, BF16])])
    (one,) = found(quick, "hotspot")
    assert "its shapes need more operations than the device does in this time (990 TFLOP/s)" in one.message
    assert "reaches" not in one.message
    (rate,) = [fact for fact in rates(Analysis(quick)) if fact.values["kind"] == "matmul"]
    assert "more than the peak of 990" in rate.text
    assert " % of the peak" not in rate.text


@pytest.mark.parametrize(
    ("kind", "size", "cause"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 1 << 20, "link"),
        ("Memcpy HtoD (Pageable -> Device)", 0, "link"),
        ("Memcpy DtoD (Device -> Device)", 1 << 20, "copies"),
    ],
)
def test_what_copies_is_limited_by_where_it_copies(kind: str, size: int, cause: str) -> None:
    trace = TraceBuilder()
    for step in range(3):
        begin = step * 1_000 * US
        trace.step(step, begin, 990 * US)
        trace.op("aten::copy_", begin + 1 * US, 20 * US)
        trace.copied((begin + 2 * US, 3 * US), (begin + 10 * US, 900 * US), step + 1, name=kind, size=size)
    (one,) = found(trace.load(), "hotspot")
    assert one.cause == cause
    assert "Nsight" not in one.advice
