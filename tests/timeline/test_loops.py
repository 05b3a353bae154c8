"""Exact, approximate and nested loops, and edges of steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.loops import (
    LAYER,
    Loop,
    approximate_loops,
    exact_loops,
    nested_loops,
    step_edges,
)

START, END, EXTRA = 100, 101, 102


def exact(sequence: str, least: int = 3, groups: str | None = None) -> list[tuple[int, int, int]]:
    """(first, period, repeats) of each loop; a letter is an op."""
    kind = np.array([ord(letter) for letter in sequence], np.int64)
    group = np.array([int(letter) for letter in groups or "0" * len(sequence)], np.int64)
    return [(loop.first, loop.period, loop.repeats) for loop in exact_loops(kind, group, least)]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("", []),
        ("ab", []),
        ("abcdef", []),
        ("xaaaay", [(1, 1, 4)]),
        ("xabababy", [(1, 2, 3)]),
        ("abab", []),  # twice is no loop
        ("aabaabaab", [(0, 3, 3)]),
        ("xyzababababababcdcdcd", [(3, 2, 6)]),  # the one that covers more
        ("aaaaabcbcbc", [(0, 1, 5)]),  # the longer period covers a fifth more: no more than it must
        ("aaaabcbcbc", [(4, 2, 3)]),
        (
            "ababababxyzabababqbababa",
            [(0, 2, 4), (11, 2, 3), (18, 2, 3)],
        ),  # the same loop in three layers
    ],
)
def test_exact_loops_have_the_shortest_period_that_covers_most(
    sequence: str, expected: list[tuple[int, ...]]
) -> None:
    assert exact(sequence) == expected


def test_exact_loops_end_with_their_group() -> None:
    assert exact("aaaaaaa", groups="0001111") == [(0, 1, 3), (3, 1, 4)]


@pytest.mark.parametrize(("period", "found"), [(200, [(1, 200, 3)]), (201, [])])
def test_exact_loops_have_periods_of_at_most_200_ops(period: int, found: list[tuple[int, ...]]) -> None:
    kind = np.array([900, *list(range(period)) * 3, 901])
    loops = exact_loops(kind, np.zeros(len(kind), np.int64), 3)
    assert [(loop.first, loop.period, loop.repeats) for loop in loops] == found


def test_loop_members_are_repeats_by_period() -> None:
    (loop,) = exact_loops(np.array([9, 1, 2, 1, 2, 1, 2]), np.zeros(7, np.int64), 3)
    assert loop.members.tolist() == [[1, 2], [3, 4], [5, 6]]


def approximate(sequence: list[int], *more: list[int]) -> list[Loop]:
    """The loops of one group for each sequence."""
    parts = (sequence, *more)
    group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return approximate_loops(np.array([one for part in parts for one in part]), group, 8, 0.4)


def repeats(times: int, *, length: int = 6, branch: bool = True) -> list[int]:
    """A head, then so many repeats, every third of which has one op more."""
    body = [[*range(length), *([EXTRA] if branch and number % 3 == 0 else [])] for number in range(times)]
    return [START, *(one for part in body for one in part), END]


def test_approximate_loops_may_have_branches() -> None:
    (loop,) = approximate(repeats(20))
    assert loop.repeats in (19, 20)
    assert loop.end - loop.first >= 110


def test_approximate_loops_are_outermost() -> None:
    inner = [1, 2, 3] * 10
    (loop,) = approximate([op for _ in range(12) for op in (START, *inner, END)])
    assert loop.repeats in (11, 12)


def test_approximate_loops_may_exceed_200_ops() -> None:
    (loop,) = approximate(repeats(9, length=300))
    assert loop.repeats == 9


def test_approximate_loops_stay_within_a_group() -> None:
    found = approximate(repeats(10), list(range(200, 260)), repeats(30))
    ends = len(repeats(10)), len(repeats(10)) + 60 + len(repeats(30))
    assert len(found) == 2
    assert 0 <= found[0].first < found[0].end <= ends[0]
    assert ends[0] + 60 <= found[1].first < found[1].end <= ends[1]


def test_rare_ops_make_no_approximate_loop() -> None:
    assert approximate(list(range(50))) == []
    assert approximate(repeats(5)) == []
    assert approximate([]) == []


def test_an_exact_loop_is_an_approximate_loop() -> None:
    assert approximate([7, 8, 9], repeats(10, branch=False)) == [Loop(4, 6, 10, 64)]


def test_an_approximate_loop_ends_with_its_group() -> None:
    assert approximate(spaced(*[10] * 8)) == [Loop(0, 10, 9, 81)]


def spaced(*gaps: int) -> list[int]:
    """An anchor, 0, at these distances from one another, and nothing else that comes twice."""
    others = iter(range(1, 10_000))
    return [0, *(one for gap in gaps for one in (*(next(others) for _ in range(gap - 1)), 0))]


@pytest.mark.parametrize(("gap", "found"), [(4, 8), (5, 9), (16, 9), (17, 8)])
def test_repeats_are_0_5_to_1_6_times_the_usual_distance(gap: int, found: int) -> None:
    (loop,) = approximate(spaced(*[10] * 7, gap))
    assert loop.repeats == found


@pytest.mark.parametrize(("others", "found"), [(120, 1), (121, 0)])
def test_approximate_loops_cover_the_least_share(others: int, found: int) -> None:
    """80 members in 8 repeats, of 200 or of one more: 0.4 of them."""
    head = list(range(1_000, 1_000 + others + 9))
    assert len(approximate([*head, *spaced(*[10] * 7)])) == found


def test_step_edges_separate_steps_and_threads() -> None:
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
def test_layers_are_gemms_convolutions_and_embeddings(name: str, layer: bool) -> None:
    assert (LAYER.search(name) is not None) is layer


def nested(sequence: str) -> list[tuple[int, int, str]]:
    """(position of the first op, repeats, ops of a usual repeat) of each loop, the outer before the inner."""
    loops = nested_loops(np.array([ord(letter) for letter in sequence]), np.zeros(len(sequence), np.int64), 4)
    return [
        (int(starts[0]), len(starts), "".join(map(chr, body)))
        for starts, body in zip(loops.starts, loops.body, strict=True)
    ]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("", []),
        ("abcabcabc", []),  # three times may be chance
        ("xabcabcabcabcy", [(1, 4, "abc")]),
        ("aaaaaaaa", []),  # one op is no block
        ("abcabfcabcabfcabcabcabfcabc", [(0, 8, "abc")]),  # an op in some repeats
        ("xyabcdabcdxyabcdabcdxyabcdabcdxyabcdabcd", [(0, 4, "xyabcdabcd"), (2, 2, "abcd")]),
        ("abababababzzmnomnomnomnomno", [(12, 5, "mno"), (0, 5, "ab")]),
    ],
)
def test_nested_loops_allow_for_small_differences(
    sequence: str, expected: list[tuple[int, int, str]]
) -> None:
    loops = nested(sequence)
    assert loops[: len(expected)] == expected
    assert len(loops) >= len(expected)


def test_an_op_of_few_repeats_is_no_part_of_the_loop() -> None:
    kind = np.array([ord(letter) for letter in "abcabfcabcabcabcabc"])
    loops = nested_loops(kind, np.zeros(len(kind), np.int64), 4)
    assert loops.owner[5] == -1
    assert (np.delete(loops.owner, 5) == 0).all()


@pytest.mark.parametrize(
    ("name", "repeats"),
    [("gpt2_train", 6), ("vit_infer", 12), ("resnet50", 16), ("llama_decode", 8)],
)
def test_blocks_of_recorded_models(shared: Callable[[str], Path], name: str, repeats: int) -> None:
    calls = Analysis(load(shared(f"real/{name}.eager"))).index(Calls)
    ops = calls[calls.is_top_op & (calls.step >= 0)].in_order(by_step=True)
    ops = ops[ops.step == ops.step[len(ops) // 2]]
    loops = nested_loops(ops.name.code, (np.diff(ops.thread, prepend=ops.thread[0]) != 0).cumsum(), 4)
    length = [end - starts[0] for starts, end in zip(loops.starts, loops.end, strict=True)]
    forward = [
        place for place in np.argsort(length)[::-1] if ops.thread[loops.starts[place][0]] == ops.thread[0]
    ]
    assert len(loops.starts[forward[0]]) == repeats
