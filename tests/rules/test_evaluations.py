"""Networks that are evaluated and differentiated several times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US, of_rule, steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    depend_on_each_other,
    is_last_run,
    is_one_network,
    ops_before_backward,
)

LayerCall = tuple[str, list[Any]]
LINEAR: LayerCall = ("aten::linear", [[20, 3], [64, 3], [64]])
DEEP: LayerCall = ("aten::linear", [[20, 64], [64, 64], [64]])
TANH: LayerCall = ("aten::tanh", [[20, 64]])
NETWORK = [LINEAR, TANH, DEEP]
Op = tuple[str, dict[str, Any]]
NODE = "autograd::engine::evaluate_function: "
LEAF = "torch::autograd::AccumulateGrad"
DIMS, SEQUENCE = "Input Dims", "Sequence number"
POINTS, HIDDEN, COLUMN = [2_000, 3], [2_000, 64], [2_000]
WEIGHTS = [[64, 3], [64, 64], [64, 64], [3, 64]]


def ops(*each: LayerCall) -> Calls:
    """These ops of 10 us, one each 20 us."""
    trace = TraceBuilder()
    for place, (name, dims) in enumerate(each):
        args: dict[str, Any] = {"Input Dims": dims}
        trace.op(name, 20 * place * US, 10 * US, **args)
    trace.step(0, 0, 20 * len(each) * US)
    calls = Analysis(trace.load()).index(Calls)
    return calls[calls.is_op]


@pytest.mark.parametrize(
    ("recorder", "start", "last"),
    [
        ([5, 5, 7], [10, 20, 15], [False, True, True]),
        ([5, 5, 7], [20, 10, 15], [True, False, True]),
        ([7, 5, 7, 5], [40, 30, 10, 20], [True, True, False, False]),
        ([5], [10], [True]),
    ],
)
def test_the_loss_goes_through_the_last_run_of_each_node(
    recorder: list[int], start: list[int], last: list[bool]
) -> None:
    nodes: Any = SimpleNamespace(start_ns=np.array(start))
    assert is_last_run(np.array(recorder), nodes).tolist() == last


@pytest.mark.parametrize(
    ("between", "depends"),
    [
        (("aten::add", [[20], [20]]), False),
        (("aten::sub", [[20, 3], [20, 3]]), True),  # of the input's shape
        (("aten::add_", [[64, 64], [64, 64]]), True),  # of a weight's
        (("aten::add_", [[64], [64]]), False),  # a bias is told by no shape of its own
        (("aten::mul", [[20, 64], []]), False),  # of what lies within the network
        (("aten::stack", [[[20, 3], [20, 3]], []]), True),
    ],
)
def test_ops_on_inputs_or_weights_make_evaluations_dependent(between: LayerCall, depends: bool) -> None:
    """Of three ops each; what comes after the last is no matter."""
    first = ops(*NETWORK, *NETWORK, between, *NETWORK, ("aten::sub", [[20, 3], [20, 3]]))
    assert depend_on_each_other(first, np.array([0, 3, 7]), 3) is depends
    assert not depend_on_each_other(first, np.array([0, 3]), 3)


@pytest.mark.parametrize(
    ("leaves", "one"),
    [
        ([[64, 3]], True),
        ([[3, 64]], True),  # the other way round
        ([[64, 3], [64, 3]], False),
        ([[64, 64]], True),
        ([[64, 64], [64, 64]], False),  # it has one such weight
        ([[64, 3], [64, 3], [64, 64]], True),
        ([[64]], False),  # a bias
        ([], False),
    ],
)
def test_one_network_gets_no_more_gradients_than_it_has_weights(leaves: list[list[int]], one: bool) -> None:
    every = ops(*NETWORK, *[("torch::autograd::AccumulateGrad", [leaf]) for leaf in leaves])
    assert is_one_network(every[:3], every[3:]) is one


def test_two_equal_weights_get_two_gradients() -> None:
    leaf: LayerCall = ("torch::autograd::AccumulateGrad", [[64, 64]])
    every = ops(LINEAR, DEEP, DEEP, leaf, leaf, leaf)
    assert is_one_network(every[:3], every[3:5])
    assert not is_one_network(every[:3], every[3:])


@pytest.mark.parametrize(
    ("recorder", "start_us", "size"),
    [
        ([0, 5], [100, 300], 4),
        ([0, 5], [60, 300], 3),  # the fourth op begins at 60 us
        ([0, 5], [61, 300], 4),
        ([0, 5], [100, 120], 1),  # the second evaluation's ops begin at 100 us, 120 us and so on
        ([0, 5], [100, 150], 3),
        ([3, 8], [10, 300], 1),
        ([4, 9], [10, 10], 4),  # of ops behind them
        ([], [], 4),
    ],
)
def test_an_evaluation_ends_before_the_first_node_of_any(
    recorder: list[int], start_us: list[int], size: int
) -> None:
    """Two evaluations of four ops from the first op and from the sixth on, one op each 20 us."""
    forward = ops(*[TANH] * 10)
    nodes: Any = SimpleNamespace(start_ns=np.array(start_us, np.int64) * US)
    assert ops_before_backward(forward, np.array([0, 5]), 4, nodes, np.array(recorder, np.int64)) == size


def forward(number: int) -> list[Op]:
    """Scaled points through four layers."""
    ops: list[Op] = [("aten::mul", {DIMS: [POINTS, [3]]})]
    for at, weight in enumerate(WEIGHTS):
        ops.append(("aten::linear", {DIMS: [HIDDEN if at else POINTS, weight, weight[:1]]}))
        ops += [("aten::tanh", {DIMS: [HIDDEN]})] * (weight[0] == 64)
    return [(name, {**args, SEQUENCE: 100 * number + at}) for at, (name, args) in enumerate(ops)]


def nodes(number: int) -> list[Op]:
    """What differentiates it."""
    return [(f"{NODE}AddmmBackward0", {SEQUENCE: 100 * number + at}) for at in reversed(range(8))]


def trained(
    passes: int = 3,
    *,
    after: list[Op] | None = None,
    grad: bool = True,
    again: bool = True,
    leaves: int = 1,
    adds_up: int = 0,
) -> TraceBuilder:
    """Steps of evaluations, each differentiated, of what follows each, and of the loss's backward.

    Args:
        grad, again: each is differentiated before the next, and again with the loss.
        leaves: gradients of each parameter.
        adds_up: gradients of parameters are added up after so many of them.
    """
    ops: list[Op] = []
    leaf: list[Op] = [(LEAF, {DIMS: [weight]}) for weight in WEIGHTS]
    for number in range(passes):
        ops += forward(number) + (nodes(number) if grad else []) + (leaf if number < adds_up else [])
        ops += after or [("aten::add", {DIMS: [COLUMN, COLUMN]})]
    for number in reversed(range(passes)):
        ops += nodes(number) if again else []
    return steps_of([*ops, *leaf * leaves])


def said(trace: TraceBuilder) -> list[str]:
    return [one.cause for one in of_rule(trace, "repeated-calls")]


def test_residuals_that_each_evaluate_the_network_share_one() -> None:
    """Of 3 evaluations with 8 ops and 8 nodes of the loss one stays, and all derivatives."""
    (one,) = of_rule(trained(), "repeated-calls")
    assert (one.cause, one.confidence, one.count, one.steps) == ("evaluated-anew", "low", 2 * 3, 3)
    assert (one.evidence["passes"], one.evidence["given"], one.evidence["nodes"]) == (3, "2000x3", 16)
    assert one.saving is not None
    assert one.saving.share == pytest.approx(2 * (8 + 8) / (3 * (8 + 8 + 8 + 1) + 4), abs=0.03)


@pytest.mark.parametrize(
    "trace",
    [
        trained(1),
        trained(grad=False),
        trained(again=False),
        trained(leaves=3),
        trained(adds_up=3),
        trained(adds_up=1, leaves=0),
        trained(after=[("aten::sub", {DIMS: [POINTS, POINTS]})]),
        trained(after=[("aten::sub", {DIMS: [[64, 64], [64, 64]]})]),
        trained(12),
    ],
    ids=[
        "one",
        "several inputs",
        "attack",
        "networks",
        "micro-batches",
        "first micro-batch",
        "solver",
        "inner loop",
        "rollout",
    ],
)
def test_other_evaluations_may_be_needed(trace: TraceBuilder) -> None:
    assert "evaluated-anew" not in said(trace)


def in_nodes(trace: TraceBuilder) -> TraceBuilder:
    """The same with each gradient within its node of the engine, as torch records it."""
    for event in [one for one in trace.events if one["name"] == LEAF]:
        trace.op(f"{NODE}{LEAF}", round(1_000 * event["ts"]), round(1_000 * event["dur"]))
        event["ts"], event["dur"] = event["ts"] + 1, event["dur"] - 2
    return trace


@pytest.mark.parametrize(
    ("adds_up", "leaves", "causes"), [(0, 1, ["evaluated-anew"]), (1, 0, []), (2, 0, [])]
)
def test_gradient_sums_between_evaluations_are_micro_batches(
    adds_up: int, leaves: int, causes: list[str]
) -> None:
    assert said(in_nodes(trained(adds_up=adds_up, leaves=leaves))) == causes
