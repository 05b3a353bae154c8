"""Evaluations of one network: which node ran last, what lies between them, and whose weights get gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    depend_on_each_other,
    is_last_run,
    is_one_network,
    ops_before_backward,
)

Op = tuple[str, list[Any]]
LINEAR: Op = ("aten::linear", [[20, 3], [64, 3], [64]])
DEEP: Op = ("aten::linear", [[20, 64], [64, 64], [64]])
TANH: Op = ("aten::tanh", [[20, 64]])
NETWORK = [LINEAR, TANH, DEEP]


def ops(*each: Op) -> Calls:
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
def test_ops_on_inputs_or_weights_make_evaluations_dependent(between: Op, depends: bool) -> None:
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
    leaf: Op = ("torch::autograd::AccumulateGrad", [[64, 64]])
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
