"""Networks that are evaluated and differentiated several times."""

from typing import Any

import pytest

from tests.rules.launches import of_rule, steps_of
from tests.support.trace_builder import TraceBuilder

Op = tuple[str, dict[str, Any]]
NODE = "autograd::engine::evaluate_function: "
LEAF = "torch::autograd::AccumulateGrad"
DIMS, SEQUENCE = "Input Dims", "Sequence number"
POINTS, HIDDEN, COLUMN = [2_000, 3], [2_000, 64], [2_000]
WEIGHTS = [[64, 3], [64, 64], [64, 64], [3, 64]]


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
    passes: int = 3, *, after: list[Op] | None = None, grad: bool = True, again: bool = True, adds_up: int = 0
) -> TraceBuilder:
    """Steps of evaluations, each differentiated, of what follows each, and of the loss's backward.

    Args:
        grad, again: each is differentiated before the next, and again with the loss.
        adds_up: gradients of parameters are added up after so many of them.
    """
    ops: list[Op] = []
    leaf: list[Op] = [(LEAF, {DIMS: [weight]}) for weight in WEIGHTS]
    for number in range(passes):
        ops += forward(number) + (nodes(number) if grad else []) + (leaf if number < adds_up else [])
        ops += after or [("aten::add", {DIMS: [COLUMN, COLUMN]})]
    for number in reversed(range(passes)):
        ops += nodes(number) if again else []
    return steps_of([*ops, *leaf])


def said(trace: TraceBuilder) -> list[str]:
    return [one.cause for one in of_rule(trace, "repeated-calls")]


def test_residuals_that_each_evaluate_the_network_share_one() -> None:
    """Of 3 evaluations with 8 ops and 8 nodes of the loss one stays, and all derivatives."""
    (one,) = of_rule(trained(), "repeated-calls")
    assert (one.cause, one.confidence, one.count, one.steps) == ("evaluated-anew", "low", 2 * 3, 3)
    assert (one.evidence["members"], one.evidence["passes"], one.evidence["given"]) == (8, 3, "2000x3")
    assert one.saving is not None
    assert one.saving.share == pytest.approx(2 * (8 + 8) / (3 * (8 + 8 + 8 + 1) + 4), abs=0.03)


@pytest.mark.parametrize(
    "trace",
    [
        trained(1),
        trained(grad=False),
        trained(again=False),
        trained(adds_up=3),
        trained(adds_up=1),
        trained(after=[("aten::sub", {DIMS: [POINTS, POINTS]})]),
        trained(after=[("aten::sub", {DIMS: [[64, 64], [64, 64]]})]),
        trained(12),
    ],
    ids=["one", "several inputs", "attack", "micro-batches", "first micro-batch", "solver", "inner loop", "rollout"],
)
def test_other_evaluations_may_be_needed(trace: TraceBuilder) -> None:
    assert "evaluated-anew" not in said(trace)
