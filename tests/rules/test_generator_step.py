"""Gradients of judges that the maker's loss makes first, and that are cleared before the judges' optimizer runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.programs import US, found
from tests.support.partly_trained import HEAD, LAYER, FineTuning

FIRST, SECOND, OTHER = [32, 1, 5, 1], [64, 32, 5, 1], [32, 2, 5, 1]
JUDGE = (SECOND, FIRST, [64, 48, 5, 1], OTHER)  # two networks beside each other, in backward's order
ALIKE = ([100, 64], [64, 64])  # as many blocks as two judges' layers
ALONE = [48, 8, 5, 1]
OF_MAKER = (2, 5)  # tensors and blocks


def adversaries(
    *,
    steps: int = 3,
    frozen: bool = False,
    zeroing: str = "",
    read: list[int] | None = None,
    at: str = "aten::mul",
    read_in: int = -1,
    taken_in: int = -1,
    blocks: tuple[int, int] = OF_MAKER,
    maker: tuple[list[int], list[int]] = (HEAD, LAYER),
    beside: bool = False,
    sparse: bool = False,
) -> FineTuning:
    """Steps: the judges' loss, then the maker's, which goes back through judges of a real and of a made sample first.

    Lists of the optimizers are too long to be recorded.

    Args:
        zeroing: how the judges' gradients are set to zero; None is set otherwise.
        read: shape of what an op takes between the maker's step and the judges' next one.
        at: that op.
        read_in: the step in which it does so; -1 for all.
        taken_in: the step after which the judges' optimizer takes what the maker's loss added.
        sparse: the maker's optimizer updates such a tensor by an op that takes no list.
        beside: one more layer has judges' gradients: it runs once, between the made and the real sample.
    """
    run = FineTuning(1_500 * US)
    judge = (*JUDGE, ALONE) if beside else JUDGE
    for number in range(steps):
        run.step(number)
        _cleared(run, zeroing)
        for made in judge:
            run.layer(made, added=bool(zeroing))
        _stepped(run, len(judge), len(judge))
        if not frozen:
            _gone_through(run, beside=beside)
        for made in maker:
            run.layer(made)
        _stepped(run, *blocks, sparse=sparse)
        if number == taken_in:
            _stepped(run, len(judge), len(judge))
        if read and read_in in (-1, number):
            run.op(at, read, read)
    return run


def _gone_through(run: FineTuning, *, beside: bool) -> None:
    """Backward of both judges for a made sample, then for a real one, with which each gradient is complete."""
    for made in JUDGE:
        run.convolution(made, first=False)
    if beside:
        run.convolution(ALONE, first=False)
        run.gradient(ALONE, added=True)
    for made in JUDGE:
        run.convolution(made, first=made in (FIRST, OTHER))
        run.gradient(made, added=True)


def _cleared(run: FineTuning, zeroing: str) -> None:
    if zeroing == "each":
        for made in JUDGE:
            run.op("aten::zero_", made)
    elif zeroing == "all but one":
        for made in JUDGE[1:]:
            run.op("aten::zero_", made)
    elif zeroing == "list":
        run.op("aten::_foreach_zero_", list(JUDGE))
    elif zeroing:
        run.long_list("aten::_foreach_zero_", int(zeroing))


def _stepped(run: FineTuning, size: int, blocks: int, *, sparse: bool = False) -> None:
    start = run.now
    run.now += 2 * US
    run.long_list("aten::_foreach_add_", size)
    run.long_list("aten::_fused_adamw_", blocks)
    if sparse:
        run.op("aten::add_", FIRST, FIRST)
    run.trace.annotation("Optimizer.step#AdamW.step", start, run.now - start)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({}, id="made anew"),
        pytest.param({"zeroing": "each"}, id="each set to zero"),
        pytest.param({"zeroing": "list"}, id="all set to zero at once"),
        pytest.param({"zeroing": "4"}, id="a list without shapes set to zero, of as many blocks"),
        pytest.param({"read": [32]}, id="an op takes a vector"),
        pytest.param({"read": FIRST, "at": "aten::zero_"}, id="one of them is set to zero"),
    ],
)
def test_judge_gradients_behind_the_makers_loss_are_needless(
    asked: dict[str, Any],
) -> None:
    """Those of weights, and both judges' whole backward of the real sample; the last step is as the others."""
    (unused,) = found(adversaries(**asked).trace, "unused-gradient")
    assert "cleared before any optimizer reads them" in unused.message
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (4, 10)
    real, of_weights, added = 50 + 50 + 50 + 50, 4 * 20, 4 * 5
    assert unused.cost_ns == 3 * (real + of_weights + added) * US
    assert unused.confidence == "medium"


def test_gradients_read_by_another_step_excuse_the_last() -> None:
    (unused,) = found(adversaries(steps=4, read=FIRST, read_in=0).trace, "unused-gradient")
    assert unused.evidence["unused"] == 2  # 4 in two of four steps
    assert unused.cost_ns == 2 * (4 * 50 + 4 * 20 + 4 * 5) * US


def test_network_that_runs_once_is_in_no_vain_backward() -> None:
    """Of its layer only the gradient of the weight is: that of its input goes on."""
    (unused,) = found(adversaries(beside=True).trace, "unused-gradient")
    assert unused.evidence["unused"] == 5
    assert unused.cost_ns == 3 * (4 * 50 + 5 * 20 + 5 * 5) * US


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"sparse": True}, id="the maker's optimizer has one of them, with a sparse gradient"),
        pytest.param({"frozen": True}, id="frozen meanwhile"),
        pytest.param({"steps": 2}, id="one step of which the next is recorded"),
        pytest.param({"zeroing": "all but one"}, id="one is not set to zero"),
        pytest.param({"zeroing": "5"}, id="a list of other tensors is set to zero"),
        pytest.param({"read": FIRST}, id="an op takes a weight's gradient"),
        pytest.param({"taken_in": 1, "steps": 5}, id="the judges' optimizer has them in one step"),
        pytest.param({"blocks": (2, 4)}, id="no gradients at an end make so many blocks"),
        pytest.param({"blocks": (2, 2), "maker": ALIKE}, id="the first two make as many blocks as the last"),
    ],
)
def test_gradients_of_judges_that_may_be_used_are_left_alone(asked: dict[str, Any]) -> None:
    assert found(adversaries(**asked).trace, "unused-gradient") == []


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
