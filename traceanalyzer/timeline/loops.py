"""Loops in sequences of ops: exact, approximate, and nested."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, distinct, grouped, medians, narrowed, numbered, starts_of_runs
from traceanalyzer.model.lanes import Codes
from traceanalyzer.model.text_queries import regex
from traceanalyzer.timeline.calls_and_work import Calls

Place = tuple[Rows, int, Rows]  # starts of a loop's repeats, its end, and the kinds of a usual repeat
LAYER = regex(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm|conv\w*|embedding)$")
_MAX_PERIOD = 200  # ops: a ResNet-50 that is called sample by sample has 140
_MIN_GAIN = 1.2  # a longer period must cover this many times what a shorter one covers, or it is only a multiple of it
_NEAR = (0.5, 1.6)  # of the median distance, repeats of an approximate loop: they differ in branches or lengths
_SIMILAR_COVER = 0.85  # of the best one's cover: the rarest op that covers as much marks a whole repeat
# Longest of hardly different repeats, in lengths of the median one, and how many times as often they run; chosen.
_EVEN, _MUCH_MORE = 1.2, 1.5
_MAX_ROUNDS = 24  # rounds of a search: each finds one more loop in every stretch that is left, or in every repeat
_TRIED = 4  # loops of a stretch that are tried, since repeats of the one that covers most may have little in common
_MIN_TWICE = 3  # ops at least in a repeat that runs only twice in a row: shorter ones are equal by chance
# Share of the repeats with an op; and share of a loop's ops that its usual repeat has, and of hardly different repeats.
_IN_MOST, _ALIKE, _SAME = 0.6, 0.6, 0.9


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of ops: position of the first, and after the last; ops of a (median) repeat, and number of repeats."""

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
    """Positions at which the ops of another step or thread begin, with 0 and the number of ops; these in a row."""
    inner = np.flatnonzero(np.diff(ops.step) | np.diff(ops.thread)) + 1
    return sorted({0, *inner.tolist(), len(ops)})


