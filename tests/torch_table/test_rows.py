"""Rows by shapes and stacks, in torch's floats."""

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.function_events import all_events
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages
from traceanalyzer.torch_table.printed import torch_times


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
    dims: list[object] = [[[[2, 3], [4, 3]], []], [[[2, 3]], []], [[2], []]]
    trace = shaped(*(("aten::cat", one) for one in dims))
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
def test_flops_of_these_ops(name: str, dims: list[list[int]], concrete: list[str], flops: int) -> None:
    trace = TraceBuilder(with_flops=1, record_shapes=1)
    types = ["float" if shape else "Scalar" for shape in dims]
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
    trace.op(name, 0, 100, **args)
    trace.op(name, 200, 100, **args)
    (row,) = key_averages(trace.load()).rows.to_dict("records")
    assert (row["calls"], row["flops"]) == (2, 2 * flops)


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
def test_backward_ops_have_their_forward_stack(op: str, args: dict[str, Any], stack: list[str]) -> None:
    """Sequence number 3 is of a product in the model's forward; the op asked about runs in another function."""
    trace = TraceBuilder(with_stack=1)
    trace.python("model.py(7): forward", 0, 100, python_id=1)
    trace.op("aten::linear", 10, 50, **FORWARD)
    trace.python("train.py(9): backward", 200, 100, python_id=2)
    trace.op(op, 210, 50, **args)
    trace.op("aten::inner", 220, 10)
    assert stacks_of(trace, 1) == {"aten::linear": [["model.py(7): forward"]], op: [stack], "aten::inner": [stack]}


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
    forward = {"Sequence number": 0, "Fwd thread id": 0}
    ops = (("forward", "aten::linear", forward), ("backward", "MmBackward0", backward))
    for number, (file, name, args) in enumerate((*ops, ("again", "aten::addmm", forward))):
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
    stacks = [["c.py(2): f", f"{caller}.py(1): main"] for caller in "ab"]
    assert stacks_of(trace, 2) == {"aten::mm": stacks}


TIMES = ("self_cpu", "cpu", "self_device", "device")


def floats_of(trace: TraceBuilder) -> dict[Any, Any]:
    """The columns of each row by its name."""
    return by_name(key_averages(trace.load()))


def by_name(averages: KeyAverages) -> dict[Any, Any]:
    return torch_times(averages).set_index(averages.rows["name"]).to_dict("index")


def window(trace: TraceBuilder, start_us: float) -> None:
    """The profiler's own mark of the recording."""
    lane = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}
    trace.event(ph="X", cat="Trace", ts=start_us, dur=500.0, **lane)


def test_times_are_counted_from_the_mark_of_the_recording() -> None:
    """100.1 - 100 is no 0.1 in floats, as 0.1 - 0 is."""
    durations = []
    for start_us in (100.0, 0.0):
        trace = TraceBuilder()
        window(trace, start_us)
        trace.op("aten::mm", 100_000, 100)
        durations.append(floats_of(trace)["aten::mm"]["cpu_us"])
    assert durations == [0.1, 100.1 - 100.0]
    assert durations[0] != durations[1]


def test_work_of_an_op_adds_up_as_pythons_sum_does() -> None:
    """0.7 + 0.2 + 0.1 is 0.9999999999999999 where rounding errors are kept."""
    trace = TraceBuilder()
    window(trace, 0.0)
    trace.op("aten::mm", 0, 50)
    for number, dur in enumerate((700, 200, 100)):
        trace.kernel(0, dur, number + 1, stream=number, external_id=1)
    times = floats_of(trace)["aten::mm"]
    assert (times["self_device_us"], times["device_us"]) == (1.0, 1.0)


def test_floats_are_the_exact_times_in_microseconds() -> None:
    """An only child of its own name lends its kernel; what is asynchronous has nothing of its own."""
    trace = TraceBuilder()
    trace.annotation("forward", 0, 1_000)
    trace.op("aten::to", 0, 100)
    trace.op("aten::to", 10, 80)
    trace.op("aten::copy_", 20, 30)
    trace.annotation("nccl:all_reduce", 200, 300)
    trace.op("aten::inner", 210, 50)
    for number, dur in enumerate((1, 2, 4, 8, 16, 32)):
        trace.kernel(2_000 + 100 * number, dur, number + 1, external_id=number + 1)
    averages = key_averages(trace.load())
    times = by_name(averages)
    exact: dict[Any, Any] = averages.rows.set_index("name").to_dict("index")
    for name, ns in {
        "forward": [1_000 - 100 - 50, 1_000, 1, 1 + 4 + 8 + 32],
        "aten::to": [100 - 30, 100, 4, 4 + 8],
        "aten::copy_": [30, 30, 8, 8],
        "nccl:all_reduce": [0, 300, 0, 0],
        "aten::inner": [50, 50, 32, 32],
    }.items():
        assert [exact[name][f"{time}_ns"] for time in TIMES] == ns
        us = [times[name][f"{time}_us"] for time in TIMES]
        assert us == pytest.approx([value / 1_000 for value in ns]), name


def test_origin_is_the_first_event_without_a_mark() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 7_000, 100)
    unmarked = all_events(trace.load(), python=False)
    assert (unmarked.origin_ns, unmarked.start_ns.tolist()) == (7_000, [7_000])
    window(trace, 5.0)
    marked = all_events(trace.load(), python=False)
    assert (marked.origin_ns, marked.start_ns.tolist()) == (5_000, [7_000])
