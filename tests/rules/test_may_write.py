"""Which ops may have written a tensor of so many elements, as far as their inputs tell."""

from __future__ import annotations

import pytest

from tests.support.op_calls import op, signature
from traceanalyzer.rules.tensors.repeated_preparation import may_write, sizes_changed
from traceanalyzer.tensors.signatures import Signature

F32, LONG = "float", "long int"


@pytest.mark.parametrize(
    ("call", "elements", "may"),
    [
        (op("add", [4, 5], [5]), 20, True),
        (op("add", [4, 5], [5]), 5, False),  # its input
        (op("mm", [4, 5], [5, 6]), 24, True),
        (op("mm", [4, 5], [5, 6]), 20, False),
        (op("sum", [4, 6], "[1]"), 4, True),
        (op("sum", [4, 6], "[1]"), 5, False),
        (op("sum", [4, 6], "[1]"), 48, False),
        (op("median", [4, 6]), 25, False),  # fewer than it reads
        (op("median", [4, 6]), 24, None),
        (op("prod", [4, 6], "1"), 4, True),
        (op("prod", [4, 6], "1"), 5, False),
        (op("hypot", [4, 1], [5]), 20, True),  # as both broadcast
        (op("hypot", [4, 1], [5]), 9, False),
        (op("embedding", [9, 8], [5, 2]), 80, True),
        (op("embedding", [9, 8], [5, 2]), 72, False),
        (op("embedding_dense_backward", [10, 8], [10], "9"), 72, True),
        (op("embedding_dense_backward", [10, 8], [10], "9"), 80, False),
        (op("index_select", [9, 8], "0", [5]), 40, True),
        (op("index_select", [9, 8], "1", [5]), 45, True),
        (op("index_select", [9, 8], "1", [5]), 40, False),
        (op("gather", [9, 8], "1", [9, 2]), 18, True),
        (op("gather", [9, 8], "1", [9, 2]), 16, False),
        (op("cudnn_convolution", [2, 3, 8], [5, 3, 3], "[1]", "[1]", "[1]", "1"), 80, True),
        (op("cudnn_convolution", [2, 3, 8], [5, 3, 3], "[1]", "[1]", "[1]", "1"), 48, False),
        (op("convolution_backward", [2, 5, 8], [2, 3, 8], [5, 3, 3]), 45, True),
        (op("convolution_backward", [2, 5, 8], [2, 3, 8], [5, 3, 3]), 40, False),
        (op("cumsum", [4, 6], "1"), 24, True),
        (op("zero_", [4, 6]), 24, True),
        (op("zero_", [4, 6]), 6, False),
        (op("_softmax_backward_data", [4, 6], [4, 6]), 24, True),
        (op("nobody_knows", [4, 6]), 24, None),
        (signature("arange", [[]] * 5, ["Scalar"] * 5, "24"), 24, True),
        (signature("arange", [[]] * 5, ["Scalar"] * 5, "24"), 25, False),
        (
            Signature("mylib::fill_", ([4, 6],), (F32,), ("",)),
            24,
            None,
        ),  # no op of torch: it may write anything
    ],
)
def test_an_op_writes_what_it_makes(call: Signature, elements: int, may: bool | None) -> None:
    assert may_write(call, elements) is may


@pytest.mark.parametrize(
    ("calls", "changed"),
    [
        ([op("add_", [4, 5], [5])], {20, 5}),
        ([op("add", [4, 5], [5])], set()),
        ([op("slice", [9, 5], "0", "0", "4", "1"), op("zero_", [4, 5])], {20, 45}),  # a part of it
        ([op("slice", [9, 5], "0", "0", "3", "1"), op("zero_", [4, 5])], {20}),
        ([op("slice", [9, 5], "0", "many", "3", "1")], {45}),  # of which nobody knows what it takes
        ([Signature("mylib::fill", ([4, 6],), (F32,), ("",))], {24}),
    ],
)
def test_in_place_writes_may_be_parts_of_larger_tensors(calls: list[Signature], changed: set[int]) -> None:
    assert sizes_changed(calls) == changed
