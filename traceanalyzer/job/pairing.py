"""Which collective of one rank is which of another: by their order, without trusting the clocks.

All ranks of a process group run its collectives in one order, but a recording may begin later or end earlier than
another. So two ranks differ by a shift of positions, and all that tells it is tried: numbers of calls, numbers of
steps, the ends of both recordings, their beginnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceanalyzer.job.runs import OF_ONE_SIZE, PAIR, CollectiveRuns
from traceanalyzer.model.arrays import Mask, Rows, starts_of_runs

_SLACK_NS = (
    100_000  # clocks of two hosts drift apart so much in ten seconds, at 10 ppm; ends differ by 35 us, 2 H200
)

_MOST = 0.75  # of the pairs run at once: then the order is right; 0.85 of exchanges in two kernels, DeepEP on 8 H200
_ENDS_NS = 50_000  # ends of one collective on its ranks: they differ by 35 us, 2 H200
_EXECUTIONS = 4  # of fewer who takes part is chance
_MOST_ENDS = (
    0.9  # of the collectives of one group that end together on its ranks; a rank may be descheduled; chosen
)
_RECEIVED_NS = (
    500_000  # a kernel that receives what was sent long ago runs so much after its peers' at most; DeepEP
)


_NEAR = 8  # positions by which messages in flight may be off: twice the micro-batches of the usual pipeline; chosen
_CLOCKS_NS = 1_000_000  # clocks of one host agree within 0.02 ms (13 jobs, H200), those of hosts with NTP mostly within


def partners(
    mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, other: Rows, apart_ns: int | None = None
) -> Rows:
    """For each run in `own` the one in `other` that is the same collective, -1 for none.

    Args:
        own, other: int64, positions in `mine` and `theirs` of the collectives of one process group, in order.
        apart_ns: by how much the other trace's times begin later than these; None where that is unknown.

    Returns:
        int64 of the shape of `own`, values from `other`.
    """
    best, most, chosen = np.full(len(own), -1, np.int64), 0, 0
    for shift in dict.fromkeys(_shifts(mine, own, theirs, other)):
        found = _shifted(mine, own, theirs, other, shift)
        if (count := int((found >= 0).sum())) > most:
            best, most, chosen = found, count, shift
    numbered = (mine.seq[own] >= 0).any() and (theirs.seq[other] >= 0).any()
    in_flight = bool(
        (mine.what[own] == PAIR).all()
    )  # ranks are at the same collective, not at the same message
    if most == 0 or numbered or not in_flight or apart_ns is None:
        return best
    return _by_clocks(mine, own, theirs, other, best, chosen, apart_ns)


def _by_clocks(
    mine: CollectiveRuns,
    own: Rows,
    theirs: CollectiveRuns,
    other: Rows,
    best: Rows,
    shift: int,
    apart_ns: int,
) -> Rows:
    """Without numbers of calls messages may be off by some positions: then the clocks seem to be far apart.

    Another shift is taken where it pairs as many, their ends differ no more, and the clocks nearly agree.
    """
    offset, spread = _offset_ns(mine, own, theirs, best, apart_ns)
    if abs(offset) < _CLOCKS_NS:
        return best
    count, nearest = int((best >= 0).sum()), best
    for more in (step * sign for step in range(1, _NEAR + 1) for sign in (1, -1)):
        found = _shifted(mine, own, theirs, other, shift + more)
        if int((found >= 0).sum()) < max(count - abs(more), 1):
            continue
        apart, differ = _offset_ns(mine, own, theirs, found, apart_ns)
        if differ <= spread and abs(apart) < min(abs(offset), _CLOCKS_NS):
            offset, nearest = apart, found
    return nearest


def _offset_ns(
    mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, partner: Rows, apart_ns: int
) -> tuple[float, float]:
    """(by how much the other clock is ahead if most pairs end together, median deviation from that), in ns."""
    paired = partner >= 0
    apart = (theirs.end_ns[partner] - mine.end_ns[own])[paired] + apart_ns
    offset = float(np.median(apart))
    return offset, float(np.median(abs(apart - offset)))


def told_apart(runs: Mapping[int, CollectiveRuns]) -> dict[int, CollectiveRuns]:
    """The same with groups that have neither name nor ranks told apart by who takes part: they end together.

    Of each collective and size the ranks are split where that gives groups of one size, or some that are in step and
    cannot be told apart; else they stay one group. What ranks leave once their own data has moved tells nothing.
    """
    groups = {rank: run.group.copy() for rank, run in runs.items()}
    kinds = [
        {(what, count) for what, count, group in _kinds(run) if group == "" and what in OF_ONE_SIZE}
        for run in runs.values()
    ]
    for what, count in sorted(set().union(*kinds), key=str):
        chosen = {
            rank: np.flatnonzero((run.group == "") & (run.what == what) & (run.elements == count))
            for rank, run in runs.items()
        }
        for members in _members({rank: runs[rank].end_ns[own] for rank, own in chosen.items() if len(own)}):
            for rank in members:
                groups[rank][chosen[rank]] = str(members)
    return {rank: replace(run, group=groups[rank]) for rank, run in runs.items()}


def _kinds(one: CollectiveRuns) -> Iterator[tuple[str, int, str | None]]:
    return zip(one.what.tolist(), one.elements.tolist(), one.group.tolist(), strict=True)


def _members(ends: Mapping[int, Rows]) -> list[list[int]]:
    """Ranks whose collectives end together; none where a group is no multiple of the smallest, or of one rank."""
    count = min(map(len, ends.values()))
    groups: list[list[int]] = []
    for rank, own in sorted(ends.items()):
        for group in groups:
            apart = own[-count:] - ends[group[0]][-count:]
            if (abs(apart - round(float(np.median(apart)))) <= _ENDS_NS).mean() >= _MOST_ENDS:
                group.append(rank)
                break
        else:
            groups.append([rank])
    least = min(map(len, groups))
    split = len(groups) > 1 < least and all(len(group) % least == 0 for group in groups)
    return groups if split and count >= _EXECUTIONS else []


def at_once(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, partner: Rows) -> Mask:
    """Whether the two of each pair run at once, bool of the shape of `own`: otherwise neither waits for the other."""
    return np.asarray((partner >= 0) & (_apart_ns(mine, own, theirs, partner) < _SLACK_NS), np.bool_)


def _shifts(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, other: Rows) -> Iterator[int]:
    """By how many positions the other rank's run lies later in its recording, the surest first."""
    yield from _of_keys(mine.seq[own], theirs.seq[other])
    yield from _of_keys(mine.step[own], theirs.step[other])
    yield len(other) - len(own)
    yield 0


