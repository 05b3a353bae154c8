"""Sparse tensors that are coalesced again by each op that takes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import TraceBuilder
from tests.rules.programs import US, found

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
