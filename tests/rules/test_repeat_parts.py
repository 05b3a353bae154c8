"""What a loop of ops is told apart by, part for part: its words, its advice, and how sure it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import GEMM, POINTWISE, US, loop, of_rule, steps_of
from traceanalyzer.model.finding import Confidence
from traceanalyzer.rules.gpu_idle.repeated_calls import Judge
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import (
    launched_text,
    list_ops,
    loop_advice,
    short_name,
    sums_up_list,
)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a",), "a"),
        (("a", "a"), "a (twice)"),
        (("a", "a", "a"), "a (3 times)"),
        (("a", "b", "c", "d"), "a, b, c, d"),
        (("a", "b", "c", "d", "e"), "a, b, c, d and 1 other op"),
        (("a", "b", "c", "d", "e", "f"), "a, b, c, d and 2 other ops"),
    ],
)
def test_four_ops_are_listed_and_the_others_counted(names: tuple[str, ...], words: str) -> None:
    assert list_ops(names) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [(("a",), "a"), (("a", "a"), "a"), (("a", "b", "a"), "a + 1 op"), (("a", "b", "c"), "a + 2 ops")],
)
def test_a_loop_without_a_line_is_named_by_its_first_op(names: tuple[str, ...], words: str) -> None:
    assert short_name(names) == words


@pytest.mark.parametrize(
    ("kernels", "copies", "words"),
    [
        (1, 0, "{kernels} kernel ({kernel})"),
        (2, 0, "{kernels} kernels ({kernel} per kernel)"),
        (0.5, 0, "{kernels} kernels ({kernel} per kernel)"),
        (0, 1, "{copies} copy ({copy})"),
        (0, 3, "{copies} copies ({copy} per copy)"),
        (1, 2, "{kernels} kernel ({kernel}) and {copies} copies ({copy} per copy)"),
    ],
)
def test_launched_text_of_one_is_singular(kernels: float, copies: float, words: str) -> None:
    assert launched_text(kernels, copies) == words


@pytest.mark.parametrize(
    ("names", "lists"),
    [
        (("aten::pow", "aten::sum"), True),
        (("aten::norm",), True),
        (("aten::mse_loss", "aten::add_"), True),
        (("aten::pow", "aten::add"), False),  # sums nothing up
        (("aten::sum", "aten::relu"), False),  # does something else besides
        (("aten::mul", "aten::sum"), False),  # of a state, step after step
        (("aten::mul", "aten::abs", "aten::sum"), True),
    ],
)
def test_penalty_sums_up_and_does_nothing_else(names: tuple[str, ...], lists: bool) -> None:
    assert sums_up_list(names) is lists


@pytest.mark.parametrize(
    ("names", "how", "advice"),
    [
        (("aten::zero_",), {}, "Set gradients to None"),
        (("aten::zero_", "aten::add_"), {}, "Update all tensors with one call"),
        (("aten::zero_", "aten::add"), {}, "Stack the inputs and use one op"),
        (("aten::linear", "aten::add_"), {}, "Stack the inputs, and call the layer or model once"),
        (("aten::slice",), {}, "Take all slices with one op"),
        (("aten::slice", "aten::relu"), {}, "Stack the inputs and use one op"),
        (("aten::narrow", "aten::embedding"), {}, "Join the tables into one"),
        (("aten::to", "aten::cos"), {"copies": True}, "Collect on the host what each repetition copies"),
        (("aten::to", "aten::cos"), {}, "Stack the inputs and use one op"),
        (("aten::copy_",), {}, "Copy all these tensors with one call"),
        (("aten::copy_",), {"places": ["a.py(1): f"]}, "Copy all these tensors with one call"),
        (
            ("aten::copy_",),
            {"places": ["a.py(1): f", "DistributedDataParallel.forward"]},
            "DistributedDataParallel copies its buffers",
        ),
        (("aten::norm", "aten::item"), {}, "Compute all norms with one call"),
        (("aten::linalg_vector_norm", "aten::item"), {}, "Compute all norms with one call"),
        (("aten::norm",), {}, "Take all tensors at once: torch._foreach_norm"),
        (("aten::pow", "aten::sum"), {"backward": True}, "An L2 penalty on parameters is the optimizer's"),
        (("aten::abs", "aten::sum"), {"backward": True}, "Take all tensors at once: one op on stacked"),
        (("aten::linear", "torchvision::nms"), {}, "Use torchvision.ops.batched_nms"),
        (("aten::linear", "aten::nonzero"), {"sized": True}, "Sort the rows once by the expert"),
    ],
)
def test_one_call_for_all_is_that_of_the_loop_s_ops(
    names: tuple[str, ...], how: dict[str, Any], advice: str
) -> None:
    arguments = {"copies": False, **how}
    assert loop_advice(names, **arguments).startswith(advice)


LIMITS: Any = SimpleNamespace(min_repeats=16, max_layer_ops=12, max_loop_launches=16)


def repeats(count: int, *names: str, **how: Any) -> Any:
    """A loop of so many repeats that take 10 us each, of one launch for each op."""
    starts = np.arange(count) * 10 * US
    loop: dict[str, Any] = {"names": names, "count": count, "launches": count * len(names)}
    loop |= dict.fromkeys(("shapes_change", "shapes_grow", "collected", "apart", "exact", "copies"), False)
    one = SimpleNamespace(at=SimpleNamespace(start_ns=starts), ends_ns=starts + 10 * US, **{**loop, **how})
    one.has_batch_of_one = lambda ops: how.get("single", False)
    return one


NONE: Any = SimpleNamespace(start_ns=np.empty(0, np.int64))
LOW, MEDIUM = Confidence.LOW, Confidence.MEDIUM


@pytest.mark.parametrize(
    ("one", "sure"),
    [
        # with a layer
        (repeats(16, "aten::linear", "aten::relu"), None),
        (repeats(16, "aten::linear", "aten::select"), LOW),
        (repeats(15, "aten::linear", "aten::select"), None),
        (repeats(15, "aten::linear", "aten::select", shapes_change=True), LOW),
        (repeats(16, "aten::linear", "aten::to"), LOW),
        (repeats(16, "aten::linear", "aten::relu", collected=True), LOW),
        (repeats(16, "aten::linear", "aten::select", *["aten::relu"] * 10), LOW),
        (repeats(16, "aten::linear", "aten::select", *["aten::relu"] * 11), None),
        (repeats(4, "aten::linear", apart=True), MEDIUM),
        (repeats(16, "aten::linear", apart=True), None),
        # a whole model on a batch, or one that keeps what came before
        (repeats(16, "aten::linear", "aten::select", launches=256), LOW),
        (repeats(16, "aten::linear", "aten::select", launches=257), None),
        (repeats(16, "aten::linear", "aten::select", launches=257, single=True), LOW),
        (repeats(16, "aten::linear", "aten::select", launches=257, single=True, shapes_grow=True), None),
        # one sample after the other, which the first op takes
        (repeats(16, "aten::slice", "aten::linear", exact=True, launches=999), LOW),
        (repeats(16, "aten::relu", "aten::slice", "aten::linear", exact=True, launches=999), None),
        (repeats(16, "aten::slice", "aten::linear", "aten::argmax", exact=True), None),
        (repeats(16, "aten::slice", "aten::linear", launches=999), None),
        # pointwise ops alone
        (repeats(16, "aten::add", "aten::relu"), None),
        (repeats(16, "aten::add", "aten::relu", copies=True), MEDIUM),
        (repeats(16, "aten::add", "aten::relu", collected=True), MEDIUM),
        (repeats(16, "aten::add", "aten::relu", shapes_change=True), MEDIUM),
        (repeats(16, "aten::add", "aten::select"), LOW),
        (repeats(15, "aten::add", "aten::select"), None),
        (repeats(16, "aten::add_", "aten::mul_"), MEDIUM),
        (repeats(16, "aten::add_", "aten::relu"), None),
        (repeats(16, "EmbeddingBackward0", "aten::relu"), LOW),
        (repeats(16, "torch.distributed.ddp.reducer", "aten::select"), None),
        # checks of a distribution's arguments
        (repeats(15, "aten::select", "aten::_is_all_true", shapes_change=True), None),
        (repeats(16, "aten::select", "aten::_is_all_true", shapes_change=True), MEDIUM),
    ],
)
def test_confidence_of_independent_repeats(one: Any, sure: Confidence | None) -> None:
    assert Judge(LIMITS, NONE).confidence(one) is sure


@pytest.mark.parametrize(
    ("count", "members", "sure"), [(16, {16}, LOW), (16, {15}, None), (5, {5}, MEDIUM), (5, {4}, None)]
)
def test_backward_is_a_loop_where_it_repeats_as_often_as_one(
    count: int, members: set[int], sure: Confidence | None
) -> None:
    loop = repeats(count, "AddmmBackward0", "TBackward0")
    assert Judge(LIMITS, NONE, frozenset(members)).confidence(loop) is sure


@pytest.mark.parametrize(
    ("at_us", "change", "sized"),
    [
        ([0, 10, 20, 30], True, True),
        ([0, 10, 20], True, False),  # not each
        ([0, 10, 20, 39], True, True),  # the last within its repeat
        ([0, 10, 20, 40], True, False),  # after them
        ([-1, 10, 20, 30], True, False),  # before them
        ([0, 10, 20, 30], False, False),  # always as many rows
    ],
)
def test_counting_ops_within_the_loop_size_its_repeats(at_us: list[int], change: bool, sized: bool) -> None:
    counting: Any = SimpleNamespace(start_ns=np.array(at_us) * US)
    loop = repeats(4, "aten::linear", shapes_change=change)
    judge = Judge(LIMITS, counting)
    assert judge.sized_by_data(loop) is sized
    assert judge.confidence(loop) is (MEDIUM if sized else None)


def test_copies_and_kernels_of_a_repeat_have_own_times() -> None:
    """Of each repeat a copy of 3 us and three kernels of 1 us."""
    trace, at, number = steps_of([]), 0, 0
    for step in range(3):
        begin = at
        for name in ["aten::to", "aten::select", "aten::mul", "aten::add"] * 20:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, number)
            if name == "aten::to":
                trace.memcpy(at + 7 * US, 3 * US, number, name="Memcpy HtoD (Pinned -> Device)", size=4)
            else:
                trace.kernel(at + 7 * US, US, number, name=POINTWISE)
            at += 11 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    told = {name: one.evidence[name] for name in ("launches", "kernels", "kernel_ns", "copies", "copy_ns")}
    assert told == {"launches": 4.0, "kernels": 3.0, "kernel_ns": US, "copies": 1.0, "copy_ns": 3 * US}
    assert "each run launches 3 kernels (1.00 µs per kernel) and 1 copy (3.00 µs)" in one.message


def test_a_loop_of_more_repeats_tells_how_often_it_runs() -> None:
    """The first step has sixteen repeats, the others twenty."""
    trace = loop(["aten::select", "aten::mul"], 16, steps=1)
    at, number = 40 * 12 * US, 1_000
    for step in (1, 2):
        begin = at
        for name in ["aten::select", "aten::mul"] * 20:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=POINTWISE)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.count, one.evidence["repeats"]) == (56, 20)


def test_an_optimizer_s_own_loop_is_not_told_twice() -> None:
    """unfused-optimizer tells of it."""
    trace = loop(["aten::mul_", "aten::add_"], 30, kernel=GEMM)
    (one,) = of_rule(trace, "repeated-calls")
    for step in range(3):
        trace.annotation("Optimizer.step#SGD.step", step * 720 * US, 719 * US)
    assert one.count == 90
    assert of_rule(trace, "repeated-calls") == []


@pytest.mark.parametrize(("grids", "said"), [((132, 132), False), ((132, 66), True)])
def test_decoding_loop_is_no_loop_of_samples(grids: tuple[int, int], said: bool) -> None:
    """Rows of different lengths are other samples."""
    trace, at, number = steps_of([]), 0, 0
    for step in range(3):
        begin = at
        for repeat in range(20):
            for name in ("aten::slice", "aten::linear", "aten::argmax"):
                number += 1
                trace.op(name, at, 10 * US)
                trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, number)
                trace.kernel(at + 7 * US, US, number, name=GEMM, grid=(grids[repeat % 2], 1, 1))
                at += 11 * US
        trace.step(step, begin, at - begin)
    assert bool(of_rule(trace, "repeated-calls")) is said


def test_loops_of_other_ops_in_one_step_are_each_told() -> None:
    """One of 20 repeats, one of 18, and one of 16."""
    counts = {"mul": 20, "exp": 18, "log": 16}
    ops: list[tuple[str, dict[str, Any]]] = [
        (f"aten::{name}", {}) for op, count in counts.items() for name in ("select", op) * count
    ]
    said = {one.evidence["ops"]: one.count for one in of_rule(steps_of(ops, steps=2), "repeated-calls")}
    assert said == {f"aten::select, aten::{op}": 2 * count for op, count in counts.items()}