def exact_loops(kind: Rows, group: Rows, min_repeats: int) -> list[Loop]:
    """The loop of each group that covers most ops, in each place where it runs, such as once in each layer.

    Of each op its kind and group, from 0, sorted; int64 (ops,). No loop reaches from one group into the next.
    """
    groups = int(group[-1]) + 1 if len(group) else 0
    # First op, period and repeats.
    best = np.zeros((3, groups), np.int64)
    # Narrow codes: every period compares all ops with all.
    kind, group = narrowed(kind), narrowed(group)
    for period in range(1, min(_MAX_PERIOD, len(kind) // min_repeats) + 1):
        same = kind[period:] == kind[:-period]
        if np.count_nonzero(same) < (min_repeats - 1) * period:
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


def _places_of(kind: Codes, low: int, high: int, begin: int, period: int, least: int) -> Iterator[Loop]:
    """The loops from low to high that have the ops of one repeat at `begin`, in any rotation."""
    members = np.sort(kind[begin : begin + period])
    for first, length in zip(*_runs(kind[low + period : high] == kind[low : high - period]), strict=True):
        start, repeats = low + int(first), int(length) // period + 1
        if repeats >= least and np.array_equal(np.sort(kind[start : start + period]), members):
            yield Loop(start, period, repeats, start + period * repeats)


def _runs(same: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Start and length of each stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    return edges[::2], edges[1::2] - edges[::2]


def approximate_loops(kind: Rows, group: Rows, min_repeats: int, min_share: float) -> list[Loop]:
    """At most one loop for each group (as in `exact_loops`), whose repeats differ in length or in the ops between.

    A loop begins with an op that recurs at about the same distance, and covers `min_share` of its group's ops at least.
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
    # Of each group the candidate that recurs least often, among those that cover about as much as its best.
    candidates = np.flatnonzero(enough)
    best = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(best, groups[candidates], covered[candidates])
    good = candidates[covered[candidates] >= _SIMILAR_COVER * best[groups[candidates]]]
    good = good[np.lexsort((-covered[good], repeats[good], groups[good]))]
    chosen = good[starts_of_runs(groups[good])]
    return [Loop(*values) for values in np.stack((first, period, repeats, end), axis=1)[chosen].tolist()]


def _medians(number: Rows, values: Rows, size: int) -> NDArray[np.float64]:
    """Upper median of each number's values, 0 without values. The numbers are sorted."""
    ordered = values[np.lexsort((values, number))]
    counts = np.bincount(number, minlength=size)
    middle = np.cumsum(counts) - counts + counts // 2
    result = np.zeros(size)
    result[counts > 0] = ordered[np.minimum(middle, max(len(values) - 1, 0))[counts > 0]]
    return result


@dataclass(frozen=True, slots=True)
class NestedLoops:
    """Loops within loops in sequences of ops, the outer before the inner.

    Attributes:
        parent: int64 (loops,), the loop whose repeats contain each, -1 for none.
        starts: of each loop the position of the first op of each repeat, int64 (repeats,).
        end: int64 (loops,), position after the last op.
        body: of each loop the kinds of a usual repeat, in its order, int64.
        owner: int64 (ops,), innermost loop of each op, -1 for none, as for ops that few repeats have.
    """

    parent: Rows
    starts: tuple[Rows, ...]
    end: Rows
    body: tuple[Rows, ...]
    owner: Rows


def nested_loops(kind: Rows, group: Rows, min_repeats: int) -> NestedLoops:
    """Loops whose repeats may differ in some ops, each with the loops inside its repeats; groups as in `exact_loops`.

    Equal ops that run twice in a row inside a repeat are a loop as well.
    """
    owner, pending = np.full(len(kind), -1, np.int64), np.ones(len(kind), bool)
    cut = starts_of_runs(group)
    loops: list[tuple[int, Rows, int, Rows]] = []
    for _ in range(_MAX_ROUNDS):
        places = np.flatnonzero(pending)
        if len(places) == 0:
            break
        stretch = np.cumsum(cut, dtype=np.int64)
        found = list(_even_loops(kind, places, stretch, min_repeats))
        looped = np.isin(stretch[places], [stretch[starts[0]] for starts, _, _ in found])
        rest = places[~looped & (owner[places] >= 0)]
        found += _twice(kind, rest, stretch)
        pending[:] = False
        for starts, end, body in found:
            first = int(starts[0])
            pending |= stretch == stretch[first]
            loops.append((int(owner[first]), starts, end, body))
        for number in range(len(loops) - len(found), len(loops)):
            _, starts, end, _ = loops[number]
            owner[starts[0] : end] = number
            cut[starts] = True
            cut[end : end + 1] = True
    # An op that few repeats have is no part of the loop.
    for number in range(len(loops) - 1, -1, -1):
        parent, _, _, body = loops[number]
        members = np.flatnonzero(owner == number)
        owner[members[~np.isin(kind[members], body)]] = parent
    parents, starts_of, ends, bodies = zip(*loops, strict=True) if loops else ((), (), (), ())
    return NestedLoops(np.array(parents, np.int64), starts_of, np.array(ends, np.int64), bodies, owner)


def _even_loops(kind: Rows, places: Rows, stretch: Rows, min_repeats: int) -> Iterator[Place]:
    """(starts of the repeats, end, kinds of a usual repeat) of a loop in each stretch, of which `places` are whole."""
    before = np.append(-1, kind[places][:-1])
    before[starts_of_runs(stretch[places])] = -1
    # A loop begins with an op, or with an op after a certain other one: a sum of two branches, say, after a norm.
    first = np.append(np.full(len(places), -2), before)
    places = np.tile(places, 2)
    pair, _ = grouped([stretch[places], kind[places], first])
    order = np.argsort(pair, kind="stable")
    again = np.flatnonzero(np.diff(pair[order]) == 0)
    of_two = order[again] >= len(places) // 2
    owner, place, following = pair[order[again]], places[order[again]], places[order[again + 1]]
    usual = _medians(owner, following - place, int(pair.max()) + 1)[owner]
    near = (following - place >= _NEAR[0] * usual) & (following - place <= _NEAR[1] * usual) & (usual > 1)
    fresh = starts_of_runs(owner)
    fresh[1:] |= ~near[:-1]
    run = (np.cumsum(fresh) - 1)[near]
    if len(run) == 0:
        return
    run, first, count = np.unique(run, return_index=True, return_counts=True)
    anchors, last, of_two = place[near], following[near], of_two[near]
    covered = last[first + count - 1] - anchors[first]
    at = stretch[anchors[first]]
    enough = np.flatnonzero(count + 1 >= min_repeats)
    for _ in range(_TRIED):
        best = np.zeros(int(stretch.max()) + 1, np.int64)
        np.maximum.at(best, at[enough], covered[enough])
        similar = covered[enough] >= _SIMILAR_COVER * best[at[enough]]
        rarest = enough[similar]
        # The first repeat has nothing before it, so that two ops recur once less than one.
        rarest = rarest[np.lexsort((-covered[rarest], (count + 2 * of_two[first])[rarest], at[rarest]))]
        enough = enough[~similar]
        for low, high in pairwise([*np.flatnonzero(np.diff(at[rarest], prepend=-1)).tolist(), len(rarest)]):
            number = at[rarest[low]]
            bounds = tuple(np.searchsorted(stretch, [number, number + 1]).tolist())
            for which, same in _in_turn(rarest[low:high], count):
                members = slice(first[which], first[which] + count[which])
                found = _loop_at(kind, np.append(anchors[members], last[members][-1:]), bounds, same=same)
                if found is not None:
                    yield found
                    enough = enough[at[enough] != number]
                    break


def _in_turn(rarest: Rows, count: Rows) -> list[tuple[int, bool]]:
    """(candidate, True if its repeats must be hardly different): short such repeats first, then the longest."""
    often, one_of_count = np.unique(count[rarest], return_index=True)
    one_of_count = one_of_count[often >= _MUCH_MORE * often[0]]
    short = [(which, True) for which in rarest[one_of_count[::-1][:_TRIED]].tolist()]
    return short + [(which, False) for which in rarest[:_TRIED].tolist()]


def _loop_at(kind: Rows, anchors: Rows, bounds: tuple[int, ...], *, same: bool) -> Place | None:
    """As of `_even_loops`, with one of the anchors in each repeat; None where repeats have too little in common."""
    starts, end = _whole_repeats(kind, anchors, *bounds)
    body, length = _usual_repeat(kind, starts, end, _SAME if same else _ALIKE), np.diff(starts)
    if len(distinct(body)) < 2 or (same and length.max() > _EVEN * medians(length)):
        return None
    return starts, end, body


def _whole_repeats(kind: Rows, anchors: Rows, low: int, high: int) -> tuple[Rows, int]:
    """(starts of the repeats, end of the last), where each has one of the anchors, between low and high."""
    room = min(int(np.diff(anchors).min()) - 1, int(anchors[0]) - low)
    before = kind[anchors[:, None] - np.arange(1, room + 1)]
    alike = (before == before[:1]).mean(axis=0) >= _IN_MOST
    starts = anchors - int(np.argmin(np.append(alike, False)))
    previous = kind[starts[-2] : starts[-1]]
    tail = kind[starts[-1] : min(starts[-1] + len(previous), high)]
    if np.isin(tail, previous).mean() >= _IN_MOST and len(tail) >= _IN_MOST * len(previous):
        return starts, int(starts[-1]) + len(tail)
    return starts, int(starts[-1]) + int(np.argmin(np.append(tail == previous[: len(tail)], False)))


def _usual_repeat(kind: Rows, starts: Rows, end: int, least: float) -> Rows:
    """Kinds of a repeat of median length that most repeats have, in order; none where repeats are not alike."""
    lengths = np.diff(np.append(starts, end))
    code, kinds = numbered(kind[starts[0] : end])
    repeat = np.repeat(np.arange(len(starts)), lengths)
    counts = np.bincount(repeat * len(kinds) + code, minlength=len(starts) * len(kinds))
    counts = counts.reshape(len(starts), len(kinds))
    usual = np.where((counts > 0).mean(axis=0) >= _IN_MOST, medians(counts.T), 0)
    if np.minimum(counts, usual).sum() < least * lengths.sum():
        return kind[:0]
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    typical = kind[starts[middle] : starts[middle] + lengths[middle]]
    return typical[np.isin(typical, kinds[usual > 0])]


def _twice(kind: Rows, places: Rows, stretch: Rows) -> list[Place]:
    """Equal ops that run at least twice in a row, as of `_even_loops`."""
    number, _ = numbered(stretch[places])
    found = []
    for loop in exact_loops(kind[places], number, 2):
        body = kind[places[loop.first : loop.first + loop.period]]
        if loop.period >= _MIN_TWICE and len(distinct(body)) > 1:
            starts = places[loop.members[:, 0]]
            found.append((starts, int(starts[-1]) + loop.period, body))
    return found
