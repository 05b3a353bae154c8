"""What is read off an optimizer's step, of its lists and of its kernels, and which gradients have such a shape."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.rules.programs import US
from tests.rules.test_unused_gradient import HEAD, LAYER, FineTuning
from tests.rules.test_unused_gradient_limits import tuned
from tests.support.op_calls import op
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.tensors.unused_gradient import _makes, _of_shapes
from traceanalyzer.rules.tensors.unused_gradient.discarded import _forward, _hooked, _opaque, _Pass, _verdict
from traceanalyzer.rules.tensors.unused_gradient.optimizer_lists import (
    Zeroing,
    blocks_of,
    counted,
    lists_of,
    taken_by,
    updates_are_recorded,
    used_by_optimizers,
)
from traceanalyzer.tensors.signatures import Signature

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


@pytest.mark.parametrize(
    ("ops", "before", "recorded"),
    [
        ([ADAM], None, True),
        ([("aten::_fused_adam_", [[], []])], None, False),
        ([ADAM, ("aten::_foreach_mul_", [[]])], None, False),
        ([ADAM], ("aten::_foreach_sub_", [[], []]), False),  # by the program itself
        ([ADAM], ("aten::_foreach_sub_", [[HEAD], [HEAD]]), True),
        ([ADAM], ("aten::add_", [[], []]), True),  # a counter, no list
        ([ADAM], ("aten::_foreach_norm", [[]]), True),  # changes nothing
        ([], None, False),
    ],
)
def test_updates_are_known_where_every_list_is_recorded(
    ops: list[tuple[str, list[Any]]], before: tuple[str, list[Any]] | None, recorded: bool
) -> None:
    calls, work, _, marks = views(stepping(*ops, before=before))
    assert updates_are_recorded(calls, work, marks) is recorded
    assert _opaque(work, marks) is (not ops)


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


def test_an_optimizer_that_is_not_fused_counts_each_tensor_by_an_op() -> None:
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


def test_three_shapes_are_named_and_four_are_not() -> None:
    shapes = [HEAD, LAYER, [7, 9], [3]]
    for count, text in ((3, " (of shapes 100x512, 512x512, 7x9)"), (4, "")):
        run = FineTuning(900 * US)
        run.step(0)
        for shape in [*shapes[:count], HEAD]:
            run.gradient(shape, added=False)
        run.op("aten::exp", [3])
        assert _of_shapes(views(run)[2]) == text


@pytest.mark.parametrize(
    ("call", "made"),
    [
        (op("mm", [4, 5], [5, 6]), True),
        (op("mm", [6, 5], [5, 4]), True),  # transposed
        (op("mm", [4, 6], [6, 5]), False),
        (op("mm", [4, 6]), False),
        (op("addmm", [6], [4, 5], [5, 6]), False),
        (op("convolution_backward", [2, 4], [2, 6], [4, 6]), True),
        (op("convolution_backward", [4, 6], [4, 6], [6, 4]), False),
        (op("convolution_backward", [4, 6], [4, 6]), False),
        (Signature("ToCopyBackward0", ([4, 6],), ("float",), ("",)), True),
        (Signature("ToCopyBackward0", ([6, 4],), ("float",), ("",)), False),
    ],
)
def test_what_makes_or_converts_a_gradient_of_a_weight(call: Signature, made: bool) -> None:
    assert _makes(call, {(4, 6)}) is made


def numbered(number: int) -> dict[str, Any]:
    return {"Sequence number": number}


def test_each_thread_numbers_its_own_nodes() -> None:
    """On the first thread, the last op with a number is the node's, and those before only show it."""
    trace = TraceBuilder()
    seen = [("aten::detach", 1, 5), ("aten::add", 1, 5), ("aten::mul", 2, 5), ("aten::exp", 2, 6)]
    for at, (name, tid, number) in enumerate(seen):
        trace.op(name, at * 10 * US, 5 * US, tid=tid, **numbered(number))
    trace.op("aten::neg", 50 * US, 5 * US, tid=1)
    trace.op("autograd::engine::evaluate_function: AddBackward0", 90 * US, 5 * US, tid=3, **numbered(5))
    trace.launch("cudaLaunchKernel", 95 * US, US, 1)
    trace.kernel(99 * US, US, 1)
    calls = Analysis(trace.load()).index(Calls)
    ops = calls[calls.is_op & calls.name.matches("^aten::")]
    assert dict(zip(ops.name.values(), _forward(calls, ops).tolist(), strict=True)) == {
        "aten::detach": False,
        "aten::add": True,
        "aten::mul": True,
        "aten::exp": False,
        "aten::neg": False,
    }


def test_a_gradient_is_hooked_if_its_own_node_calls_another_op() -> None:
    calls, _, leaves, _ = views(tuned())
    assert not _hooked(calls, leaves)
    run = FineTuning(900 * US)
    run.step(0)
    run.layer(HEAD)
    run.trace.op("aten::sum", run.now, US)
    run.now += 2 * US
    run.gradient(LAYER, added=True)  # what it adds is its own
    calls, _, leaves, _ = views(run)
    assert not _hooked(calls, leaves)


@pytest.mark.parametrize(
    ("added", "zeroed_ns", "cleared"),
    [
        ([False, False], 0, True),
        ([True, False], 0, False),  # one of them is added to what was there
        ([True, True], 0, False),
        ([True, True], 150, True),
        ([True, True], 199, True),
        ([True, True], 99, False),
        ([True, True], 200, False),
    ],
)
def test_gradients_are_cleared_that_are_made_anew_or_set_to_zero(
    added: list[bool], zeroed_ns: int, cleared: bool
) -> None:
    """Two at 0 to 100 ns, which no optimizer has, and again at 200 and 300 ns."""
    leaves = cast(
        "Calls", SimpleNamespace(start_ns=np.array([0, 50, 300, 200]), end_ns=np.array([50, 100, 350, 250]))
    )
    shapes: list[tuple[int, ...]] = [(9, 9)] * 4
    kept = np.array([0, 1])
    passes = [_Pass(kept, kept, frozenset({(9, 9)}), 0), _Pass(kept + 2, kept[:0], frozenset(), 1)]
    zeroed = Zeroing(np.array([zeroed_ns]), [Counter({(9, 9): 2 * (zeroed_ns > 0)})], np.array([0]))
    lists = [Counter[tuple[int, ...]]([ONE]), Counter[tuple[int, ...]]([(9, 9)])]
    verdict = _verdict(0, passes, leaves, shapes, lists, np.array([False, False, *added]), zeroed)
    assert verdict == ((True, [2, 3]) if cleared else (None, None))
