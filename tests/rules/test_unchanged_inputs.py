"""What no batch and no trained parameter enters, computed again in each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.launches import POINTWISE, US, of_rule
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.finding import Confidence

EDGES, NODES = 1_600_000, 120_000
LONG, F32, NUMBER = "long int", "float", "Scalar"
Call = tuple[str, list[Any], list[str], list[str]]  # name, shapes, types, numbers

DEGREES: list[Call] = [
    ("aten::ne", [[EDGES], [EDGES]], [LONG, LONG], []),
    ("aten::ones", [[], []], ["ScalarList", NUMBER], [f"[{EDGES}]", "6"]),
    ("aten::new_zeros", [[EDGES], []], [F32, "ScalarList"], ["", f"[{NODES}]"]),
    ("aten::scatter_add_", [[NODES], [], [EDGES], [EDGES]], [F32, NUMBER, LONG, F32], ["", "0", "", ""]),
    ("aten::rsqrt", [[NODES]], [F32], []),
    ("aten::mul", [[EDGES], [EDGES]], [F32, F32], []),
]
ANGLES: Call = ("aten::outer", [[NODES], [32]], [F32, F32], [])  # a buffer of frequencies
LAYER: Call = ("aten::linear", [[NODES, 64], [64, 64], [64]], [F32] * 3, [])
RELU: Call = ("aten::relu", [[NODES, 64]], [F32], [])
SAMPLED: Call = ("aten::randint", [[], []], [NUMBER, "ScalarList"], [str(NODES), f"[{EDGES}]"])
LOOKED_UP: Call = ("aten::embedding", [[NODES, 64], [EDGES]], [F32, LONG], [])
SLICED: Call = (
    "aten::slice",
    [[2 * EDGES], [], [], [], []],
    [LONG, *[NUMBER] * 4],
    ["", "0", "0", str(EDGES), "1"],
)
HALVES: Call = ("aten::slice", [[EDGES], [], [], [], []], [LONG, *[NUMBER] * 4], ["", "0", "0", "9", "1"])


def training(
    ops: Sequence[Call], *, nodes: Sequence[str] = ("aten::linear", "aten::relu"), steps: int = 4
) -> TraceBuilder:
    """Steps of these ops, each with a kernel of 20 us, and of backward after them.

    Args:
        nodes: ops that add a node to autograd's graph.
    """
    trace, at, number, sequence = TraceBuilder(devices=[H200], record_shapes=1), 0, 0, 0
    for step in range(steps):
        begin = at
        for name, dims, types, scalars in [*ops, ("backward", [], [], [])]:
            args: dict[str, Any] = {"Input Dims": dims, "Input type": types, "Concrete Inputs": scalars}
            if name == "backward":
                name, args = "autograd::engine::evaluate_function: AddmmBackward0", {}
            else:
                args["Sequence number"] = sequence
            trace.op(name, at, 24 * US, **args)
            sequence += name in nodes
            number += 1
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 20 * US, number, name=POINTWISE)
            at += 25 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(
    ("ops", "most", "which"),
    [
        pytest.param([*DEGREES, LAYER, RELU] * 3, 3, "they take", id="a graph that stays the same"),
        pytest.param(
            [SAMPLED, *[*DEGREES, LAYER, RELU] * 3], 2, "all but the first take", id="a graph of this step"
        ),
        pytest.param([*DEGREES, ANGLES, LAYER, RELU] * 3, 3, "they take", id="with a buffer"),
        pytest.param(
            [*[HALVES, *DEGREES, LAYER, RELU] * 3], 3, "they take", id="parts of what stays the same"
        ),
    ],
)
def test_layers_compute_results_of_equal_integers_once(ops: list[Call], most: int, which: str) -> None:
    (one,) = of_rule(training(ops), "unchanged-inputs")
    assert (one.cause, one.confidence) == ("layers", Confidence.MEDIUM)
    assert f" on the same index tensors ({EDGES}) with the same result: " in one.message
    assert f"; {which} " in one.message
    again = len(DEGREES) + (ANGLES in ops)
    assert one.evidence["launches"] == most * again
    assert one.saving is not None
    assert one.saving.share == pytest.approx(most * again / (len(ops) + 1), abs=0.05)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([SAMPLED, *DEGREES, LAYER, RELU] * 3, id="edges drawn for each layer"),
        pytest.param([SLICED, *DEGREES, LAYER, RELU] * 3, id="parts of a larger batch"),
        pytest.param([*DEGREES, LOOKED_UP, LAYER, RELU] * 3, id="towers that look the integers up"),
        pytest.param([*DEGREES[3:], LAYER, RELU] * 3, id="an idiom of few ops"),
        pytest.param([*DEGREES, LAYER, RELU], id="once a step"),
        pytest.param(
            [*DEGREES[:3], ("aten::gt", [[NODES, 64], []], [F32, NUMBER], []), *DEGREES[3:], LAYER] * 3,
            id="activations enter",
        ),
    ],
)
def test_what_may_differ_from_layer_to_layer_is_not_the_same(ops: list[Call]) -> None:
    assert of_rule(training(ops), "unchanged-inputs") == []


@pytest.mark.parametrize(("layers", "often"), [(2, "twice"), (3, "3 times")])
def test_how_often_and_by_which_ops_is_told(layers: int, often: str) -> None:
    (one,) = of_rule(training([*DEGREES, LAYER, RELU] * layers), "unchanged-inputs")
    assert f"the same ops run {often} a step on the same index tensors" in one.message
    assert set(one.evidence["by_ops"]) == {name for name, *_ in DEGREES}
    assert one.evidence["gpu_ns"] == layers * len(DEGREES) * 20 * US


def test_what_a_parameter_enters_is_trained() -> None:
    """An op that adds a node to autograd's graph takes something that is trained."""
    nodes = ("aten::linear", "aten::relu", "aten::rsqrt")
    assert of_rule(training([*DEGREES, LAYER, RELU] * 3, nodes=nodes), "unchanged-inputs") == []


def test_micro_batches_are_no_layers() -> None:
    ops = [*DEGREES, LAYER, ("autograd::engine::evaluate_function: AddmmBackward0", [], [], [])] * 3
    assert of_rule(training(ops), "unchanged-inputs") == []


def test_two_steps_are_too_few() -> None:
    assert of_rule(training([*DEGREES, LAYER, RELU] * 3, steps=2), "unchanged-inputs") == []
