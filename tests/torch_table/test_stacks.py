"""Rows by their python frames: which frames count, from where outward, and what backward shows instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.key_averages import key_averages

FORWARD: dict[str, Any] = {"Sequence number": 3, "Fwd thread id": 0}


def stacks_of(trace: TraceBuilder, frames: int, **options: bool) -> dict[str, list[list[str]]]:
    """The stacks of each row by its name, in order of first sight."""
    found: dict[str, list[list[str]]] = {}
    for row in key_averages(trace.load(), by_stack=frames, **options).rows.to_dict("records"):
        found.setdefault(row["name"], []).append(row["stack"])
    return found


def framed(*names: str) -> TraceBuilder:
    """Frames one within the other, and an op within the last."""
    trace = TraceBuilder(with_stack=1)
    for number, name in enumerate(names):
        trace.python(name, 10 * number, 1_000 - 20 * number, python_id=number + 1, parent=number or None)
    trace.op("aten::mm", 400, 10)
    return trace


@pytest.mark.parametrize(
    "frame",
    [
        "torch/autograd/__init__.py(30): _make_grads",
        "torch/autograd/__init__.py(90): backward",
        "torch/tensor.py(50): backward",
        "torch/testing/_internal/common_utils.py(7): prof_callable",
        "torch/testing/_internal/common_utils.py(8): prof_func_call",
        "torch/testing/_internal/common_utils.py(9): prof_meth_call",
    ],
)
def test_frames_that_torch_leaves_out_take_no_place_in_a_stack(frame: str) -> None:
    stacks = stacks_of(framed("train.py(1): main", "train.py(2): step", frame), 2)
    assert stacks == {"aten::mm": [["train.py(2): step", "train.py(1): main"]]}


@pytest.mark.parametrize(
    "frame", ["torch/tensor.py(50): sum", "model.py(50): backward", "torch/nn/__init__.py(3): _make_grads"]
)
def test_other_functions_of_the_files_are_shown(frame: str) -> None:
    assert stacks_of(framed("train.py(1): main", frame), 1) == {"aten::mm": [[frame]]}


def test_a_python_function_has_the_stack_of_its_caller() -> None:
    stacks = stacks_of(framed("train.py(1): main", "train.py(2): step"), 2, python_functions=True)
    assert stacks == {
        "train.py(1): main": [[]],
        "train.py(2): step": [["train.py(1): main"]],
        "aten::mm": [["train.py(2): step", "train.py(1): main"]],
    }


@pytest.mark.parametrize(
    ("op", "args", "stack"),
    [
        ("MmBackward0", {"Sequence number": 3, "Fwd thread id": 1}, ["model.py(7): forward"]),
        ("MmBackward0", {"Sequence number": 4, "Fwd thread id": 1}, []),
        ("aten::mm", {"Sequence number": 3, "Fwd thread id": 0}, ["train.py(9): backward"]),
        ("aten::mm", {"Fwd thread id": 1}, ["train.py(9): backward"]),
        ("torch::autograd::AccumulateGrad", {}, []),
        (
            "autograd::engine::evaluate_function: MmBackward0",
            {"Sequence number": 3, "Fwd thread id": 1},
            ["train.py(9): backward"],
        ),
    ],
    ids=["its forward op", "forward is not there", "a forward op", "no number", "a leaf", "the engine's own"],
)
def test_backward_ops_have_the_stack_of_their_forward_op(
    op: str, args: dict[str, Any], stack: list[str]
) -> None:
    """Sequence number 3 is of a product in the model's forward; the op asked about runs in another function."""
    trace = TraceBuilder(with_stack=1)
    trace.python("model.py(7): forward", 0, 100, python_id=1)
    trace.op("aten::linear", 10, 50, **FORWARD)
    trace.python("train.py(9): backward", 200, 100, python_id=2)
    trace.op(op, 210, 50, **args)
    trace.op("aten::inner", 220, 10)
    assert stacks_of(trace, 1) == {
        "aten::linear": [["model.py(7): forward"]],
        op: [stack],
        "aten::inner": [stack],
    }


def test_what_runs_first_says_nothing_of_python_functions() -> None:
    """The first row of all is a leaf of the backward pass, which has no stack."""
    trace = TraceBuilder(with_stack=1)
    trace.op("torch::autograd::AccumulateGrad", 0, 5)
    trace.python("train.py(1): main", 100, 500, python_id=1)
    trace.python("train.py(2): step", 110, 400, python_id=2, parent=1)
    trace.op("aten::mm", 120, 50)
    assert stacks_of(trace, 2, python_functions=True) == {
        "torch::autograd::AccumulateGrad": [[]],
        "train.py(1): main": [[]],
        "train.py(2): step": [["train.py(1): main"]],
        "aten::mm": [["train.py(2): step", "train.py(1): main"]],
    }


def test_first_forward_op_of_a_number_counts_not_backward() -> None:
    """Numbers begin at 0; the op in backward that has the number, too, comes before the second forward op."""
    trace = TraceBuilder(with_stack=1)
    backward = {"Sequence number": 0, "Fwd thread id": 1}
    for number, (file, name, args) in enumerate(
        (
            ("forward", "aten::linear", {**FORWARD, "Sequence number": 0}),
            ("backward", "MmBackward0", backward),
            ("again", "aten::addmm", {**FORWARD, "Sequence number": 0}),
        )
    ):
        trace.python(f"{file}.py(1): f", 1_000 * number, 500, python_id=number + 1)
        trace.op(name, 1_000 * number + 100, 100, **args)
    found = stacks_of(trace, 1)
    assert found["MmBackward0"] == [["forward.py(1): f"]]
    assert found["aten::addmm"] == [["again.py(1): f"]]


@pytest.mark.parametrize(("at", "stack"), [(99, []), (100, ["a.py(1): f"]), (200, ["a.py(1): f"]), (201, [])])
def test_a_frame_runs_from_its_first_to_its_last_nanosecond(at: int, stack: list[str]) -> None:
    trace = TraceBuilder(with_stack=1)
    trace.python("a.py(1): f", 100, 100, python_id=1)
    trace.op("aten::mm", at, 5)
    trace.kernel(150, 10, 1)
    assert stacks_of(trace, 4) == {"aten::mm": [stack], "void kernel(float*)": [[]]}


def test_rows_part_by_as_many_frames_as_are_asked_for() -> None:
    """Two callers of one function."""
    trace = TraceBuilder(with_stack=1)
    for number, caller in enumerate("ab"):
        trace.python(f"{caller}.py(1): main", 1_000 * number, 900, python_id=2 * number + 1)
        trace.python("c.py(2): f", 1_000 * number + 10, 800, python_id=2 * number + 2)
        trace.op("aten::mm", 1_000 * number + 20, 30)
    assert stacks_of(trace, 1) == {"aten::mm": [["c.py(2): f"]]}
    assert stacks_of(trace, 2) == {
        "aten::mm": [["c.py(2): f", "a.py(1): main"], ["c.py(2): f", "b.py(1): main"]]
    }
