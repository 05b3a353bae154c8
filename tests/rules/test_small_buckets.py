"""Small gradient buckets."""

from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.rules.communication.small_buckets import joined_ns, larger_buckets

REDUCES = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TO_FLOAT = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>>"
)
HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
NODE = "autograd::engine::evaluate_function: MmBackward0"


@pytest.mark.parametrize(
    ("step", "sizes", "bucket", "surplus"),
    [
        ([0, 0, 0, 0], [4, 4, 4, 4], [0, 0, 0, 1], [1, 1, 0, 0]),  # begins where 10 are full
        ([0, 0, 0], [5, 5, 5], [0, 0, 1], [1, 0, 0]),
        ([0, 0, 1, 1], [4, 4, 4, 4], [0, 0, 1, 1], [1, 0, 1, 0]),  # each step anew
        ([0, 0, 0], [30, 1, 1], [0, 1, 1], [0, 1, 0]),  # a large one stays whole
        ([3], [1], [0], [0]),
    ],
)
def test_buckets_hold_whole_gradients_of_one_step(
    step: list[int], sizes: list[int], bucket: list[int], surplus: list[int]
) -> None:
    """Of 10 bytes each."""
    found, gone = larger_buckets(np.array(step), np.array(sizes), 10)
    assert found.tolist() == bucket
    assert gone.astype(int).tolist() == surplus


@pytest.mark.parametrize(
    ("sizes", "as_made", "took", "left"),
    [
        ([10, 20, 30], [10, 20, 30], [120.0, 140.0, 160.0], [160.0, 160.0]),  # 100 and 2 a byte
        ([10, 20, 30], [5, 10, 15], [120.0, 140.0, 160.0], [130.0, 130.0]),  # half as wide
        ([10, 10, 10], [10, 10, 10], [120.0, 120.0, 130.0], [120.0, 120.0]),  # of one size: latency alone
        ([10, 20, 30], [10, 20, 30], [160.0, 140.0, 120.0], [140.0, 140.0]),  # no byte takes less than none
        ([10, 20, 30], [10, 20, 30], [20.0, 40.0, 61.0], [61.5, 61.5]),
    ],
)
def test_a_bucket_takes_one_latency_and_the_time_of_its_bytes(
    sizes: list[int], as_made: list[int], took: list[float], left: list[float]
) -> None:
    """The first two in one bucket, the third in another."""
    made = joined_ns(np.array(sizes), np.array(as_made), np.array(took), np.array([0, 0, 1]))
    assert made.tolist() == pytest.approx(left, abs=0.01)


def reducing(
    count: int,
    elements: int,
    *,
    by_hook: bool = False,
    dtype: str = "Float",
    before: int = 0,
    backward: bool = True,
    evaluated: int = 0,
    converts: int = 0,
    first: bool = True,
) -> list[Finding]:
    """Four steps of a backward pass and so many all-reduces of 100 us.

    Args:
        by_hook: the reducer's hooks start them, in the backward pass.
        converts: so many conversions come before each.
        first: also before the first of all.
        evaluated: steps at the end without a backward pass.
        before: so many of them begin before the last node of the backward pass ends.
    """
    trace, number, at = TraceBuilder(distributedInfo={"rank": 0, "world_size": 2}), 0, 0
    args: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements}
    for step in range(4):
        begin = at
        for place in range(-1, count):
            number += 1
            if backward and step < 4 - evaluated and place <= before - 1 and not by_hook:
                trace.op(NODE, at, 110 * US if place < 0 else 120 * US, tid=2000)
            if place < 0:
                trace.op("aten::mm", at + US, 80 * US, tid=2000)
                trace.launched((at + 5 * US, 5 * US), (at + 20 * US, 80 * US), tid=2000, name="gemm")
            else:
                for _ in range(converts if first or step or place else 0):
                    trace.op("aten::copy_", at - 30 * US, 12 * US)
                    trace.launch("cudaLaunchKernel", at - 28 * US, 5 * US, 10_000 * (number + 1))
                    trace.kernel(at - 15 * US, 5 * US, 10_000 * (number + 1), name=TO_FLOAT)
                    number, at = number + 1, at + 30 * US
                if by_hook:
                    trace.op(HOOK, at, 90 * US)
                trace.op("c10d::allreduce_", at + US, 80 * US)
                trace.op("record_param_comms", at + 2 * US, 70 * US, dtype=dtype, **args)
                trace.launched((at + 5 * US, 5 * US), (at + 20 * US, 100 * US), name=REDUCES)
            at += 130 * US
        trace.step(step, begin, at - begin - US)
    return of_rule(trace, "small-buckets")


