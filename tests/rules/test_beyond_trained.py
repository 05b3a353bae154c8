"""Gradients that backward makes after those of all trained parameters, through frozen layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.programs import US, found
from tests.support.partly_trained import HEAD, LAYER, FineTuning

STEM, BATCH = [1, 197, 512], [64, 197, 512]
TRAINED = 5  # blocks of 65,536 elements: one of the head, four of the layer
NODE = "autograd::engine::evaluate_function: "


class Stem(FineTuning):
    """A trained head and layer above ten frozen ones, and above what is learnt of positions."""

    number = 0

    def forward(self, *, before: str = "", known: bool = True) -> None:
        """Adds the positions. What is called before, on them, shows the number that this op is about to take."""
        self.number += 1
        recorded: dict[str, Any] = {"Sequence number": self.number} if known else {}
        for name, shapes in ((before, [STEM]), ("aten::add", [BATCH, STEM])):
            if name:
                self.trace.op(name, self.now, 4 * US, **{"Input Dims": shapes}, **recorded)
                self.now += 6 * US
        self.op("aten::linear", BATCH, LAYER)

    def frozen(self, node: str = "MmBackward0", **recorded: Any) -> None:
        start = self.now
        self.now += 2 * US
        self.op("aten::mm", [64, 512], LAYER)
        self.trace.op(NODE + node, start, self.now - start, **recorded)
        self.now += US

    def backward(
        self, *, added: bool = False, together: bool = False, hook: bool = False, stem: list[int] = STEM
    ) -> None:
        self.layer(HEAD, added=together)
        self.layer(LAYER, added=together)
        for _ in range(10):
            self.frozen()
        self.frozen("AddBackward0", **{"Sequence number": self.number})
        if not hook:
            self.gradient(stem, added=added)
            return
        start = self.now
        self.args("torch::autograd::AccumulateGrad", start + US, 2 * US, [stem])
        self.now += 4 * US
        self.op("aten::sum", [2, 2])
        self.trace.op(NODE + "torch::autograd::AccumulateGrad", start, self.now - start)
        self.now += US

    def listed(self, name: str, blocks: int, inner: int = 0) -> None:
        """An op over a list that is too long for its shapes to be recorded, or that adds to so many numbers."""
        if not inner:
            self.long_list(name, blocks)
            return
        self.trace.op(name, self.now, 10 * US, **{"Input Dims": [[], []]})
        for place in range(inner):
            self.trace.op("aten::add_", self.now + (1 + place) * US, US // 2, **{"Input Dims": [[], []]})
        self.now += 12 * US

    def stepping(self, kind: str) -> None:
        """An optimizer's step."""
        start = self.now
        self.now += 2 * US
        if kind == "lists":
            self.op("aten::_fused_adamw_", [HEAD, LAYER], kernels=(5 * US,))
        elif kind == "mixed":
            self.op("aten::_fused_adamw_", [HEAD, LAYER], kernels=(5 * US,))
            self.op("custom::adam", kernels=(5 * US,))
        elif kind == "stem":
            self.op("aten::_fused_adamw_", [STEM], kernels=(5 * US,))
        elif kind in ("head", "layer"):
            self.op("aten::_fused_adamw_", [HEAD if kind == "head" else LAYER], kernels=(5 * US,))
        elif kind == "ops":
            for shape in (HEAD, LAYER):
                self.op("aten::addcdiv_", shape, shape, shape, kernels=(5 * US,))
        elif kind == "unknown":
            self.op("custom::adam", kernels=(5 * US,))
        elif kind.startswith("fused"):
            self.long_list("aten::_foreach_add_", 2)  # counts the steps of two tensors
            self.long_list("aten::_fused_adam_", int(kind[5:]))
        else:
            self.listed("aten::_foreach_add_", 0, inner=int(kind[7]))
            for name in ("aten::_foreach_sqrt", "aten::_foreach_add_", "aten::_foreach_addcdiv_"):
                self.long_list(name, TRAINED)
        self.trace.annotation("Optimizer.step#Adam.step", start, self.now - start)
        self.now += US


