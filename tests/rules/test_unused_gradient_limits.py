"""Just enough unused gradients and steps, and what of a step writes to them."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.rules.test_unused_gradient import DEEP, FIRST, HEAD, LAYER, FineTuning, _fused, fine_tuning


def above(layers: int, *, steps: int = 4) -> FineTuning:
    """Backward of a head that is trained, above so many layers whose gradients are read, but not by an optimizer."""
    run = FineTuning(900 * US)
    for number in range(steps):
        run.step(number)
        run.layer(HEAD)
        for _ in range(layers):
            run.layer(LAYER)
        run.op("aten::mul", LAYER, LAYER)
        run.optimizer(HEAD)
    return run


@pytest.mark.parametrize(("layers", "said"), [(3, 1), (2, 0)])
def test_three_unused_gradients_of_four_are_a_backbone(layers: int, said: int) -> None:
    assert len(found(above(layers).trace, "unused-gradient")) == said


@pytest.mark.parametrize(("steps", "said"), [(2, 1), (1, 0)])
def test_two_steps_show_that_no_optimizer_waits_for_more(steps: int, said: int) -> None:
    assert len(found(above(10, steps=steps).trace, "unused-gradient")) == said


@pytest.mark.parametrize(
    "changed", ["aten::sub_", "aten::add_", "aten::lerp_", "aten::copy_", "aten::addcmul_"]
)
def test_the_program_may_update_parameters_itself(changed: str) -> None:
    assert found(fine_tuning(changed=changed).trace, "unused-gradient") == []
    assert found(fine_tuning(changed="aten::mul").trace, "unused-gradient")


def of_loss(*, inside: str = "", unknown: str = "") -> FineTuning:
    """Gradients of a loss's network, to which each step adds; the optimizer has the layer alone."""
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        for weight in (DEEP, FIRST):
            run.convolution(weight, first=False)
            run.gradient(weight, added=True)
        run.layer(HEAD)
        if unknown:
            run.op(unknown, [])
        start = run.now
        run.now += 2 * US
        if inside:
            run.op(inside, FIRST)
        run.trace.annotation("Optimizer.step#SGD.step", start, run.now - start)
        _fused(run, 1)
    return run


def test_what_an_optimizer_writes_is_its_own() -> None:
    for run in (of_loss(), of_loss(inside="aten::zero_")):
        (one,) = found(run.trace, "unused-gradient")
        assert (one.evidence["unused"], one.evidence["gradients"]) == (2, 3)


def test_a_list_of_unknown_tensors_may_be_all_that_is_cleared() -> None:
    assert found(of_loss(unknown="aten::_foreach_zero_").trace, "unused-gradient") == []
