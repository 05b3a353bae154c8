"""Loops in training and their backward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US
from tests.rules.loops import Loop
from traceanalyzer import Finding, Trace, diagnose
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Recorded

HEADS = 20
NODE = "autograd::engine::evaluate_function: "
SUMS_UP = f"{NODE}torch::autograd::AccumulateGrad"
HEAD, BACKWARD = (
    ["aten::linear", "aten::select", "aten::add"],
    [f"{NODE}AddmmBackward0", SUMS_UP, f"{NODE}TBackward0"],
)


def loop(begin_us: int, end_us: int, last_us: int = 0) -> Any:
    """A loop from the one to the other, whose last repeat begins then."""
    at = SimpleNamespace(start_ns=np.array([begin_us, last_us]) * US)
    return SimpleNamespace(first_ops=at, ends_ns=np.array([last_us, end_us]) * US)


def nodes(*at_us: int) -> Any:
    """What another loop recorded: nodes that begin then."""
    return SimpleNamespace(nodes=SimpleNamespace(start_ns=np.array(at_us, np.int64) * US))


def engine(*at_us: int) -> Recorded:
    """All nodes begin then."""
    nothing: Any = SimpleNamespace()
    return Recorded(nothing, np.empty(0, np.int64), np.array(at_us, np.int64) * US)


@pytest.mark.parametrize(
    ("others", "which"),
    [
        ([nodes(100, 110, 120, 130)], 0),
        ([nodes(100, 110, 120)], 0),  # three of four
        ([nodes(100, 110)], -1),
        ([nodes(100), nodes(110, 120, 130)], 1),
        ([nodes(10, 20, 30, 40), nodes(100, 110, 120)], 1),  # before the loop
        ([nodes(200, 210, 220, 230), nodes(100, 110, 120)], 1),  # after it
        ([nodes(10, 20, 30)], -1),
        ([nodes(140, 150, 160)], -1),
        ([nodes()], -1),
        ([], -1),
    ],
)
def test_node_loop_belongs_to_the_loop_that_recorded_it(others: list[Any], which: int) -> None:
    """Four nodes run from 100 us until 140 us, and others before and after."""
    recorded = engine(10, 20, 30, 40, 100, 110, 120, 130, 140, 150, 160, 200, 210, 220, 230)
    assert recorded.forward_of(loop(100, 140, 130), others) == which


@pytest.mark.parametrize(
    ("at_us", "between"), [(99, False), (100, True), (129, True), (130, False), (139, False)]
)
def test_backward_runs_between_repeats_until_the_last_one_begins(at_us: int, between: bool) -> None:
    """Repeats begin at 100 us and at 130 us."""
    assert engine(at_us).runs_between(np.array([100, 130]) * US) is between


def training(head: list[str], node: list[str], *, optimizer_ns: int = 0, then: str = "aten::add") -> Trace:
    """Steps that call so many heads one after the other, run their backward, and update their parameters."""
    loop = Loop()
    for _ in range(6):
        loop.begin()
        for name in ["aten::ones", *head * HEADS]:
            loop.launched(name, kernel_ns=2_000)
        loop.launched(then, launch_ns=90_000, kernel_ns=2_000)
        for name in ["aten::ones_like", *node * HEADS]:
            loop.launched(name, kernel_ns=2_000, tid=1001 if name.startswith(NODE) else 1000)
        if optimizer_ns:
            loop.annotation("Optimizer.step#AdamW.step", loop.now, optimizer_ns + 13_000)
            loop.pause(optimizer_ns)
            loop.launched("aten::_foreach_add_", kernel_ns=2_000)
        loop.end()
    return loop.load()


def loops_of(trace: Trace) -> list[Finding]:
    return list(diagnose(trace, select=["repeated-calls"]).findings)


def test_the_backward_of_a_loop_of_layers_is_one_call_as_well() -> None:
    found = loops_of(training(HEAD, BACKWARD))
    assert sorted(one.evidence["members"] for one in found) == [3, 3]
    assert any("AddmmBackward0" in one.evidence["ops"] for one in found)


@pytest.mark.parametrize(("then", "goes"), [("aten::stack", True), ("aten::sum", False)])
def test_the_stack_of_what_the_repeats_made_goes_with_them(then: str, goes: bool) -> None:
    saved_ns = [
        sum(one.saving.step_ns for one in loops_of(training(HEAD, BACKWARD, then=name)) if one.saving)
        for name in ("aten::sum", then)
    ]
    assert (saved_ns[1] - saved_ns[0] > 70_000) == goes


def test_backward_alone_may_be_that_of_layers() -> None:
    assert loops_of(training(["aten::linear", "aten::relu", "aten::add"], BACKWARD)) == []


@pytest.mark.parametrize(("node", "goes"), [(BACKWARD, True), ([BACKWARD[0], f"{NODE}TBackward0"], False)])
def test_optimizer_shrinks_if_parameters_become_one(node: list[str], goes: bool) -> None:
    """Not where the repeats share their parameters. A pause so long is no part of the loop."""

    def saved_ns(optimizer_ns: int) -> int:
        backward = next(
            one
            for one in loops_of(training(HEAD, node, optimizer_ns=optimizer_ns))
            if "AddmmBackward0" in one.evidence["ops"]
        )
        assert backward.saving is not None
        return backward.saving.step_ns

    assert (saved_ns(600_000) > saved_ns(310_000) + 200_000) == goes
