"""Loops whose repeats are not all alike."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_an_exact_loop_is_told_from_its_first_member_to_its_last() -> None:
    found = loops([7, 8, 9], repeats(10, branch=False))
    told = (found.group, found.anchor, found.repeats, found.first, found.last, found.covered)
    assert [column.tolist() for column in told] == [[1], [0], [10], [4], [63], [60]]


def test_a_last_repeat_that_is_cut_off_covers_no_more_than_there_is() -> None:
    found = loops(spaced(*[10] * 8))
    assert (found.covered.tolist(), found.last.tolist()) == ([81], [80])


def spaced(*gaps: int) -> list[int]:
    """An anchor, 0, at these distances from one another, and nothing else that comes twice."""
    others = iter(range(1, 10_000))
    return [0, *(one for gap in gaps for one in (*(next(others) for _ in range(gap - 1)), 0))]


@pytest.mark.parametrize(("gap", "found"), [(4, 8), (5, 9), (16, 9), (17, 8)])
def test_half_to_one_and_a_half_of_the_usual_distance_is_another_repeat(gap: int, found: int) -> None:
    assert loops(spaced(*[10] * 7, gap)).repeats.tolist() == [found]


@pytest.mark.parametrize(("others", "found"), [(120, 1), (121, 0)])
def test_a_loop_covers_so_much_of_its_group_or_is_none(others: int, found: int) -> None:
    """80 members in 8 repeats, of 200 or of one more: 0.4 of them."""
    head = list(range(1_000, 1_000 + others + 9))
    assert len(loops([*head, *spaced(*[10] * 7)])) == found
