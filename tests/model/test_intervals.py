"""Interval sets against the slow truth: the set of covered nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.model import intervals
from traceanalyzer.model.intervals import Set

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
