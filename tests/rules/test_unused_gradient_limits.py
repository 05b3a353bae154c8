"""Just enough unused gradients and steps, and what of a step writes to them."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.rules.test_unused_gradient import DEEP, FIRST, HEAD, LAYER, FineTuning, _fused, fine_tuning
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Status


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


def tuned(*, counted: bool = False, loading: bool = False, own_counter: bool = False) -> FineTuning:
    """Four steps in which an optimizer has the head alone, of eleven layers.

    Args:
        counted: whether it counts its steps first, by a list of numbers.
        loading: whether another thread calls an op amid each backward pass.
        own_counter: whether the program counts its steps by a tensor of its own.
    """
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        run.layer(HEAD)
        for layer in range(10):
            run.layer(LAYER)
            if loading and layer == 3:
                run.trace.op("aten::stack", run.now, US, tid=77)
                run.now += 2 * US
        start = run.now
        run.now += 2 * US
        if counted:
            run.op("aten::_foreach_add_", [[]], kernels=(5 * US,))
        run.op("aten::_fused_adamw_", [HEAD], kernels=(5 * US,))
        run.trace.annotation("Optimizer.step#AdamW.step", start, run.now - start)
        if own_counter:
            run.op("aten::add_", [], [], [])
    return run


@pytest.mark.parametrize("run", [tuned(), tuned(counted=True), tuned(loading=True), tuned(own_counter=True)])
def test_counters_and_other_threads_tell_nothing_of_parameters(run: FineTuning) -> None:
    (one,) = found(run.trace, "unused-gradient")
    assert (one.evidence["unused"], one.evidence["gradients"]) == (10, 11)
    assert one.cost_ns == 4 * 10 * 50 * US


def test_without_an_optimizers_step_nothing_is_unused() -> None:
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        run.layer(HEAD)
        run.layer(LAYER)
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status is Status.CLEAR
