"""Arrays, intervals and containment, against numpy and plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model import containment, intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import (
    Rows,
    among,
    distinct,
    distinct_pairs,
    frozen,
    grouped,
    median_of,
    narrowed,
    numbered,
    pick,
    starts_of_runs,
    sums_of,
)
from traceanalyzer.model.intervals import Set
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.timeline.nesting import Boundaries, Nesting

close = st.lists(st.integers(-5, 30), max_size=40)
spread = st.lists(st.sampled_from([NULL_INT, -7, 0, 3, 2**40, 2**62]), max_size=40)
values = st.one_of(close, spread).map(lambda found: np.array(found, np.int64))


@given(values)
def test_numbers_are_those_of_unique(some: Rows) -> None:
    expected, inverse = np.unique(some, return_inverse=True)
    number, found = numbered(some)
    assert found.tolist() == expected.tolist() == distinct(some).tolist()
    assert number.tolist() == inverse.tolist()
    assert sums_of(number, some // 2, len(found)).sum() == (some // 2).sum()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 5, 2**50])), max_size=30))
def test_groups_come_in_order_of_first_sight(rows: list[tuple[int, int]]) -> None:
    keys = [np.array([row[i] for row in rows], np.int64) for i in (0, 1)]
    group, first = grouped(keys)
    seen = list(dict.fromkeys(rows))
    assert group.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


@given(st.lists(st.tuples(*[st.sampled_from([-2, 0, 1, 7, 2**50])] * 3), max_size=30))
def test_groups_of_three_keys_are_told_apart_as_well(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[i] for row in rows], np.int64) for i in (0, 1, 2)]
    group, first = grouped(keys)
    seen = list(dict.fromkeys(rows))
    assert group.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 5, 2**50])), max_size=30))
def test_pairs_come_sorted_and_once(rows: list[tuple[int, int]]) -> None:
    pairs = distinct_pairs(*(np.array([row[i] for row in rows], np.int64) for i in (0, 1)))
    assert [*zip(*(side.tolist() for side in pairs), strict=True)] == sorted(set(rows))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 40)), max_size=20))
def test_median_is_the_middle_or_mean_of_two(rows: list[tuple[int, int]]) -> None:
    rows = [*rows, (0, 3), (1, 8), (2, 2)]
    number, some = (np.array(side) for side in zip(*rows, strict=True))
    expected = [median(value for own, value in rows if own == group) for group in range(3)]
    assert median_of(number, some).tolist() == expected


@given(values)
def test_narrowed_numbers_are_the_same(some: Rows) -> None:
    narrow = narrowed(some)
    assert narrow.tolist() == some.tolist()
    if all(0 <= one < 256 for one in some.tolist()):
        assert narrow.itemsize == 1


@given(values)
def test_a_run_starts_where_a_value_differs_from_the_one_before(some: Rows) -> None:
    told = some.tolist()
    expected = [at == 0 or told[at] != told[at - 1] for at in range(len(told))]
    assert starts_of_runs(some).tolist() == expected


def test_frozen_reaches_tuples_lists_and_mappings() -> None:
    @dataclass
    class Made:
        one: Rows
        pair: tuple[Rows, ...]
        named: dict[str, Rows]
        told: list[str]
        listed: list[Rows]

    one = [np.zeros(1, np.int64) for _ in range(4)]
    made = Made(one[0], (one[1], one[1]), {"a": one[2]}, ["a"], [one[3], np.zeros(2, np.int64)])
    assert frozen(made) is made
    every = made.one, *made.pair, *made.named.values(), *made.listed
    assert not any(one.flags.writeable for one in every)
    assert frozen(3) == 3


@given(values, values)
def test_among_is_membership(some: Rows, members: Rows) -> None:
    assert among(some, np.sort(members)).tolist() == np.isin(some, members).tolist()


@given(values)
def test_no_row_picks_what_is_missing(some: Rows) -> None:
    rows = np.arange(-1, len(some))
    assert pick(some, rows, -9).tolist() == [-9, *some.tolist()]


@pytest.mark.parametrize("values", [[], [3, -4]])
def test_rows_that_are_kept_small_are_picked_as_large_ones(values: list[int]) -> None:
    """So that what is missing may be any number; other arrays keep their type."""
    rows = np.array([-1, 1, 0])[: 1 + len(values)]
    found = pick(np.array(values, np.int32), rows, -(2**40))
    assert str(found.dtype) == "int64"
    assert found.tolist() == [-(2**40), *values[::-1]]
    assert pick(np.array(values, np.float64), rows, -7).dtype == np.float64


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from([1, 2])), min_size=1, max_size=12
    ),
    st.lists(st.integers(-2, 70), min_size=1, max_size=8),
    st.sampled_from(["left", "right"]),
)
def test_edges_around_instants(
    rows: list[tuple[int, int, int]], instants: list[int], side: Literal["left", "right"]
) -> None:
    trace = TraceBuilder()
    for start, dur, tid in rows:
        trace.op("aten::mm", start, dur, tid=tid)
    edges = Boundaries.of(Analysis(trace.load()).index(Nesting))
    never = np.iinfo(np.int64)
    for lane, tid in enumerate(sorted({tid for *_, tid in rows})):
        marks = {at for start, dur, of in rows if of == tid for at in (start, start + dur)}
        before, behind = edges.around(lane, np.array(instants), side)
        for low, high, at in zip(before.tolist(), behind.tolist(), instants, strict=True):
            earlier = {m for m in marks if m < at or (side == "right" and m == at)}
            assert low == max(earlier, default=never.min)
            assert high == min(marks - earlier, default=never.max)


def test_a_trace_without_a_cpu_lane_is_diagnosed() -> None:
    trace = TraceBuilder()
    for at in (0, 1_000_000, 2_000_000):
        trace.kernel(at, 1_000, at + 1)
    report = diagnose(trace.load())
    assert not [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert report.traces[0].accounting[0].parts_ns["idle:unlinked"] == 1_998_000


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


PAIRS = st.lists(st.tuples(st.integers(-20, 40), st.integers(-5, 20)), max_size=8)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """(start, length) pairs as starts and ends; some are empty, some run backwards."""
    starts = np.array([start for start, _ in pairs], np.int64)
    return starts, starts + np.array([length for _, length in pairs], np.int64)


def points(starts: np.ndarray, ends: np.ndarray) -> set[int]:
    """Every nanosecond that the intervals cover."""
    return {at for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for at in range(start, end)}


def made(pairs: list[tuple[int, int]]) -> Set:
    return intervals.union(*arrays(pairs))


def is_set(members: Set) -> bool:
    """Sorted, disjoint, not touching, none empty."""
    starts, ends = members
    return bool((starts < ends).all() and (starts[1:] > ends[:-1]).all())


@given(PAIRS)
def test_union(pairs: list[tuple[int, int]]) -> None:
    members = made(pairs)
    assert is_set(members)
    assert points(*members) == points(*arrays(pairs))
    assert intervals.length(members) == len(points(*members))


@given(PAIRS, PAIRS)
def test_difference(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    only = intervals.difference(made(a), made(b))
    assert is_set(only)
    assert points(*only) == points(*made(a)) - points(*made(b))


@given(PAIRS, st.integers(-10, 20), st.integers(0, 30))
def test_clip_and_complement(pairs: list[tuple[int, int]], start: int, length: int) -> None:
    within, free = (f(made(pairs), start, start + length) for f in (intervals.clip, intervals.complement))
    assert is_set(within)
    assert is_set(free)
    assert points(*within) == points(*made(pairs)) & set(range(start, start + length))
    assert points(*free) == set(range(start, start + length)) - points(*made(pairs))


@given(PAIRS, PAIRS)
def test_covered(pairs: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    starts, ends = arrays(asked)
    truth = points(*made(pairs))
    expected = [len(truth & set(range(a, b))) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert intervals.covered(made(pairs), starts, ends).tolist() == expected


@given(PAIRS, st.lists(st.integers(-22, 60), max_size=8))
def test_cut_intervals_touch_where_an_instant_lies_inside(
    pairs: list[tuple[int, int]], at: list[int]
) -> None:
    """Once, however often the instant is given; at their own ends they are left whole."""
    starts, ends = made(pairs)
    cut_starts, cut_ends = intervals.cut(starts, ends, np.array(sorted(at), np.int64))
    edges = {one for one in at for start, end in zip(starts, ends, strict=True) if start < one < end}
    assert cut_starts.tolist() == sorted([*starts.tolist(), *edges])
    assert cut_ends.tolist() == sorted([*ends.tolist(), *edges])


@given(PAIRS, PAIRS)
def test_pairs_that_overlap_share_a_nanosecond(
    pairs: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    members, (starts, ends) = made(pairs), made(asked)
    owner, member = intervals.overlaps(members, starts, ends)
    spans, wanted = ([*zip(*(side.tolist() for side in of), strict=True)] for of in (members, (starts, ends)))
    shared = [[max(0, min(end, last) - max(start, first)) for first, last in spans] for start, end in wanted]
    assert [*zip(owner.tolist(), member.tolist(), strict=True)] == [
        (row, at) for row, times in enumerate(shared) for at, time in enumerate(times) if time > 0
    ]
    best, longest = intervals.longest_overlap(members, starts, ends)
    assert longest.tolist() == [max(times, default=0) for times in shared]
    assert best.tolist() == [times.index(max(times)) if max(times, default=0) > 0 else -1 for times in shared]
