"""Gradients of critics that the actor's loss goes through on its way."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.rules.test_unused_gradient import FineTuning


def actor_critic(
    *,
    frozen: bool = False,
    averaged: str = "",
    temperature: bool = False,
    taken_in: int = -1,
    steps: int = 3,
    batch: int = 7,
) -> FineTuning:
    """Steps: the critic's loss, then the actor's, whose backward goes through the critic first.

    Args:
        taken_in: the step after which the critic's optimizer takes what the actor's loss added.
        batch: second size of the gradient of each layer's input; the first is 512.
    """
    run = FineTuning(900 * US)
    critic, actor = ([512, 96], [512, 512]), ([512, 40], [512, 512])
    for number in range(steps):
        run.step(number)
        for made in critic:
            _product(run, made, weight=True, batch=batch)
            run.gradient(made, added=False)
        run.optimizer(*critic)
        for made in critic:
            _product(run, made, weight=not frozen, batch=batch)
            if not frozen:
                run.gradient(made, added=True)
        for made in actor:
            _product(run, made, weight=True, batch=batch)
            run.gradient(made, added=False)
        run.optimizer(*actor)
        if temperature:
            _product(run, [], weight=False)
            run.gradient([], added=False)
            start = run.now
            run.op("aten::_foreach_lerp_", [[]], [[]])
            run.trace.annotation("Optimizer.step#Adam.step", start, run.now - start)
        if number == taken_in:
            run.optimizer(*critic)
        if averaged:
            run.op(averaged, list(critic), list(critic))
    return run


def _product(run: FineTuning, made: list[int], *, weight: bool, batch: int = 7) -> None:
    """Backward of a layer: the gradient of its input and, unless frozen, of its weight."""
    start = run.now
    run.now += 2 * US
    run.op("aten::mm", [512, 512], [512, batch])
    if weight:
        run.op("aten::mm", [made[0], 64], [64, made[1]])
    run.trace.op("autograd::engine::evaluate_function: MmBackward0", start, run.now - start)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(actor_critic(), id="alone"),
        pytest.param(actor_critic(averaged="aten::_foreach_lerp_"), id="a target network follows the critic"),
        pytest.param(actor_critic(batch=512), id="gradients of inputs have the shape of a weight"),
        pytest.param(actor_critic(temperature=True), id="an optimizer of a single number"),
    ],
)
def test_critic_gradients_of_the_actor_loss_are_needless(run: FineTuning) -> None:
    """Those of its weights: the gradient of its input goes on to the actor."""
    (unused,) = found(run.trace, "unused-gradient")
    assert "cleared before any optimizer reads them" in unused.message
    assert (
        unused.evidence["unused"] == 2
    )  # what comes after the last step is not recorded: it is as the others
    assert set(unused.evidence["nodes"]) == {"aten::mm", "torch::autograd::AccumulateGrad"}
    assert unused.cost_ns == 3 * 2 * (50 + 5) * US


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(actor_critic(frozen=True), id="frozen meanwhile"),
        pytest.param(actor_critic(taken_in=1, steps=5), id="the critic's optimizer has them in one step"),
        pytest.param(
            actor_critic(averaged="aten::_foreach_mul_"), id="the program computes with such tensors"
        ),
    ],
)
def test_gradients_of_a_critic_that_may_be_used_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []
