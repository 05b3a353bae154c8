"""Loops that are not exact: a kind that comes again at about the same distance, whatever lies between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, narrowed, numbered, pick

_NEAR = (0.5, 1.6)  # of the median distance: repeats of other branches or lengths are that near
_AS_MUCH = 0.85  # of what the best kind covers: of such the rarest is the whole repeat, others come within it


@dataclass(frozen=True, slots=True)
class RoughLoops:
    """At most one loop for each group, int64 of shape (loops,) each.

    Attributes:
        group: whose loop it is.
        anchor: the kind that comes once a repeat.
        repeats: how often it comes at about the usual distance.
        first, last: positions of the first member and of the last.
        covered: members that lie between anchors at about the usual distance.
    """

    group: Rows
    anchor: Rows
    repeats: Rows
    first: Rows
    last: Rows
    covered: Rows

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, kind: Rows, group: Rows, least: int, min_share: float) -> RoughLoops:
        """The loops of sequences.

        Args:
            kind: int64 (members,), equal for what counts as the same, from 0.
            group: int64 of the same shape, from 0, sorted.
            least: fewer repeats make no loop.
            min_share: of its group's members that a loop covers at least.
        """
        if len(kind) == 0:
            return cls(*(np.zeros(0, np.int64) for _ in range(6)))
        pair, found = numbered(group * (int(kind.max()) + 1) + kind)
        order = np.argsort(narrowed(pair), kind="stable")
        again = np.flatnonzero(np.diff(pair[order]) == 0)  # positions whose next one is of the same pair
        at, gap = order[again], order[again + 1] - order[again]
        own = pair[at]
        usual = _medians(own, gap, len(found))
        near = (gap >= _NEAR[0] * usual[own]) & (gap <= _NEAR[1] * usual[own])
        repeats = np.bincount(own[near], minlength=len(found)) + 1
        covered = np.bincount(own[near], gap[near], len(found)).astype(np.int64) + usual.astype(np.int64)
        groups = found // (int(kind.max()) + 1)
        whole = np.bincount(group)[groups]
        enough = (repeats >= least) & (covered >= min_share * whole)
        chosen = _rarest(np.flatnonzero(enough), groups, repeats, covered)
        first, last = _ends(own[near], at[near], gap[near], len(found))
        period = pick(usual.astype(np.int64), chosen)
        return cls(
            groups[chosen],
            found[chosen] % (int(kind.max()) + 1),
            repeats[chosen],
            first[chosen],
            np.minimum(last[chosen] + period - 1, _group_ends(group)[groups[chosen]]),
            np.minimum(covered[chosen], whole[chosen]),
        )


def _medians(number: Rows, values: Rows, size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each number's values; 0 of those without. The numbers are sorted."""
    before = number * (int(values.max(initial=0)) + 1)
    ordered = np.sort(before + values) - before  # many times faster than by two keys
    counts = np.bincount(number, minlength=size)
    middle = np.cumsum(counts) - counts + counts // 2
    result = np.zeros(size)
    result[counts > 0] = ordered[np.minimum(middle, max(len(values) - 1, 0))[counts > 0]]
    return result


def _rarest(candidates: Rows, groups: Rows, repeats: Rows, covered: Rows) -> Rows:
    """Of each group's candidates that cover about as much as its best the one that comes least often."""
    if len(candidates) == 0:
        return candidates
    best = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(best, groups[candidates], covered[candidates])
    good = candidates[covered[candidates] >= _AS_MUCH * best[groups[candidates]]]
    order = good[np.lexsort((-covered[good], repeats[good], groups[good]))]
    first: Rows = order[np.append(True, np.diff(groups[order]) != 0)]
    return first


def _ends(pair: Rows, at: Rows, gap: Rows, size: int) -> tuple[Rows, Rows]:
    """First and last position of each pair's anchors at about the usual distance, which come by pair and position."""
    first, last = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    first[pair[::-1]] = at[::-1]  # what is assigned last stays
    last[pair] = at + gap
    return first, last


def _group_ends(group: Rows) -> Rows:
    """Last position of each group."""
    ends: Rows = np.cumsum(np.bincount(group)) - 1
    return ends
