"""Loops whose repeats are not all alike."""

from __future__ import annotations

import numpy as np

from traceanalyzer.timeline.rough_loops import RoughLoops

START, END, EXTRA = 100, 101, 102


def loops(sequence: list[int], *more: list[int]) -> RoughLoops:
    """Of one group for each sequence."""
    parts = (sequence, *more)
    group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return RoughLoops.of(np.array([one for part in parts for one in part]), group, 8, 0.4)


def repeats(times: int, *, length: int = 6, branch: bool = True) -> list[int]:
    """A head, then so many repeats, every third of which has one op more."""
    body = [[*range(length), *([EXTRA] if branch and number % 3 == 0 else [])] for number in range(times)]
    return [START, *(one for part in body for one in part), END]


def test_a_loop_with_branches_is_found_with_its_repeats() -> None:
    found = loops(repeats(20))
    assert len(found) == 1
    assert found.repeats[0] in (19, 20)
    assert found.covered[0] >= 110


def test_of_loops_within_loops_the_outer_one_is_told() -> None:
    inner = [1, 2, 3] * 10
    found = loops([one for _ in range(12) for one in (START, *inner, END)])
    assert found.repeats[0] in (11, 12)


def test_loops_of_more_than_200_ops_are_found() -> None:
    found = loops(repeats(9, length=300))
    assert (len(found), int(found.repeats[0])) == (1, 9)


def test_groups_are_looked_at_one_by_one() -> None:
    found = loops(repeats(10), list(range(200, 260)), repeats(30))
    assert found.group.tolist() == [0, 2]
    assert (
        found.last <= np.array([len(repeats(10)) - 1, len(repeats(10)) + 60 + len(repeats(30)) - 1])
    ).all()


def test_what_comes_in_no_order_and_what_comes_seldom_is_no_loop() -> None:
    assert len(loops(list(range(50)))) == 0
    assert len(loops(repeats(5))) == 0
    assert len(loops([])) == 0
