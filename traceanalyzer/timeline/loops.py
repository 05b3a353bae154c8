"""Loops in sequences of ops: exact, approximate, and around layers that repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, distinct, narrowed, numbered
from traceanalyzer.timeline.calls_and_work import Calls

LAYER = re.compile(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm|conv\w*|embedding)$")
# Ops: a ResNet-50 that is called sample by sample has 140.
_MAX_PERIOD = 200
# Values of a stretch that are compared first: by chance so many are hardly ever equal.
_SAMPLES = 8
# A longer period must cover this many times what a shorter one covers, or it is only a multiple of it.
_MIN_GAIN = 1.2
# Repeats of an approximate loop have this share of the median distance: they differ in branches or lengths.
_NEAR = (0.5, 1.6)
# Among ops that cover at least this share of the best one's cover, the rarest marks a whole repeat.
_SIMILAR_COVER = 0.85


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in a sequence of ops.

    Attributes:
        first: position of its first op.
        period: ops of one repeat; the median in an approximate loop.
        repeats: number of repeats.
        end: position after its last op.
    """

    first: int
    period: int
    repeats: int
    end: int

    @property
    def members(self) -> Rows:
        """Positions of the ops of all repeats, int64 (repeats, period)."""
        size = self.repeats * self.period
        return np.arange(self.first, self.first + size).reshape(self.repeats, self.period)


def step_edges(ops: Calls) -> list[int]:
    """Positions at which the ops of another step or thread begin, with 0 and the number of ops.

    Args:
        ops: in order, those of a thread's step in a row.
    """
    inner = np.flatnonzero(np.diff(ops.step) | np.diff(ops.thread)) + 1
    return sorted({0, *inner.tolist(), len(ops)})