def stem(
    *kinds: str,
    steps: int = 3,
    passes: int = 1,
    between: str | list[Any] = "",
    after: str = "",
    forward: dict[str, Any] | None = None,
    **backward: Any,
) -> Stem:
    """Steps of so many passes, what clips or reads gradients, the optimizers' steps and what comes after them."""
    run = Stem(900 * passes * US)
    for number in range(steps):
        run.step(number)
        for place in range(passes):
            run.forward(**(forward or {}))
            run.backward(**{"added": place > 0, **backward})
        if isinstance(between, list):
            run.listed(*between)
        elif between:
            run.op(between, STEM)
        for kind in kinds or ("lists",):
            if not kind.startswith("first ") or number == 0:
                run.stepping(kind.removeprefix("first "))
        if after:
            run.op(after, STEM)
    return run


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(stem(), id="lists of shapes"),
        pytest.param(stem(f"fused{TRAINED}"), id="blocks of a fused optimizer"),
        pytest.param(stem("foreach2"), id="blocks of one that is not fused"),
        pytest.param(stem("ops"), id="an op for each parameter"),
        pytest.param(stem("head", "layer"), id="two optimizers"),
        pytest.param(stem(between=["aten::_foreach_norm", TRAINED + 2]), id="clipped with all others"),
        pytest.param(stem(between="aten::mul_"), id="scaled"),
        pytest.param(stem(after="aten::zero_"), id="cleared"),
        pytest.param(stem(after="aten::lerp_"), id="a moving average of the parameters"),
        pytest.param(stem(between="aten::detach"), id="detached"),
        pytest.param(stem(between=["aten::_foreach_div_", TRAINED]), id="a list of the trained ones"),
        pytest.param(stem(between=["aten::_foreach_div_", 0, 2]), id="a list on the host"),
    ],
)
def test_backward_through_frozen_layers_alone_is_needless(run: Stem) -> None:
    (unused,) = found(run.trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (1, 3)
    assert "1 of 3 gradients a step (of shapes 1x197x512) belong to parameters" in unused.message
    assert unused.cost_ns == 3 * 11 * 50 * US
    assert "backward goes on for them alone" in unused.message
    assert unused.confidence == "medium"
    assert unused.saving is not None
    assert unused.saving.share > 0.3


def test_gradients_summed_over_passes_are_needless_in_each() -> None:
    (unused,) = found(stem(passes=2).trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (2, 6)
    assert unused.cost_ns == 3 * (2 * 11 * 50 + 5) * US


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(stem("lists", "stem"), id="another optimizer has it"),
        pytest.param(stem("stem", "lists"), id="the first optimizer has it"),
        pytest.param(stem("lists", "first stem"), id="another optimizer has it in one step"),
        pytest.param(stem("unknown"), id="an optimizer of which nothing is recorded"),
        pytest.param(stem("lists", "unknown"), id="a second one of which nothing is recorded"),
        pytest.param(stem("mixed"), id="an optimizer of which something is not recorded"),
        pytest.param(stem("layer", "stem"), id="optimizers have others than the first ones"),
        pytest.param(stem(stem=[]), id="a single number"),
        pytest.param(stem(f"fused{TRAINED + 1}"), id="other blocks"),
        pytest.param(stem("foreach3"), id="other tensors"),
        pytest.param(
            stem(f"fused{TRAINED}", stem=[1, 100, 512]), id="the stem and the layer would fit as well"
        ),
        pytest.param(stem(added=True, together=True), id="added to the step before"),
        pytest.param(stem(between="aten::sign"), id="read before the optimizer's step"),
        pytest.param(stem(after="aten::sign"), id="read after the optimizer's step"),
        pytest.param(stem(between="aten::reshape"), id="flattened"),
        pytest.param(stem(after="aten::sub_"), id="an update by the program itself"),
        pytest.param(stem(after="aten::addcmul_"), id="an update with a factor"),
        pytest.param(stem(between=["aten::_foreach_div_", TRAINED + 2]), id="a list that may have it"),
        pytest.param(stem(hook=True), id="a hook reads it"),
        pytest.param(stem(forward={"before": "aten::sign"}), id="read before forward, with forward's number"),
        pytest.param(stem(forward={"known": False}), id="forward without numbers"),
        pytest.param(stem(steps=1), id="one step"),
        pytest.param(stem("first lists", steps=2), id="an optimizer's step after the first pass alone"),
    ],
)
def test_gradients_that_something_may_use_are_left_alone(run: Stem) -> None:
    assert found(run.trace, "unused-gradient") == []


def test_two_steps_are_enough() -> None:
    (unused,) = found(stem(steps=2).trace, "unused-gradient")
    assert unused.cost_ns == 2 * 11 * 50 * US


def test_passes_that_are_unlike_each_other_are_left_alone() -> None:
    run = stem()
    run.step(3)
    run.forward()
    run.backward(stem=[1, 99, 512])
    run.stepping("lists")
    assert found(run.trace, "unused-gradient") == []


def test_an_optimizer_that_steps_within_backward_is_left_alone() -> None:
    run = stem()
    leaf = next(event for event in run.trace.events if event["name"] == "torch::autograd::AccumulateGrad")
    run.trace.annotation("Optimizer.step#SGD.step", int(leaf["ts"] * 1_000) + US, US, tid=9)
    assert found(run.trace, "unused-gradient") == []


@pytest.mark.parametrize("number", [{}, {"Sequence number": 999}], ids=["without a number", "of no node"])
def test_gradients_read_after_the_last_step_are_needed(number: dict[str, Any]) -> None:
    run = stem()
    run.trace.op("aten::sign", run.now, 4 * US, **{"Input Dims": [STEM]}, **number)
    assert found(run.trace, "unused-gradient") == []
