"""Gradients of parameters that no optimizer has, or that are cleared unread."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import changed as with_changed_events
from tests.rules.programs import US, found
from tests.support.partly_trained import HEAD, LAYER, FineTuning, tuned
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Status

DEEP, FIRST = [32, 32, 3, 3], [32, 16, 3, 3]


def fine_tuning(
    *, added: bool = True, in_optimizer: bool = False, every: int = 1, changed: str = ""
) -> FineTuning:
    """Four steps: backward of the head, then of ten layers that no optimizer has unless asked for."""
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        run.layer(HEAD)
        for _ in range(10):
            run.layer(LAYER, added=added)
        if number % every == 0:
            run.optimizer(*([HEAD, LAYER] if in_optimizer else [HEAD]))
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


def test_gradients_that_are_cleared_are_less_sure() -> None:
    (unused,) = found(fine_tuning(added=False).trace, "unused-gradient")
    assert "nothing clears" not in unused.message
    assert unused.confidence == "medium"


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fine_tuning(in_optimizer=True), id="the optimizer has them"),
        pytest.param(fine_tuning(every=2), id="gradients accumulate over two steps"),
        pytest.param(fine_tuning(changed="aten::sub_"), id="the program changes such parameters itself"),
    ],
)
def test_gradients_that_may_be_used_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []


@pytest.mark.parametrize("shapes", [[], [[]]], ids=["no shapes", "none of long lists"])
def test_an_optimizer_without_recorded_shapes_is_not_judged(shapes: list[list[int]]) -> None:
    run = fine_tuning(changed="aten::sub_")
    run.optimizer(*shapes)
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    why = "the shapes that the optimizer works on are not recorded"
    assert (outcome.status, outcome.why) == ("not applicable", why)


def test_lists_changed_by_the_program_must_be_recorded() -> None:
    run = fine_tuning(changed="aten::sub_")
    run.op("aten::_foreach_add_", [], [], [])
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status == "not applicable"


def test_several_ranks_are_not_judged() -> None:
    run = fine_tuning()
    run.trace.launch("cudaLaunchKernel", 10, US, 999)
    run.trace.kernel(
        20 * US, US, 999, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", stream=20
    )
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status == "not applicable"


def adversaries(
    *,
    detached: bool = False,
    cleared: bool = True,
    read: str = "",
    groups: bool = False,
    blocks: tuple[int, int] | None = None,
    clipped: int = 0,
    width: int = 1_024,
) -> FineTuning:
    """Three steps: the critic's loss on what the maker made, then the maker's own; both have layers of one shape."""
    run = FineTuning(900 * US)
    for number in range(3):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        for shape in (HEAD, LAYER):
            run.layer(shape)
        if not detached:
            for shape in (LAYER, [512, width]):
                run.layer(shape, added=True)
        if read:
            run.op(read, [512, width], [512, width])
        if clipped:
            run.long_list("aten::_foreach_norm", clipped)
        if blocks:
            _fused(run, blocks[0])
        else:
            run.optimizer(HEAD, LAYER, more=groups)
        run.op("aten::linear", [64, 512], LAYER)
        for shape in (LAYER, [512, width]):
            run.layer(shape, added=not cleared)
        if blocks:
            _fused(run, blocks[1])
            run.long_list("aten::_foreach_lerp_", 5)  # a mean of the maker's weights
        else:
            run.optimizer(LAYER, [512, width])
    return run


def _fused(run: FineTuning, blocks: int) -> None:
    start = run.now
    run.now += 2 * US
    run.long_list("aten::_foreach_add_", 2)  # counts the steps of two tensors
    run.long_list("aten::_fused_adam_", blocks)
    run.trace.annotation("Optimizer.step#Adam.step", start, run.now - start)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(adversaries(), id="lists of shapes"),
        pytest.param(adversaries(blocks=(5, 12)), id="blocks: one of the head, four of the layer"),
        pytest.param(adversaries(blocks=(5, 12), clipped=5), id="the optimizer's gradients are clipped"),
    ],
)
def test_gradients_made_and_cleared_unread_are_needless(run: FineTuning) -> None:
    (unused,) = found(run.trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (2, 6)
    assert "cleared before any optimizer reads them" in unused.message
    assert unused.cost_ns == 3 * 2 * 55 * US
    assert "detach() the inputs of another part's loss" in unused.advice


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(adversaries(detached=True), id="none are made"),
        pytest.param(adversaries(cleared=False), id="the next pass adds to them"),
        pytest.param(adversaries(read="aten::mul"), id="the program computes with them"),
        pytest.param(adversaries(blocks=(6, 12)), id="no first gradients make so many blocks"),
        pytest.param(adversaries(blocks=(5, 5), width=64), id="the last two make as many blocks"),
        pytest.param(adversaries(blocks=(5, 12), clipped=17), id="a norm of other gradients as well"),
        pytest.param(adversaries(groups=True), id="a list of the optimizer is too long to be recorded"),
    ],
)
def test_possibly_used_gradients_are_not_reported(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []


def loss_network(*, cleared: bool = False, written: str = "", together: bool = False) -> FineTuning:
    """Four steps: backward of a loss's network, for the target and for what a layer made, then of that layer.

    The optimizer has the layer alone, and its list is too long to be recorded.
    """
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        for leaf in (False, True):
            for weight, first in ((DEEP, False), (FIRST, not leaf)):
                run.convolution(weight, first=first)
                if leaf:
                    run.gradient(weight, added=not cleared)
        run.layer(HEAD, added=together)
        if written:
            run.op(written, FIRST)
        _fused(run, 1)
    return run


def test_never_cleared_gradients_are_needless() -> None:
    (unused,) = found(loss_network().trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (2, 3)
    assert "no optimizer's zero_grad() clears them" in unused.message
    assert unused.confidence == "high"
    for_target, of_weights, added = 2 * 50, 2 * 20, 2 * 5
    assert unused.cost_ns == 4 * (for_target + of_weights + added) * US


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(loss_network(cleared=True), id="made anew in each step"),
        pytest.param(loss_network(together=True), id="all are added: they may be set to zero"),
        pytest.param(loss_network(written="aten::zero_"), id="the program clears them itself"),
        pytest.param(loss_network(written="aten::_foreach_zero_"), id="all at once"),
        pytest.param(loss_network(written="aten::sub_"), id="the program writes to such a tensor"),
    ],
)
def test_gradients_that_may_be_cleared_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []


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


@pytest.mark.parametrize(
    ("run", "name", "recorded", "costs_ns"),
    [
        (adversaries(), "aten::mm", 1, [3 * 2 * 55 * US]),
        (of_loss(), "aten::convolution_backward", 2, []),
    ],
)
def test_a_layer_may_lack_its_last_recorded_inputs(
    run: FineTuning, name: str, recorded: int, costs_ns: list[int]
) -> None:
    """A product needs no weight's shape if its node is needless anyway; a convolution's weight is its third input."""

    def cut(event: dict[str, Any]) -> None:
        if event.get("name") == name:
            event["args"]["Input Dims"] = event["args"]["Input Dims"][:recorded]

    report = diagnose(with_changed_events(run.trace.load(), cut), select=["unused-gradient"])
    assert report.outcomes[0].status is (Status.FOUND if costs_ns else Status.CLEAR)
    assert [finding.cost_ns for finding in report.findings] == costs_ns


WIDE = [256, 512]


def passed_through(*product: list[int]) -> FineTuning:
    """Four steps: backward of a layer whose gradient is never cleared, on its way to a layer that is trained."""
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        start = run.now
        run.now += 2 * US
        run.op("aten::mm", [64, 256], WIDE)
        run.op("aten::mm", *product)
        run.trace.op("autograd::engine::evaluate_function: MmBackward0", start, run.now - start)
        run.gradient(WIDE, added=True)
        run.layer(HEAD)
        _fused(run, 1)
    return run


@pytest.mark.parametrize(
    ("product", "costs_ns"),
    [
        (([256, 64], [64, 512]), [4 * (50 + 5) * US]),
        (([512, 64], [64, 256]), [4 * (50 + 5) * US]),  # of the transposed weight
        (([512, 64], [64, 255]), []),
    ],
)
def test_only_the_weight_gradient_gemm_is_needless(
    product: tuple[list[int], list[int]], costs_ns: list[int]
) -> None:
    findings = found(passed_through(*product).trace, "unused-gradient")
    assert [finding.cost_ns for finding in findings] == costs_ns


@pytest.mark.parametrize(
    ("run", "said"),
    [
        pytest.param(fine_tuning(), 1, id="never cleared"),
        pytest.param(fine_tuning(added=False), 0, id="nothing tells what the optimizer has"),
        pytest.param(fine_tuning(every=2), 0, id="gradients accumulate over two steps"),
        pytest.param(fine_tuning(changed="aten::_foreach_sub_"), 0, id="the program changes tensors itself"),
    ],
)
def test_numbers_of_gradients_tell_without_shapes(run: FineTuning, said: int) -> None:
    bare = with_changed_events(run.trace.load(), lambda event: event.get("args", {}).pop("Input Dims", None))
    assert [one.confidence for one in diagnose(bare, select=["unused-gradient"]).findings] == [
        "medium"
    ] * said
