"""What is said of the op that takes most of a step: in compiled regions, on two streams, and without steps."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import NVJET, US, found
from tests.support.hotspot_programs import ADD
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding

REGION, SPAN = "Torch-Compiled Region: 0/0", 1_000 * US


def of_region(kernels: int, us: int, *, read: bool = False, graph: bool = False) -> Finding:
    """Steps of 1 ms in which a compiled region launches so many kernels; maybe reads back, or is one graph."""
    trace, number = TraceBuilder(), 0
    for step in range(5):
        begin = step * SPAN
        trace.step(step, begin, SPAN - 10 * US)
        trace.op(REGION, begin + US, 900 * US)
        gpu = begin + 30 * US
        for place in range(kernels):
            number += not (graph and place)
            if not (graph and place):
                name = "cudaGraphLaunch" if graph else "cuLaunchKernel"
                trace.launch(name, begin + (5 + 20 * place) * US, 5 * US, number)
            gpu = max(gpu, begin + (12 + 20 * place) * US)
            trace.kernel(gpu, us * US, number, name=f"triton_poi_fused_add_{place}")
            gpu += us * US
        if read:
            number += 1
            at = begin + (5 + 20 * kernels) * US
            trace.launch("cudaMemcpyAsync", at, 5 * US, number)
            trace.memcpy(max(gpu, at + 6 * US), 2 * US, number, name="Memcpy DtoH (Device -> Pinned)")
    (one,) = found(trace.load(), "hotspot")
    return one


def test_a_region_that_waits_for_its_launches_becomes_a_graph() -> None:
    one = of_region(12, 10)
    assert "it launches 12 of them one by one, without waiting" in one.message
    assert "mode='reduce-overhead'" in one.advice


@pytest.mark.parametrize(
    ("us", "read", "graph"),
    [(78, False, False), (10, True, False), (10, False, True)],
    ids=["a GPU that is busy", "reads back", "a graph already"],
)
def test_of_other_regions_the_longest_kernels_are_looked_at(us: int, read: bool, graph: bool) -> None:
    one = of_region(12, us, read=read, graph=graph)
    assert "one by one" not in one.message
    assert one.advice.startswith("Look at the longest kernels of this region.")


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
        trace.launch("cudaLaunchKernel", begin + 5 * US, 5 * US, step + 1)
        trace.kernel(begin + 20 * US, 900 * US, step + 1, name="my_kernel")
    (one,) = found(trace.load(), "hotspot")
    assert one.message.count("my_kernel") == 1
    trace = TraceBuilder()
    for step in range(3):
        begin = step * SPAN
        trace.step(step, begin, SPAN - 10 * US)
        trace.op("my::op", begin + US, 50 * US)
        trace.launch("cudaLaunchKernel", begin + 5 * US, 5 * US, step + 1)
        trace.kernel(begin + 20 * US, 900 * US, step + 1, name=ADD)
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
