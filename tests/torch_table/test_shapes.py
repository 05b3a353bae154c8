"""Rows by the shapes of their inputs, and the FLOPs that follow: of seven ops, and of no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.key_averages import key_averages


def shaped(*ops: tuple[str, object], **header: Any) -> TraceBuilder:
    """Ops of 10 ns with these shapes of their inputs."""
    trace = TraceBuilder(record_shapes=1, **header)
    for number, (name, dims) in enumerate(ops):
        args: dict[str, Any] = {} if dims is None else {"Input Dims": dims}
        trace.op(name, 100 * number, 10, **args)
    return trace


def rows_of(trace: TraceBuilder) -> list[tuple[str, str, int]]:
    """(name, shapes, calls) of each row."""
    rows = key_averages(trace.load(), by_input_shape=True).rows.to_dict("records")
    return [(row["name"], row["input_shapes"], row["calls"]) for row in rows]


def test_calls_of_one_op_are_apart_by_the_shapes_of_their_inputs() -> None:
    """In order of first sight."""
    trace = shaped(
        ("aten::mm", [[8, 2], [2, 4]]),
        ("aten::add", [[8, 2], [2, 4]]),
        ("aten::mm", [[2, 8], [8, 4]]),
        ("aten::mm", [[8, 2], [2, 4]]),
    )
    assert rows_of(trace) == [
        ("aten::mm", "[[8, 2], [2, 4]]", 2),
        ("aten::add", "[[8, 2], [2, 4]]", 1),
        ("aten::mm", "[[2, 8], [8, 4]]", 1),
    ]


def test_missing_shapes_are_empty_whatever_the_first_op_has() -> None:
    """Kernels, memory and calls, too; an op with no inputs and one that says nothing share a row."""
    trace = shaped(("aten::mm", [[8, 2]]), ("aten::rand", []), ("aten::rand", None), profile_memory=1)
    trace.launched((1_000, 5), (2_000, 30), 1)
    trace.memory(5_000, 512)
    assert rows_of(trace) == [
        ("aten::mm", "[[8, 2]]", 1),
        ("aten::rand", "[]", 2),
        ("cudaLaunchKernel", "[]", 1),
        ("void kernel(float*)", "[]", 1),
        ("[memory]", "[]", 1),
    ]


def test_lists_of_tensors_of_other_lengths_share_a_row() -> None:
    """Their shapes are not shown; those of a scalar are, as none."""
    trace = shaped(
        ("aten::cat", [[[2, 3], [4, 3]], []]), ("aten::cat", [[[2, 3]], []]), ("aten::cat", [[2], []])
    )
    assert rows_of(trace) == [("aten::cat", "[[], []]", 2), ("aten::cat", "[[2], []]", 1)]


def test_without_shapes_rows_are_those_of_names() -> None:
    trace = shaped(("aten::mm", [[8, 2]]), ("aten::mm", [[2, 8]]))
    rows = key_averages(trace.load()).rows
    assert rows["calls"].tolist() == [2]
    assert "input_shapes" not in rows


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
