"""Sparse tensors that are coalesced again by each op that takes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.programs import US, found
from tests.support.trace_builder import TraceBuilder

SORT = "void at_cuda_detail::cub::detail::merge_sort::DeviceMergeSortBlockSortKernel<int>(int)"
MAKES = "aten::_sparse_coo_tensor_with_dims_and_tensors"
SHAPE: dict[str, Any] = {"Input Dims": [[4_096, 4_096]], "Input type": ["float"], "Concrete Inputs": [""]}


def iterating(
    *,
    products: int = 4,
    made: int = 0,
    asks: str = "aten::_sparse_mm",
    makes: str = MAKES,
    coalesces: str = "aten::_coalesce",
    shapes: bool = True,
) -> TraceBuilder:
    """Steps of products of a sparse tensor, before the first `made` of which one is made; each sorts, and waits."""
    trace, at, number = TraceBuilder(record_shapes=int(shapes)), 0, 0
    inputs = SHAPE if shapes else {}
    for step in range(4):
        begin = at
        for product in range(products):
            if product < made:
                trace.op(makes, at, 5 * US)
                at += 10 * US
            trace.op(asks, at, 180 * US)
            trace.op(coalesces, at + 5 * US, 140 * US, **inputs)
            trace.op(MAKES, at + 130 * US, 5 * US)
            for begins, took, name in ((10, 100, SORT), (150, 10, "spmm_kernel")):
                number += 1
                trace.launch("cudaLaunchKernel", at + begins * US, 5 * US, number)
                trace.kernel(at + (begins + 8) * US, took * US, number, name=name)
            trace.launch("cudaStreamSynchronize", at + 20 * US, 100 * US, 100_000 + number)
            at += 190 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(
    ("trace", "again"),
    [
        pytest.param(iterating(), 4, id="made before the recording"),
        pytest.param(iterating(products=6, made=1), 5, id="made in each step, and used six times"),
        pytest.param(iterating(asks="aten::addmm", products=3), 3, id="another op"),
        pytest.param(iterating(asks="MmBackward0", shapes=False), 4, id="backward, without shapes"),
    ],
)
def test_a_tensor_that_each_product_sorts_again(trace: TraceBuilder, again: int) -> None:
    (one,) = found(trace, "uncoalesced-sparse")
    assert one.count == 4 * again
    assert one.evidence["spent_ns"] == 4 * again * 100 * US
    assert one.cost_ns >= one.evidence["spent_ns"]
    assert "sorted and added again" in one.message
    assert "coalesce() once" in one.advice
    assert one.saving is not None
    assert one.saving.share > 0.4


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(iterating(made=4), id="a tensor for each, such as a sparse gradient"),
        pytest.param(iterating(made=4, makes="aten::_sparse_coo_tensor_unsafe"), id="made without checks"),
        pytest.param(iterating(products=4, made=2), id="each tensor twice, or two that were made together"),
        pytest.param(iterating(coalesces="aten::coalesce"), id="a tensor that is coalesced: nothing is done"),
    ],
)
def test_tensors_that_are_sorted_once_are_left_alone(trace: TraceBuilder) -> None:
    assert found(trace, "uncoalesced-sparse") == []


@pytest.mark.parametrize(("products", "said"), [(2, False), (3, True)])
def test_three_times_for_each_tensor_that_is_made_is_too_often(products: int, said: bool) -> None:
    assert bool(found(iterating(products=products, made=1), "uncoalesced-sparse")) is said


def test_the_ops_that_ask_are_named_and_the_waits_for_the_sorts_are_lost_too() -> None:
    (one,) = found(iterating(), "uncoalesced-sparse")
    assert set(one.evidence["callers"]) == {"aten::_sparse_mm"}
    assert one.cost_ns > one.evidence["spent_ns"]
    assert "aten::_sparse_mm" in one.message


def test_of_each_shape_the_first_after_a_tensor_is_made_is_needed() -> None:
    """Six products in a step, by turns with one of two tensors: each is coalesced three times."""
    trace = iterating(products=6, made=1)
    for at, event in enumerate(one for one in trace.events if one["name"] == "aten::_coalesce"):
        if at % 2:
            event["args"]["Input Dims"] = [[512, 512]]
    assert [one.count for one in found(trace, "uncoalesced-sparse")] == [4 * 2] * 2


def test_what_is_before_the_first_step_is_no_tensor_of_a_step() -> None:
    """Its tensor is coalesced while the program starts."""
    trace = iterating()
    for one in trace.events:
        one["ts"] += 1_000
    trace.op("aten::_coalesce", 0, 900 * US, **SHAPE)
    (one,) = found(trace, "uncoalesced-sparse")
    assert one.count == 16
