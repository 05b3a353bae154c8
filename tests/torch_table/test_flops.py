"""The FLOPs that torch's table counts: of seven ops, and of no other."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.key_averages import key_averages

CONV = [[2, 3, 10, 12], [8, 3, 3, 3], [8], [], [], [], []]


@pytest.mark.parametrize(
    ("name", "dims", "concrete", "flops"),
    [
        ("aten::mm", [[4, 5], [5, 6]], ["", ""], 2 * 4 * 5 * 6),
        ("aten::bmm", [[7, 4, 5], [7, 5, 6]], ["", ""], 7 * 2 * 4 * 5 * 6),
        ("aten::addmm", [[6], [4, 5], [5, 6], [], []], ["", "", "", "1", "1"], 2 * 4 * 5 * 6),
        ("aten::baddbmm", [[6], [7, 4, 5], [7, 5, 6], [], []], ["", "", "", "1", "1"], 7 * 2 * 4 * 5 * 6),
        ("aten::mul", [[4, 5], [4, 5]], ["", ""], 20),
        ("aten::add", [[4, 5], [4, 5], []], ["", "", "1"], 20),
        ("aten::sub", [[4, 5], [4, 5], []], ["", "", "1"], 0),
        ("aten::mm", [[4, 5]], [""], 0),
        # 8 channels of 10 x 12 with a border of 1 and steps of 1 and 2: 10 x 6 of 27 products each, twice
        ("aten::conv2d", CONV, ["", "", "", "[1, 2]", "[1, 1]", "[1, 1]", "1"], 2 * 2 * 8 * 10 * 6 * 27),
    ],
)
def test_flops_cover_gemms_convolutions_and_sums(
    name: str, dims: list[list[int]], concrete: list[str], flops: int
) -> None:
    trace = TraceBuilder(with_flops=1, record_shapes=1)
    types = ["float" if shape else "Scalar" for shape in dims]
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
    trace.op(name, 0, 100, **args)
    trace.op(name, 200, 100, **args)
    (row,) = key_averages(trace.load()).rows.to_dict("records")
    assert (row["calls"], row["flops"]) == (2, 2 * flops)
