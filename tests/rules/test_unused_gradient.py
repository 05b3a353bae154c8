"""Gradients of parameters that no optimizer has, or that are cleared unread."""

import pytest

from tests.rules.kernel_programs import changed as with_changed_events
from tests.rules.programs import US, found
from tests.support.partly_trained import HEAD, LAYER, FineTuning
from traceanalyzer import Finding, diagnose

# Blocks of the kernel that updates the head, or a layer: one for each 65,536 elements.
OF_HEAD, OF_LAYER = 1, 4


def fine_tuning(
    *, added: bool = True, blocks: int = OF_HEAD, every: int = 1, changed: str = "", steps: int = 4
) -> FineTuning:
    """Backward of the head, then of ten layers that no optimizer has.

    Args:
        added: the layers' gradients are added to those of the step before.
        blocks: of the kernel that updates the parameters.
        every: steps between two updates.
        changed: op that the program calls on a layer's parameter.
    """
    run = FineTuning(900 * US)
    for number in range(steps):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        run.layer(HEAD)
        for _ in range(10):
            run.layer(LAYER, added=added)
        if number % every == 0:
            run.optimizer(blocks)
        if changed:
            run.op(changed, LAYER, LAYER)
    return run


def test_backward_of_what_no_optimizer_has_is_needless() -> None:
    (unused,) = found(fine_tuning().trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (10, 11)
    assert "nothing clears" in unused.message
    assert unused.advice.endswith("run their forward under torch.no_grad().")
    assert unused.confidence == "high"
    assert unused.cost_ns == 4 * 10 * 55 * US
    assert unused.saving is not None
    assert unused.saving.share > 0.5


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fine_tuning(added=False), id="something clears them"),
        pytest.param(fine_tuning(blocks=OF_HEAD + 10 * OF_LAYER), id="the optimizer has them"),
        pytest.param(fine_tuning(blocks=2), id="no first gradients make so many blocks"),
        pytest.param(fine_tuning(blocks=OF_HEAD + OF_LAYER), id="the optimizer has one of them"),
        pytest.param(fine_tuning(every=2), id="gradients accumulate over two steps"),
        pytest.param(fine_tuning(steps=1), id="one step"),
        pytest.param(fine_tuning(changed="aten::sub_"), id="the program updates them itself"),
        pytest.param(fine_tuning(changed="aten::_foreach_zero_"), id="the program clears them itself"),
    ],
)
def test_gradients_that_may_be_used_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []


def test_several_ranks_are_not_judged() -> None:
    run = fine_tuning()
    run.trace.launch("cudaLaunchKernel", 10, US, 999)
    run.trace.kernel(20 * US, US, 999, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", stream=20)
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status == "not applicable"


def without_shapes(run: FineTuning) -> list[Finding]:
    bare = with_changed_events(run.trace.load(), lambda event: event.get("args", {}).pop("Input Dims", None))
    return list(diagnose(bare, select=["unused-gradient"]).findings)


def test_gradients_without_shapes_are_unused_if_each_pass_adds_to_them() -> None:
    (unused,) = without_shapes(fine_tuning())
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (10, 11)
    assert unused.confidence == "medium"


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fine_tuning(added=False), id="something clears them"),
        pytest.param(fine_tuning(every=2), id="no optimizer steps between two passes"),
        pytest.param(fine_tuning(changed="aten::_foreach_zero_"), id="the program clears them itself"),
        pytest.param(fine_tuning(steps=1), id="one step"),
    ],
)
def test_gradients_without_shapes_may_be_used(run: FineTuning) -> None:
    assert without_shapes(run) == []


def adversaries(*, cleared: bool = True, detached: bool = False, read: str = "") -> FineTuning:
    """Three steps: the critic's loss on what the maker made, then the maker's own.

    Args:
        cleared: the maker's gradients are made anew for its own loss.
        detached: the critic's loss does not go back to the maker.
        read: op that the program calls on the maker's gradients.
    """
    maker = (LAYER, [512, 1_024])
    run = FineTuning(900 * US)
    for number in range(3):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        run.layer(HEAD)
        for shape in () if detached else maker:
            run.layer(shape, added=True)
        run.optimizer(OF_HEAD)
        if read:
            run.op(read, maker[1], maker[1])
        run.op("aten::linear", [64, 512], LAYER)
        for shape in maker:
            run.layer(shape, added=not cleared)
        run.optimizer(OF_LAYER + 8)
    return run


def test_gradients_made_and_cleared_unread_are_needless() -> None:
    (unused,) = found(adversaries().trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (2, 5)
    assert "cleared before any optimizer reads them" in unused.message
    assert unused.cost_ns == 3 * 2 * 55 * US
    assert (unused.confidence, unused.advice) == ("medium", "detach() the inputs of another part's loss.")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(adversaries(detached=True), id="none are made"),
        pytest.param(adversaries(cleared=False), id="the next pass adds to them"),
        pytest.param(adversaries(read="aten::mul_"), id="the program scales them"),
    ],
)
def test_gradients_that_another_loss_needs_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []
