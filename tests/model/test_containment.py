"""What contains what, against plain loops: spans on threads, and sums over trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.model import containment
from traceanalyzer.model.arrays import Rows

Span = tuple[int, int, int]  # thread, start, duration

spans = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 6)), max_size=14)
# Parents come before their children.
trees = st.lists(st.integers(-1, 30), max_size=16).map(
    lambda raw: np.array([min(parent, row - 1) for row, parent in enumerate(raw)], np.int64)
)


def columns(rows: list[Span]) -> tuple[Rows, Rows, Rows]:
    """(thread, start, end), by thread, start and longest first."""
    ordered = sorted(rows, key=lambda row: (row[0], row[1], -row[2]))
    thread, start, dur = (np.array([row[i] for row in ordered], np.int64) for i in range(3))
    return thread, start, start + dur


def chain(parent: Rows, row: int) -> list[int]:
    """The row and all around it, the innermost first."""
    found = []
    while row >= 0:
        found.append(row)
        row = int(parent[row])
    return found


@given(spans)
def test_thread_order_is_start_longest_and_rank(rows: list[Span]) -> None:
    thread, start, dur = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    order = containment.thread_order(thread, start, dur, lambda of: -of)
    expected = sorted(range(len(rows)), key=lambda row: (rows[row][0], rows[row][1], -rows[row][2], -row))
    assert order.tolist() == expected


@given(spans)
def test_parent_contains_the_whole_row(rows: list[Span]) -> None:
    thread, start, end = columns(rows)
    for row, parent in enumerate(containment.innermost(start, end, thread).tolist()):
        around = [
            one
            for one in range(row)
            if thread[one] == thread[row] and end[one] >= end[row] and end[one] > start[row]
        ]
        assert parent == max(around, default=-1)


@given(spans)
def test_top_of_the_stack_and_all_below_are_open(rows: list[Span]) -> None:
    thread, start, end = columns(rows)
    stacks: dict[int, list[int]] = {}
    expected = []
    for row in range(len(rows)):
        stack = stacks.setdefault(int(thread[row]), [])
        ended = next((at for at, one in enumerate(stack) if end[one] < start[row]), len(stack))
        del stack[ended:]
        expected.append(stack[-1] if stack else -1)
        stack.append(row)
    every = np.arange(len(rows))
    assert containment.still_open(start, end, thread, every).tolist() == expected
    assert containment.still_open(start, end, thread, every[1::2]).tolist() == expected[1::2]


@given(spans, st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 20)), max_size=8))
def test_innermost_running_row_includes_both_ends(rows: list[Span], asked: list[tuple[int, int]]) -> None:
    thread, start, dur = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    at_thread, at = (np.array([one[i] for one in asked], np.int64) for i in range(2))
    found = containment.running_at(start, start + dur, thread, at, at_thread)
    for (own, instant), row in zip(asked, found.tolist(), strict=True):
        open_then = [one for one in rows if one[0] == own and one[1] <= instant <= one[1] + one[2]]
        best = max(open_then, key=lambda one: (one[1], -one[2]), default=None)
        assert (rows[row] if row >= 0 else None) == best


@given(trees, st.data())
def test_sums_and_depths_and_marks_follow_the_parents(parent: Rows, data: st.DataObject) -> None:
    count = len(parent)
    values = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count)), np.int64)
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    chains = [chain(parent, row) for row in range(count)]
    given_values = values.copy()
    assert containment.subtree_sums(parent, values).tolist() == [
        sum(int(values[row]) for row in range(count) if top in chains[row]) for top in range(count)
    ]
    assert values.tolist() == given_values.tolist()
    assert containment.child_sums(parent, values).tolist() == [
        int(values[parent == row].sum()) for row in range(count)
    ]
    assert containment.depths(parent).tolist() == [len(one) - 1 for one in chains]
    nearest = [next((row for row in one if marked[row]), -1) for one in chains]
    assert containment.inherited(parent, marked).tolist() == nearest
    rows = np.arange(-1, count)
    assert containment.nearest_marked(parent, marked, rows).tolist() == [-1, *nearest]


@pytest.mark.parametrize("depth", [5, 64, 65, 200])
def test_what_is_nested_very_deeply_is_found_as_well(depth: int) -> None:
    parent = np.arange(-1, depth)
    marked = np.arange(depth + 1) == 0
    rows = np.array([depth, -1, 0, depth // 2])
    assert containment.nearest_marked(parent, marked, rows).tolist() == [0, -1, 0, 0]
    assert containment.nearest_marked(parent, ~(marked | True), rows).tolist() == [-1, -1, -1, -1]


@given(trees, st.data())
def test_the_outermost_op_is_the_last_on_the_way_up(parent: Rows, data: st.DataObject) -> None:
    """Rows that are no ops, such as calls, may lie between."""
    count = len(parent)
    is_op = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    op = containment.inherited(parent, is_op)
    expected = [next((row for row in reversed(chain(parent, row)) if is_op[row]), -1) for row in range(count)]
    assert containment.outermost(parent, op).tolist() == expected
