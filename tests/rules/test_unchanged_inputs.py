"""What no batch and no trained parameter enters, computed again in each layer."""

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
LAYER: Call = ("aten::linear", [[NODES, 64], [64, 64], [64]], [F32] * 3, [])
RELU: Call = ("aten::relu", [[NODES, 64]], [F32], [])
SAMPLED: Call = ("aten::randint", [[], []], [NUMBER, "ScalarList"], [str(NODES), f"[{EDGES}]"])
LOOKED_UP: Call = ("aten::embedding", [[NODES, 64], [EDGES]], [F32, LONG], [])
SLICE_INPUTS = [[2 * EDGES], [], [], [], []], [LONG, *[NUMBER] * 4]
SLICED: Call = ("aten::slice", *SLICE_INPUTS, ["", "0", "0", str(EDGES), "1"])


def training(
    ops: Sequence[Call], *, nodes: Sequence[str] = ("aten::linear", "aten::relu"), steps: int = 4
) -> TraceBuilder:
    """Steps of these ops, each with a kernel of 20 us, and of backward after them.

    Args:
        nodes: ops that add a node to autograd's graph.
    """
    trace, at, sequence = TraceBuilder(devices=[H200], record_shapes=1), 0, 0
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
            trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 20 * US), name=POINTWISE)
            at += 25 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([*DEGREES, LAYER, RELU] * 3, id="a graph that stays the same"),
        pytest.param([SLICED, *DEGREES, LAYER, RELU] * 3, id="the same part of a batch"),
    ],
)
def test_layers_compute_results_of_equal_integers_once(ops: list[Call]) -> None:
    (one,) = of_rule(training(ops), "computed-again")
    assert (one.cause, one.confidence) == ("unchanged-inputs", Confidence.MEDIUM)
    assert "compute again what an earlier op has computed from the same tensors" in one.message
    again = 3 * (len(DEGREES) + (SLICED in ops))
    assert one.evidence["launches"] == again
    assert one.saving is not None
    assert one.saving.share == pytest.approx(again / (len(ops) + 1), abs=0.05)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([SAMPLED, *DEGREES, LAYER, RELU] * 3, id="edges drawn for each layer"),
        pytest.param([SAMPLED, *[*DEGREES, LAYER, RELU] * 3], id="edges drawn in each step"),
        pytest.param([SLICED, LAYER, *DEGREES, LAYER, RELU] * 3, id="parts of a larger batch"),
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
    assert of_rule(training(ops), "computed-again") == []


def test_what_a_parameter_enters_is_trained() -> None:
    """An op that adds a node to autograd's graph takes something that is trained."""
    nodes = ("aten::linear", "aten::relu", "aten::rsqrt")
    assert of_rule(training([*DEGREES, LAYER, RELU] * 3, nodes=nodes), "computed-again") == []


def test_micro_batches_are_no_layers() -> None:
    ops = [*DEGREES, LAYER, ("autograd::engine::evaluate_function: AddmmBackward0", [], [], [])] * 3
    assert of_rule(training(ops), "computed-again") == []


def test_two_steps_are_too_few() -> None:
    assert of_rule(training([*DEGREES, LAYER, RELU] * 3, steps=2), "computed-again") == []


SLUG = "computed-again"


def compared(size: int, times: int = 5) -> list[Call]:
    """Ops on integers of this size; each is another one."""
    names = ("eq", "ne", "lt", "le", "gt", "ge")
    return [(f"aten::{name}", [[size], [size]], [LONG, LONG], []) for name in names[:times]]


@pytest.mark.parametrize(("own", "views", "said"), [(5, 0, 1), (4, 0, 0), (4, 2, 0), (5, 2, 1)])
def test_five_ops_are_a_sequence_and_views_are_none(own: int, views: int, said: int) -> None:
    view: Call = ("aten::view", [[EDGES], []], [LONG, "ScalarList"], ["", f"[{EDGES}]"])
    ops = [*DEGREES[:2], *[view] * views, *DEGREES[2:own]]
    assert len(of_rule(training([*ops, LAYER, RELU] * 3), SLUG)) == said


def test_three_steps_are_enough() -> None:
    assert of_rule(training([*DEGREES, LAYER, RELU] * 3, steps=3), SLUG)


def test_the_three_largest_shapes_of_integers_are_told() -> None:
    ops = [*DEGREES, *(one for size in (700, 900, 800) for one in compared(size, 1))]
    (one,) = of_rule(training([*ops, LAYER, RELU] * 3), SLUG)
    assert one.evidence["shapes"] == f"{EDGES}, 900, 800"


def test_each_step_has_the_sequence_several_times() -> None:
    trace = training([*DEGREES, LAYER, RELU] * 3)
    compares = [event for event in trace.events if event["name"] == "aten::ne"]
    for event in compares[-3:-1]:
        event["name"] = "aten::eq"
    assert of_rule(trace, SLUG) == []


@pytest.mark.parametrize(
    ("between", "said"),
    [
        pytest.param(("aten::floor_", [[EDGES]], [F32], []), 1, id="floats in place"),
        pytest.param(("aten::add_", [[EDGES], []], [LONG, NUMBER], ["", "1"]), 0, id="integers in place"),
        pytest.param(("aten::add_", [[9], []], [LONG, NUMBER], ["", "1"]), 1, id="others in place"),
        pytest.param(("aten::add", [[EDGES], [EDGES]], [LONG, LONG], []), 0, id="of themselves"),
        pytest.param(("aten::add", [[9], [9]], [LONG, LONG], []), 1, id="others"),
        pytest.param(("aten::unbind", [[2, EDGES], []], [LONG, NUMBER], ["", "0"]), 0, id="halves of a larger tensor"),
        pytest.param(("aten::unbind", [[2, EDGES // 4], []], [LONG, NUMBER], ["", "0"]), 1, id="of a smaller"),
        pytest.param(("aten::add", [[EDGES], [EDGES]], [F32, F32], []), 1, id="floats"),
        pytest.param(("aten::topk", [[2, EDGES]], [F32], []), 0, id="indices of any number"),
        pytest.param(("aten::topk", [[2, 9]], [F32], []), 1, id="indices of few numbers"),
    ],
)
def test_what_may_make_such_integers_between_the_layers(between: Call, said: int) -> None:
    layers = [*DEGREES, LAYER, between, RELU] * 3
    assert len(of_rule(training(layers), SLUG)) == said
