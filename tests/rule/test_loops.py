"""Loops of a step by ops that come again in the same order; capitals are products."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.rule.loops import LAYER, Loop, loops_of_layers, step_edges, whole_loops


def coded(ops: str) -> tuple[Any, Any]:
    """(kind of each, which are products)."""
    return np.array([*map(ord, ops)], np.int64), np.array([one.isupper() for one in ops], bool)


def layered(ops: str, least: int, low: int = 0, high: int | None = None, names: str = "") -> list[Loop]:
    kind, products = coded(ops)
    alike = coded(names)[0] if names else None
    return loops_of_layers(low, len(ops) if high is None else high, kind, products, least, alike)


@pytest.mark.parametrize(
    ("ops", "loops"),
    [
        ("AbCAbCxY" * 3, [Loop(0, 8, 3, 24)]),  # two layers, and what is around
        ("qAbCAbCxY" + "AbCAbCxY" * 2 + "q", [Loop(1, 8, 3, 25)]),
        ("AbCAbCxY" * 2 + "AbCAbCq", [Loop(0, 8, 3, 22)]),  # the last ends early
        ("AbCAbCxY" * 2 + "AbCAbC", [Loop(0, 8, 3, 22)]),
        ("AbCAbCxY" * 2, []),  # too few
        ("AbCAbCAbC" * 3, []),  # layers alone
        ("AbCAbC" * 3, []),
        ("AbCAbCAbD" * 3, [Loop(0, 9, 3, 27)]),
        ("AbCAbCAb" * 3, [Loop(0, 8, 3, 24)]),
        ("AxAxY" * 3, []),  # of one product each
        ("AbCxAbCxY" * 3, [Loop(0, 9, 3, 27)]),
        ("AbCAbDxY" * 3, []),  # of nothing that comes twice
        ("AbCAbCxY" * 2 + "AbCxAbCY", []),
    ],
)
def test_iterations_begin_with_layers_that_repeat_and_hold_more_than_these(
    ops: str, loops: list[Loop]
) -> None:
    assert layered(ops, 3) == loops


def test_as_few_iterations_as_are_asked_for_are_a_loop() -> None:
    ops = "AbCAbCxY" * 4
    assert layered(ops, 4) == [Loop(0, 8, 4, 32)]
    assert layered(ops, 5) == []


def test_a_loop_ends_with_its_step() -> None:
    """The next step begins with what an iteration would go on with."""
    ops = "q" + "AbCAbCxY" * 2 + "AbCAbCx"
    assert layered(ops + "Yq", 3, 1, len(ops)) == [Loop(1, 8, 3, len(ops))]
    assert layered("AbC" + ops, 3, 4) == [Loop(4, 8, 3, len(ops) + 3)]


def test_ops_that_are_alike_are_of_one_loop_though_their_shapes_differ() -> None:
    """What is around the layers grows from iteration to iteration."""
    ops, names = "AbCAbCxYAbCAbCyYAbCAbCzY", "AbCAbCxY" * 3
    assert layered(ops, 3) == []
    assert layered(ops, 3, names=names) == [Loop(0, 8, 3, 24)]
    assert layered("AbCAbCxYAbCAbCyYAbCAbCz", 3, names=names[:-1]) == [Loop(0, 8, 3, 23)]


@pytest.mark.parametrize(
    ("ops", "loops"),
    [
        ("zzaBcaBcaBcaBcq", [Loop(2, 3, 4, 14)]),
        ("aBcaBcaBcaBc", [Loop(0, 3, 4, 12)]),
        ("BBBB", [Loop(0, 1, 4, 4)]),
        ("zBcBcBcBcq", [Loop(1, 2, 4, 9)]),
        ("aBcaBcaBcaB", [Loop(0, 3, 3, 9)]),  # the fourth is not whole
        ("aBcaBcaBcq", [Loop(0, 3, 3, 9)]),
        ("aBcaBcq", []),
        ("aBcDaBcDaBcD", [Loop(0, 4, 3, 12)]),
        ("aBBcaBBcaBBc", [Loop(0, 4, 3, 12)]),  # twice in each
        ("aBcaBccaBc", []),
        ("abcabcabc", []),
    ],
)
def test_whole_loops_go_from_the_first_op_that_comes_again_to_the_last_whole_iteration(
    ops: str, loops: list[Loop]
) -> None:
    """Wherever the step lies among others."""
    for before, after in (("", ""), ("cq", "aBc")):
        kind, products = coded(before + ops + after)
        low, high = len(before), len(before) + len(ops)
        found = whole_loops(low, high, kind, products, 3)
        assert found == [Loop(one.first + low, one.period, one.repeats, one.end + low) for one in loops]


def test_steps_and_threads_have_edges() -> None:
    """A step of two threads, and the next of the second."""

    class Ops(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.step)

    ops: Any = Ops(step=np.array([0, 0, 0, 1, 1, 3]), thread=np.array([7, 7, 9, 9, 9, 9]))
    assert step_edges(ops) == [0, 2, 3, 5, 6]
    assert step_edges(Ops(step=np.zeros(3, int), thread=np.zeros(3, int))) == [0, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("aten::linear", True),
        ("aten::conv2d", True),
        ("aten::convolution", True),
        ("aten::baddbmm", True),
        ("aten::embedding", True),
        ("aten::embedding_bag", False),
        ("aten::mm_out", False),
        ("xaten::mm", False),
    ],
)
def test_layers_are_products_convolutions_and_embeddings(name: str, layer: bool) -> None:
    assert (LAYER.search(name) is not None) is layer