@pytest.mark.parametrize(
    ("count", "elements", "needed"),
    [
        (8, 1 << 20, 2),  # of 4 MiB each
        (12, 1 << 20, 2),
        (13, 1 << 20, 2),
        (7, 1 << 20, 1),
        (8, 5 << 18, None),  # 5 MiB: a fifth of the usual
        (8, (5 << 18) - 1, 2),
        (2, 1 << 18, 1),
        (1, 1 << 18, None),
    ],
)
def test_buckets_below_a_fifth_of_usual_size_are_small(count: int, elements: int, needed: int | None) -> None:
    found = reducing(count, elements, by_hook=True)
    assert [one.cause for one in found] == ["small"] * (needed is not None)
    for one in found:
        assert (one.evidence["calls"], one.evidence["needed"]) == (count, needed)
        assert one.evidence["mean_bytes"] == 4 * elements
        assert f"in {count} all-reduces a step" in one.message
        assert f"would make {needed} bucket{'s' if needed != 1 else ''} of them" in one.message


@pytest.mark.parametrize(
    ("dtype", "elements"), [("Float", 1 << 20), ("BFloat16", 2 << 20), ("Double", 1 << 19), ("Int", 1 << 20)]
)
def test_a_buckets_size_is_that_of_its_type(dtype: str, elements: int) -> None:
    (one,) = reducing(8, elements, by_hook=True, dtype=dtype)
    assert one.evidence["mean_bytes"] == 4 << 20
    assert "DistributedDataParallel reduces 32.0 MiB in 8 all-reduces" in one.message


@pytest.mark.parametrize(
    ("how", "count", "size"),
    [
        ({"count": 4}, 4, "16.0 MiB"),
        ({"count": 3}, 0, ""),  # no loop over parameters
        ({"elements": 16_384}, 8, "512 KiB"),
        ({"elements": 16_383}, 0, ""),  # values to log
        ({"before": 3}, 5, "20.0 MiB"),
        ({"before": 5}, 0, ""),
        ({"backward": False}, 0, ""),
    ],
)
def test_a_loop_over_parameters_reduces_after_the_backward_pass(how: dict[str, Any], count: int, size: str) -> None:
    found = reducing(**{"count": 8, "elements": 1 << 20, **how})
    assert [(one.cause, one.count) for one in found] == [("after-backward", 4 * count)] * bool(count)
    for one in found:
        assert one.message.startswith(
            f"after the backward pass, {size} of gradients are reduced one by one, in {count} all-reduces a step"
        )


@pytest.mark.parametrize(("converts", "wider"), [(2, True), (1, False), (0, False)])
def test_converted_gradients_are_reduced_in_their_dtype(converts: int, wider: bool) -> None:
    """So many conversions before each all-reduce: there, and those back of the one before."""
    (one,) = reducing(8, 1 << 20, converts=converts)
    assert ("converted to a wider type (32.0 MiB) and reduced" in one.message) is wider
    assert one.message.startswith(f"after the backward pass, {16 if wider else 32}.0 MiB of gradients are ")
    assert one.advice.endswith("in their own type.") is wider


def test_partly_converted_gradients_are_not_widened() -> None:
    (one,) = reducing(8, 1 << 20, converts=2, first=False)
    said = "after the backward pass, 32.0 MiB of gradients are reduced one by one, in"
    assert one.message.startswith(said)


def test_step_without_backward_has_no_reduction_after_it() -> None:
    """Eight all-reduces in each of two steps of training, and in two of evaluation."""
    (one,) = reducing(8, 1 << 20, evaluated=2)
    assert (one.cause, one.count, one.steps) == ("after-backward", 2 * 8, 2)
