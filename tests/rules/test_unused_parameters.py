"""What is read off an optimizer's step, of its lists and of its kernels, and which gradients have such a shape."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.rules.programs import US
from tests.support.partly_trained import HEAD, LAYER, FineTuning
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.tensors.unused_gradient.optimizer_lists import (
    blocks_of,
    counted,
    lists_of,
    taken_by,
    used_by_optimizers,
)

ONE, TWO = (100, 512), (512, 512)
"""The head's and the layer's weight."""


def views(run: FineTuning) -> tuple[Calls, Work, Calls, Calls]:
    """(calls, work, gradients, steps of optimizers) of a run."""
    analysis = Analysis(run.trace.load())
    calls = analysis.index(Calls)
    leaves = calls[calls.is_op & calls.name.matches("^torch::autograd::AccumulateGrad$")]
    return calls, analysis.index(Work), leaves, calls[calls.is_annotation & calls.name.matches("^Optimizer")]


class Stepping(FineTuning):
    """Optimizers' steps."""

    def __enter__(self) -> Stepping:
        self.began = self.now
        self.now += 2 * US
        return self

    def __exit__(self, *_: object) -> None:
        self.trace.annotation("Optimizer.step#Adam.step", self.began, self.now - self.began)
        self.now += US


def stepping(*ops: tuple[str, list[Any]], before: tuple[str, list[Any]] | None = None) -> Stepping:
    """One step with these ops on lists; and one without any."""
    run = Stepping(900 * US)
    run.step(0)
    run.layer(HEAD)
    if before:
        run.op(before[0], *before[1])
    with run:
        for name, dims in ops:
            run.op(name, *dims, kernels=(5 * US,))
    with run:
        pass
    return run


COUNT: tuple[str, list[Any]] = ("aten::_foreach_add_", [[[], [], []]])
ADAM: tuple[str, list[Any]] = ("aten::_fused_adam_", [[HEAD, LAYER], [HEAD, LAYER]])


@pytest.mark.parametrize(
    ("ops", "updated"),
    [
        ([ADAM], [ONE, TWO]),
        ([COUNT, ADAM], [ONE, TWO]),  # three numbers are counted, and two tensors updated
        ([ADAM, COUNT], [ONE, TWO]),
        ([("aten::_foreach_mul_", [[HEAD]]), ADAM], [ONE, TWO]),
        ([("aten::_fused_adam_", [[HEAD]]), ("aten::_fused_adam_", [[LAYER]])], [ONE, TWO]),  # of two groups
        ([ADAM, ("aten::_fused_adam_", [[], []])], []),  # the second group's is too long to be recorded
        ([("aten::_fused_adam_", [[[]]])], [()]),
        ([("aten::addcdiv_", [HEAD, HEAD])], []),
    ],
)
def test_an_optimizer_updates_its_longest_list(
    ops: list[tuple[str, list[Any]]], updated: list[tuple[int, ...]]
) -> None:
    calls, _, _, marks = views(stepping(*ops))
    assert lists_of(calls, marks) == [Counter(updated), Counter()]


def test_what_a_step_takes_is_all_that_its_ops_take() -> None:
    calls, _, _, marks = views(
        stepping(ADAM, ("aten::add_", [[7, 9], [9]]), before=("aten::mul", [[3, 3], [3, 3]]))
    )
    assert taken_by(calls, marks) == [{ONE, TWO, (7, 9), (9,)}, set()]


def test_a_single_number_may_be_any_that_the_optimizer_has() -> None:
    run = Stepping(900 * US)
    run.step(0)
    for shape in (HEAD, LAYER, [], [9, 9]):
        run.layer(shape)
    run.op("aten::sub_", [9, 9], [9, 9])
    with run:
        run.op("aten::_fused_adam_", [HEAD], [HEAD], kernels=(5 * US,))
    calls, _, leaves, marks = views(run)
    assert used_by_optimizers(calls, leaves, marks).tolist() == [True, False, True, True]


def test_blocks_are_those_of_kernels_over_lists() -> None:
    """Beside a kernel of 132 blocks that copies a number of the same op."""
    run = Stepping(900 * US)
    run.step(0)
    with run:
        run.long_list("aten::_foreach_add_", 2)
        run.long_list("aten::_fused_adam_", 5)
        run.op("aten::_fused_adam_", [], kernels=(5 * US,))
    with run:
        run.long_list("aten::_fused_adam_", 7)
        run.long_list("aten::_foreach_addcdiv_", 4)
    calls, work, _, marks = views(run)
    assert blocks_of(work, marks).tolist() == [7, 11]
    sizes, blocks = counted(calls, work, marks)
    assert (sizes.tolist(), blocks.tolist()) == ([2, 0], [5, 11])


def test_unfused_optimizers_count_tensors_by_ops() -> None:
    run = Stepping(900 * US)
    run.step(0)
    run.trace.op("aten::add_", run.now, US)
    run.now += 2 * US
    with run:
        run.trace.op("aten::_foreach_add_", run.now, 10 * US)
        for place in range(3):
            run.trace.op("aten::add_", run.now + (1 + 2 * place) * US, US)
        run.now += 12 * US
        run.trace.op("aten::add_", run.now, US)
        run.long_list("aten::_foreach_addcdiv_", 9)
    calls, work, _, marks = views(run)
    assert [one.tolist() for one in counted(calls, work, marks)] == [[3], [9]]


def numbered(number: int) -> dict[str, Any]:
    return {"Sequence number": number}
