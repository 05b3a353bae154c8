"""What goes with work and with waits that edits drop or put aside, in a program whose work is given one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.built import CALL, OP, at, made
from traceanalyzer.replay.edited_program import EditedProgram


def kept(edited: EditedProgram) -> tuple[list[int], list[int]]:
    """(segments, work) that are left."""
    return np.flatnonzero(edited.kept).tolist(), np.flatnonzero(edited.alive).tolist()


def launching() -> EditedProgram:
    """An op with two launches, the second of which starts two pieces of work, an op with one, and one in no op."""
    segments = ((OP, 1), (CALL, 1), (OP, 1), (CALL, 1), (OP, 1), (CALL, 1), (CALL, 1))
    return made(*segments, tops=[0, 0, 0, 0, 4, 4, -1], launches=[1, 3, 3, 5, 6])


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ([0], ([0, 2, 3, 4, 5, 6], [1, 2, 3, 4])),
        ([1], ([0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 4])),  # the call starts more than that
        ([1, 2], ([0, 1, 2, 4, 5, 6], [0, 3, 4])),
        ([3, 4], ([0, 1, 2, 3, 4], [0, 1, 2])),
    ],
)
def test_work_goes_with_the_calls_that_launch_nothing_else(
    gone: list[int], left: tuple[list[int], list[int]]
) -> None:
    edited = launching()
    edited.drop_work(np.array(gone))
    assert kept(edited) == left


@pytest.mark.parametrize(
    ("gone", "ops", "calls"),
    [([3], {4}, set()), ([0], set(), {1}), ([0, 1, 2], {0}, set()), ([4], set(), {6})],
)
def test_work_goes_with_outermost_ops_that_launch_only_it(
    gone: list[int], ops: set[int], calls: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an op that stays the call alone."""
    asked: list[int] = []
    edited = launching()
    monkeypatch.setattr(EditedProgram, "of_rows", lambda self, rows: asked.extend(rows.tolist()) or at(self))
    edited.drop_ops(np.array(gone))
    assert set(asked) == ops
    assert set(range(7)) - set(kept(edited)[0]) >= calls


def test_an_op_goes_whose_other_work_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    edited = launching()
    edited.drop_work(np.array([1, 2]))
    monkeypatch.setattr(EditedProgram, "of_rows", lambda self, rows: asked.extend(rows.tolist()) or at(self))
    edited.drop_ops(np.array([0]))
    assert asked == [0]


def test_wait_goes_with_its_call_or_its_moved_copy() -> None:
    """The first call has two segments and waits for its own copy, the second for everything."""
    edited = made((CALL, 1), (OP, 1), (CALL, 1), (OP, 1), launches=[0, 1], waits=[(0, 2, 0), (3, 3, -1)])
    edited.drop(at(edited, 0), work=False, stall=False)
    assert edited.waits.tolist() == [True, True]
    edited.aside(np.array([1]))
    assert edited.waits.tolist() == [True, True]
    edited.aside(np.array([0]))
    assert edited.waits.tolist() == [False, True]
    assert (edited.stream.tolist(), edited.streams) == ([2, 1], 3)
    other = made((CALL, 1), (OP, 1), (CALL, 1), launches=[0, 1], waits=[(0, 2, 0)])
    other.drop(at(other, 2), stall=False)
    assert other.waits.tolist() == [False]


def test_entries_are_found_wherever_they_stand() -> None:
    assert launching().positions(np.array([98, 100, 96, 95, 101])).tolist() == [2, 0, 4, -1, -1]


def test_which_span_launches_a_piece_of_work() -> None:
    """From 1 to 4 ns are the first op's calls and what lies between, and from 4 to 4 is nothing."""
    first, span = launching().span_of_launch(np.array([1, 4, 5]), np.array([4, 4, 6]))
    assert first.tolist() == [1, -1, 5]
    assert span.tolist() == [0, 0, 0, 2, -1]
