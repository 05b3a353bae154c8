"""Unions, intersections and differences of half-open intervals [start, end) in int64 nanoseconds.

An interval set is a pair of arrays (starts, ends), both int64 of shape (n,), sorted, disjoint, not touching
and without empty members. `union` makes one of anything; the other functions expect and return such sets.
"""

import numpy as np

from traceanalyzer.model.arrays import Ns, distinct, ranges

Set = tuple[Ns, Ns]

_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

EMPTY: Set = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Ns, ends: Ns) -> Set:
    """The set that the intervals cover; they may come in any order, overlap, touch or be empty."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if len(starts) == 0:
        return EMPTY
    starts, ends = np.sort(starts, kind="stable"), np.sort(ends, kind="stable")  # most come in order
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return starts[first], ends[last]


def length(members: Set) -> int:
    """Total nanoseconds in the set."""
    return int((members[1] - members[0]).sum())


def complement(members: Set, start: int, end: int) -> Set:
    """What of [start, end) the set leaves free."""
    starts, ends = clip(members, start, end)
    return union(np.concatenate(([start], ends)), np.concatenate((starts, [end])))


def clip(members: Set, start: int, end: int) -> Set:
    """The set within [start, end)."""
    starts, ends = np.maximum(members[0], start), np.minimum(members[1], end)
    keep = ends > starts
    return starts[keep], ends[keep]


def cut(starts: Ns, ends: Ns, at: Ns) -> Set:
    """Disjoint sorted intervals, cut into touching ones wherever one of the sorted instants lies inside."""
    if len(starts) == 0:
        return starts, ends
    inside = np.searchsorted(starts, at, side="right") - 1
    edges = distinct(at[(inside >= 0) & (at < ends[inside]) & (at > starts[inside])])
    return np.sort(np.concatenate((starts, edges))), np.sort(np.concatenate((ends, edges)))


def difference(a: Set, b: Set) -> Set:
    """What `a` covers and `b` does not: each member of `a` cut by the gaps of `b`."""
    if len(a[0]) == 0 or len(b[0]) == 0:
        return a
    gaps = np.append(_FIRST, b[1]), np.append(b[0], _LAST)
    owner, gap = overlaps(gaps, *a)
    return np.maximum(a[0][owner], gaps[0][gap]), np.minimum(a[1][owner], gaps[1][gap])


def covered(members: Set, starts: Ns, ends: Ns) -> Ns:
    """Nanoseconds of each interval [starts[i], ends[i]) that the set covers; shape of `starts`.

    The intervals may overlap one another and come in any order.
    """
    return _covered_before(members, np.maximum(ends, starts)) - _covered_before(members, starts)


def _covered_before(members: Set, at: Ns) -> Ns:
    """Nanoseconds of the set that lie before each instant."""
    if len(members[0]) == 0:
        return np.zeros(len(at), np.int64)
    before = np.concatenate(([0], np.cumsum(members[1] - members[0])))
    index = np.searchsorted(members[0], at, side="right") - 1
    last = np.maximum(index, 0)
    inside = np.minimum(at, members[1].take(last)) - members[0].take(last)
    return np.where(index < 0, 0, before.take(last) + inside)


def overlaps(members: Set, starts: Ns, ends: Ns) -> tuple[Ns, Ns]:
    """(interval, member) of every pair that overlaps, ordered by interval and member, int64 of shape (pairs,).

    Of disjoint members there are no more pairs than members and intervals, where the intervals are disjoint too.
    """
    first = np.searchsorted(members[1], starts, side="right")
    count = np.maximum(np.searchsorted(members[0], ends, side="left") - first, 0)
    return ranges(first, count)


def longest_overlap(members: Set, starts: Ns, ends: Ns) -> tuple[Ns, Ns]:
    """(position of the member that overlaps each interval longest, -1 for none; that overlap in ns)."""
    owner, member = overlaps(members, starts, ends)
    pairs = np.minimum(members[1][member], ends[owner]) - np.maximum(members[0][member], starts[owner])
    best, longest = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
    np.maximum.at(longest, owner, pairs)
    winner = np.flatnonzero((pairs == longest[owner]) & (pairs > 0))[::-1]
    best[owner[winner]] = member[winner]  # the earliest is written last
    return best, longest