def _of_keys(own: Rows, other: Rows) -> Iterator[int]:
    """From the first position of every number that both have: what most of them say."""
    first = [_first_of(numbers) for numbers in (own, other)]
    votes = Counter(first[1][key] - first[0][key] for key in first[0].keys() & first[1].keys())
    yield from (shift for shift, _ in votes.most_common(1))


def _first_of(numbers: Rows) -> dict[int, int]:
    """Number -> position at which it comes first; a recording that begins within a step misses some of it."""
    fresh = np.flatnonzero(starts_of_runs(numbers) & (numbers >= 0))
    fresh = fresh[fresh > 0] if len(fresh) > 1 else fresh
    return dict(zip(numbers[fresh].tolist(), fresh.tolist(), strict=True))


def _shifted(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, other: Rows, shift: int) -> Rows:
    at = np.arange(len(own)) + shift
    there = (at >= 0) & (at < len(other))
    partner = np.where(there, other[np.clip(at, 0, len(other) - 1)], -1)
    partner[~_alike(mine, own, theirs, partner)] = -1
    paired = at_once(mine, own, theirs, partner)
    if paired.sum() >= _MOST * (partner >= 0).sum():
        paired = (partner >= 0) & (_apart_ns(mine, own, theirs, partner) < _RECEIVED_NS)
    return np.where(paired, partner, -1)


def _alike(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, partner: Rows) -> Mask:
    """The same collective, of as many elements, and with one number where both have one."""
    alike = (partner >= 0) & (mine.what[own] == theirs.what[partner])
    for column in ("elements", "seq"):
        ours, others = getattr(mine, column)[own], getattr(theirs, column)[partner]
        alike &= (ours == others) | (ours < 0) | (others < 0)
    return np.asarray(alike, np.bool_)


def _apart_ns(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, partner: Rows) -> Rows:
    """From the end of one of the two to the begin of the other when the clocks are set so that most end together.

    Negative of what runs at once, as where every rank waits for the last.
    """
    paired = partner >= 0
    if not paired.any():
        return np.zeros(len(own), np.int64)
    ahead = round(float(np.median((theirs.end_ns[partner] - mine.end_ns[own])[paired])))
    begin = np.maximum(mine.start_ns[own], theirs.start_ns[partner] - ahead)
    return np.asarray(begin - np.minimum(mine.end_ns[own], theirs.end_ns[partner] - ahead), np.int64)