def exact_loops(kind: Rows, group: Rows, min_repeats: int) -> list[Loop]:
    """The loop of each group that covers most ops, in each place where it runs, such as once in each layer.

    Args:
        kind: int64 (ops,), equal for equal ops.
        group: int64 (ops,), from 0, sorted. No loop reaches from one group into the next.
        min_repeats: fewer repeats make no loop.
    """
    groups = int(group[-1]) + 1 if len(group) else 0
    # First op, period and repeats.
    best = np.zeros((3, groups), np.int64)
    # Narrow codes: every period compares all ops with all.
    kind, group = narrowed(kind), narrowed(group)
    for period in range(1, min(_MAX_PERIOD, len(kind) // min_repeats) + 1):
        same = kind[period:] == kind[:-period]
        if not _may_hold(same, (min_repeats - 1) * period):
            continue
        first, length = _runs(same & (group[period:] == group[:-period]))
        repeats = length // period + 1
        enough = (length > 0) & (repeats >= min_repeats)
        first, repeats = first[enough], repeats[enough]
        # Several loops of one group: the last assignment stays, which is the longest.
        order = np.argsort(repeats, kind="stable")
        candidate = np.zeros((3, groups), np.int64)
        candidate[:, group[first[order]]] = first[order], np.full(len(order), period), repeats[order]
        better = candidate[1] * candidate[2] > _MIN_GAIN * best[1] * best[2]
        best[:, better] = candidate[:, better]
    edges = np.append(0, np.cumsum(np.bincount(group, minlength=groups))).tolist()
    loops: list[Loop] = []
    for place in np.flatnonzero(best[2]).tolist():
        begin, period = best[:2, place].tolist()
        loops += _places_of(kind, edges[place], edges[place + 1], begin, period, min_repeats)
    return loops


def _may_hold(same: Mask, length: int) -> bool:
    """False if no stretch of True is so long. Compares every few values only."""
    stride = max(length // _SAMPLES, 1)
    samples, count = same[::stride], length // stride
    if len(samples) < count:
        return False
    held = samples[: len(samples) - count + 1].copy()
    for later in range(1, count):
        held &= samples[later : len(held) + later]
    return bool(held.any())


def _places_of(
    kind: NDArray[Any], low: int, high: int, begin: int, period: int, min_repeats: int
) -> Iterator[Loop]:
    """The loops from low to high that have the ops of one repeat at `begin`, in any rotation."""
    members = np.sort(kind[begin : begin + period])
    for first, length in zip(*_runs(kind[low + period : high] == kind[low : high - period]), strict=True):
        start, repeats = low + int(first), int(length) // period + 1
        if repeats >= min_repeats and np.array_equal(np.sort(kind[start : start + period]), members):
            yield Loop(start, period, repeats, start + period * repeats)


def _runs(same: Mask) -> tuple[Rows, Rows]:
    """Start and length of each stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    return edges[::2], edges[1::2] - edges[::2]


def approximate_loops(kind: Rows, group: Rows, min_repeats: int, min_share: float) -> list[Loop]:
    """At most one loop for each group, whose repeats differ in length or in the ops between.

    A loop begins with an op that recurs at about the same distance.

    Args:
        kind: int64 (ops,), equal for equal ops, from 0.
        group: int64 (ops,), from 0, sorted.
        min_repeats: fewer repeats make no loop.
        min_share: share of its group's ops that a loop covers at least.
    """
    if len(kind) == 0:
        return []
    pair, pairs = numbered(group * (int(kind.max()) + 1) + kind)
    order = np.argsort(narrowed(pair), kind="stable")
    again = np.flatnonzero(np.diff(pair[order]) == 0)
    place, distance = order[again], order[again + 1] - order[again]
    owner = pair[place]
    usual = _medians(owner, distance, len(pairs))
    near = (distance >= _NEAR[0] * usual[owner]) & (distance <= _NEAR[1] * usual[owner])
    owner, place, distance = owner[near], place[near], distance[near]
    repeats = np.bincount(owner, minlength=len(pairs)) + 1
    period = usual.astype(np.int64)
    covered = np.bincount(owner, distance, len(pairs)).astype(np.int64) + period
    groups, sizes = pairs // (int(kind.max()) + 1), np.bincount(group)
    enough = (repeats >= min_repeats) & (covered >= min_share * sizes[groups])
    first, last = np.full(len(pairs), len(kind)), np.zeros(len(pairs), np.int64)
    np.minimum.at(first, owner, place)
    np.maximum.at(last, owner, place + distance)
    end = np.minimum(last + period, np.cumsum(sizes)[groups])
    chosen = _rarest(np.flatnonzero(enough), groups, repeats, covered)
    return [
        Loop(*values)
        for values in zip(*(column[chosen].tolist() for column in (first, period, repeats, end)), strict=True)
    ]


def _medians(number: Rows, values: Rows, size: int) -> NDArray[np.float64]:
    """Upper median of each number's values, 0 without values. The numbers are sorted."""
    # One sort of joint keys: many times faster than a sort by two keys.
    before = number * (int(values.max(initial=0)) + 1)
    ordered = np.sort(before + values) - before
    counts = np.bincount(number, minlength=size)
    middle = np.cumsum(counts) - counts + counts // 2
    result = np.zeros(size)
    result[counts > 0] = ordered[np.minimum(middle, max(len(values) - 1, 0))[counts > 0]]
    return result


def _rarest(candidates: Rows, groups: Rows, repeats: Rows, covered: Rows) -> Rows:
    """The candidate of each group that recurs least often, among those that cover about as much as its best."""
    if len(candidates) == 0:
        return candidates
    best = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(best, groups[candidates], covered[candidates])
    good = candidates[covered[candidates] >= _SIMILAR_COVER * best[groups[candidates]]]
    order = good[np.lexsort((-covered[good], repeats[good], groups[good]))]
    first: Rows = order[np.append(True, np.diff(groups[order]) != 0)]
    return first


def layer_loops(
    low: int, high: int, kind: Rows, layers: Mask, min_repeats: int, alike: Rows | None = None
) -> list[Loop]:
    """Loops of one thread's step whose iterations hold repeated layers and other ops. Each loop is listed once.

    Args:
        low, high: positions of the step's first op, and after its last.
        kind: int64 (ops,), equal for ops of equal name and shapes.
        layers: bool (ops,).
        min_repeats: fewer iterations make no loop.
        alike: what iterations have in common if that is less than `kind`, such as the name alone.
    """
    alike = kind if alike is None else alike
    loops: dict[tuple[int, int], Loop] = {}
    for places in _places_by_kind(low, high, kind, layers):
        begin, end = int(places[0]), int(places[-1]) + 1
        for each, period, repeats in _even_periods(places, len(places) // 2, min_repeats):
            if (alike[begin : end - period] != alike[begin + period : end]).any():
                continue
            rest = min(begin + period * repeats, high)
            more = int(np.argmin(np.append(alike[end:rest] == alike[end - period : rest - period], False)))
            if _holds_layers(places[:each], begin + period, kind, layers):
                loops.setdefault((period, repeats), Loop(begin, period, repeats, end + more))
            break
    return list(loops.values())


def whole_loops(low: int, high: int, kind: Rows, layers: Mask, min_repeats: int) -> list[Loop]:
    """Loops of one thread's step, whatever they hold, from the first op that recurs in each iteration.

    Arguments as in `layer_loops`.
    """
    loops: dict[tuple[int, int], Loop] = {}
    for places in _places_by_kind(low, high, kind, layers):
        for _, period, _ in _even_periods(places, len(places), min_repeats):
            same = np.append(kind[low : high - period] == kind[low + period : high], False)
            offset = int(places[0]) - low
            first = offset - int(np.argmin(np.append(same[:offset][::-1], False)))
            repeats = 1 + int(np.argmin(same[first:])) // period
            if repeats >= min_repeats:
                begin = low + first
                loops.setdefault((begin, period), Loop(begin, period, repeats, begin + period * repeats))
            break
    return list(loops.values())


def _places_by_kind(low: int, high: int, kind: Rows, layers: Mask) -> Iterator[Rows]:
    """Positions of the layers of each kind within a step."""
    places = low + np.flatnonzero(layers[low:high])
    for which in distinct(kind[places]).tolist():
        yield places[kind[places] == which]


def _even_periods(places: Rows, most: int, least: int) -> Iterator[tuple[int, int, int]]:
    """(layers of an iteration, ops of an iteration, iterations) for every even division, most iterations first."""
    for repeats in range(most, least - 1, -1):
        each, rest = divmod(len(places), repeats)
        if rest or each == len(places):
            continue
        period = int(places[each] - places[0])
        if (places[each:] - places[:-each] == period).all():
            yield each, period, repeats


def _holds_layers(places: Rows, end: int, kind: Rows, layers: Mask) -> bool:
    """True if an iteration begins with ops that run twice in a row, which are layers, and holds other ops, too."""
    begin = int(places[0])
    for later in places[1:].tolist():
        size = later - begin
        block = kind[begin:later]
        twice = later + size <= end and (block == kind[later : later + size]).all()
        if twice and len(distinct(block[layers[begin:later]])) > 1:
            tail = kind[later + size : end]
            return not (len(tail) % size == 0 and (tail == np.tile(block, len(tail) // size)).all())
    return False
