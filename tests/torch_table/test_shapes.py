"""Rows by the shapes of their inputs: which are one, which are apart, and what has none."""

from __future__ import annotations

from typing import Any

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
    trace.launch("cudaLaunchKernel", 1_000, 5, 1)
    trace.kernel(2_000, 30, 1)
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
