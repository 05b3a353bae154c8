"""Cross-rank indexes: adds to each rank's analysis what only several ranks' traces show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.links import NO_LINKS, RankLinks, between_two, of_groups, without_links
from traceanalyzer.job.loads import Hashes, Load, OtherProgram, RankLoads, comparable, rare_in
from traceanalyzer.job.ranks import JobView, Ranks, give
from traceanalyzer.job.rates import PEERS, Moved, rates
from traceanalyzer.job.runs import OF_ONE_SIZE, PAIR, CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, Mask, Rows, median, medians, starts_of_runs
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.job_ranks import hashed_names
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.communication import Kernels, unexplained
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import COMMUNICATION
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

# Clocks of two hosts drift apart so much in ten seconds, at 10 ppm; ends differ by 35 us, 2 H200.
_SLACK_NS = 100_000
_MOST = 0.75  # of the pairs run at once: then the order is right; 0.85 of exchanges in two kernels, DeepEP on 8 H200
_ENDS_NS = 50_000  # ends of one collective on its ranks: they differ by 35 us, 2 H200
_PAIRED_EXECUTIONS = 4  # of fewer who takes part is chance
# Of the collectives of one group that end together on its ranks; a rank may be descheduled; chosen.
_MOST_ENDS = 0.9
# A kernel that receives what was sent long ago runs so much after its peers' at most; DeepEP.
_RECEIVED_NS = 500_000
_NEAR = 8  # positions by which messages in flight may be off: twice the micro-batches of the usual pipeline; chosen
_CLOCKS_NS = 1_000_000  # clocks of one host agree within 0.02 ms (13 jobs, H200), those of hosts with NTP mostly within


def partners(mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, other: Rows, apart_ns: int | None = None) -> Rows:
    """For each run in `own` the one in `other` that is the same collective, -1 for none.

    Both are int64 positions of the collectives of one process group, in order; `apart_ns` is by how much the other
    trace's times begin later than these, None where that is unknown.
    """
    best, most, chosen = np.full(len(own), -1, np.int64), 0, 0
    for shift in dict.fromkeys(_shifts(mine, own, theirs, other)):
        found = _shifted(mine, own, theirs, other, shift)
        if (count := int((found >= 0).sum())) > most:
            best, most, chosen = found, count, shift
    numbered = (mine.seq[own] >= 0).any() and (theirs.seq[other] >= 0).any()
    # Ranks are at the same collective, not at the same message.
    in_flight = bool((mine.what[own] == PAIR).all())
    if most == 0 or numbered or not in_flight or apart_ns is None:
        return best
    # Messages without numbers may be off by some positions: then the clocks seem to be far apart. Another shift is
    # taken where it pairs as many, their ends differ no more, and the clocks nearly agree.
    offset, spread = _offset_ns(mine, own, theirs, best, apart_ns)
    if abs(offset) < _CLOCKS_NS:
        return best
    for more in (step * sign for step in range(1, _NEAR + 1) for sign in (1, -1)):
        found = _shifted(mine, own, theirs, other, chosen + more)
        if int((found >= 0).sum()) < max(most - abs(more), 1):
            continue
        apart, differ = _offset_ns(mine, own, theirs, found, apart_ns)
        if differ <= spread and abs(apart) < min(abs(offset), _CLOCKS_NS):
            offset, best = apart, found
    return best


def _offset_ns(
    mine: CollectiveRuns, own: Rows, theirs: CollectiveRuns, partner: Rows, apart_ns: int
) -> tuple[float, float]:
    """(by how much the other clock is ahead if most pairs end together, median deviation from that), in ns."""
    paired = partner >= 0
    apart = (theirs.end_ns[partner] - mine.end_ns[own])[paired] + apart_ns
    offset = median(apart)
    return offset, median(abs(apart - offset))


def told_apart(runs: Mapping[int, CollectiveRuns]) -> dict[int, CollectiveRuns]:
    """The same with groups that have neither name nor ranks told apart by who takes part: they end together.

    Of each collective and size the ranks are split where that gives groups of one size, or some that are in step and
    cannot be told apart; else they stay one group. What ranks leave once their own data has moved tells nothing.
    """
    groups = {rank: run.group.copy() for rank, run in runs.items()}
    columns = (zip(run.what, run.elements.tolist(), run.group, strict=True) for run in runs.values())
    kinds = {one[:2] for rows in columns for one in rows if one[2] == "" and one[0] in OF_ONE_SIZE}
    for what, count in sorted(kinds, key=str):
        chosen = {
            rank: np.flatnonzero((run.group == "") & (run.what == what) & (run.elements == count))
            for rank, run in runs.items()
        }
        for members in _members({rank: runs[rank].end_ns[own] for rank, own in chosen.items() if len(own)}):
            for rank in members:
                groups[rank][chosen[rank]] = str(members)
    return {rank: replace(run, group=groups[rank]) for rank, run in runs.items()}


def _members(ends: Mapping[int, Rows]) -> list[list[int]]:
    """Ranks whose collectives end together; none where a group is not a multiple of the smallest, or of one rank."""
    count = min(map(len, ends.values()))
    groups: list[list[int]] = []
    for rank, own in sorted(ends.items()):
        for group in groups:
            apart = own[-count:] - ends[group[0]][-count:]
            if (abs(apart - round(median(apart))) <= _ENDS_NS).mean() >= _MOST_ENDS:
                group.append(rank)
                break
        else:
            groups.append([rank])
    least = min(map(len, groups))
    split = len(groups) > 1 < least and all(len(group) % least == 0 for group in groups)
    return groups if split and count >= _PAIRED_EXECUTIONS else []


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
    ahead = round(median((theirs.end_ns[partner] - mine.end_ns[own])[paired]))
    begin = np.maximum(mine.start_ns[own], theirs.start_ns[partner] - ahead)
    return np.asarray(begin - np.minimum(mine.end_ns[own], theirs.end_ns[partner] - ahead), np.int64)


_COMMUNICATES = KINDS.index("communication")
_EXECUTIONS = 4  # fewer correlate by chance
# Correlation of start and duration: collectives -0.66 to -1.0, 2 to 8 ranks of H200 and V100.
_MAKING_UP = -0.6
# Ends to starts: collectives 0.0 to 0.93, kernels that compute 0.98 and more, beside noise.
_LESS_SPREAD = 0.95
_DIFFERING = 0.02  # of the duration: matmuls beside a collective correlate as well, by up to 0.02 of theirs


@dataclass(frozen=True, slots=True)
class RankKernels:
    """Kernels of one rank that may communicate, by name (starts, durations) in ns by start; `known` ones surely do."""

    runs: Mapping[str, tuple[Floats, Floats]]
    known: frozenset[str]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork) -> RankKernels:
        kernels = Kernels(trace, work.row, work.device, work.stream, work.op)
        every = Texts.column(trace.lanes.gpu, "name", work.row)
        known = frozenset(every[work.kind == _COMMUNICATES].distinct())
        rows = np.flatnonzero(unexplained(kernels, every.matches(COMMUNICATION)))
        names = Texts.column(trace.lanes.gpu, "name", work.row[rows])
        order = np.lexsort((work.start_ns[rows], names.code))
        parts = np.split(order, np.flatnonzero(np.diff(names.code[order])) + 1) if len(order) else []
        start, dur = work.start_ns[rows], (work.end_ns - work.start_ns)[rows]
        runs = {str(names[part[0]]): (start[part].astype(float), dur[part].astype(float)) for part in parts}
        return cls(runs, known)


def waiting_together(ranks: Mapping[int, RankKernels]) -> frozenset[str]:
    """Names of kernels that communicate on one rank at least, or end together on all since they wait for each other."""
    if len(ranks) < 2:
        return frozenset()
    known: frozenset[str] = frozenset().union(*(rank.known for rank in ranks.values()))
    shared = set.intersection(*(set(rank.runs) for rank in ranks.values())) - known
    return known.union(name for name in shared if _wait([rank.runs[name] for rank in ranks.values()]))


def with_waiting(trace: Trace, work: DeviceWork, names: frozenset[str]) -> DeviceWork:
    chosen = Texts.column(trace.lanes.gpu, "name", work.row).meets(names.__contains__) & (work.kind == 0)
    return replace(work, kind=np.where(chosen, _COMMUNICATES, work.kind))


def _wait(runs: list[tuple[Floats, Floats]]) -> bool:
    count = min(len(start) for start, _ in runs)
    if count < _EXECUTIONS or max(len(start) for start, _ in runs) > 2 * count:
        return False
    start, dur = (np.stack([run[column][-count:] for run in runs]) for column in (0, 1))
    start = start - start[:1]
    late, longer = _apart(start), _apart(dur)
    spread = np.abs(late).sum()
    if spread == 0 or np.abs(longer).mean() < _DIFFERING * dur.mean():
        return False
    together = (late * longer).sum() / max(np.sqrt((late**2).sum() * (longer**2).sum()), 1.0)
    return bool(together <= _MAKING_UP and np.abs(late + longer).sum() <= _LESS_SPREAD * spread)


def _apart(values: Floats) -> Floats:
    """How far each rank is from the mean of an execution, without what it always is: clocks differ, and devices."""
    own = values - medians(values)[:, None]
    return np.asarray(own - own.mean(axis=0))


def measured(
    runs: Mapping[int, CollectiveRuns], base_ns: Mapping[int, int] | None = None
) -> dict[int, CollectiveWaits]:
    """Rank -> its waiting; without the ranks none of whose collectives any other trace has.

    Where ranks of a group are missing the waiting is what it is at least: one of them may have come later still.
    """
    shortest = {rank: run.dur_ns.copy() for rank, run in runs.items()}
    last, number = ({rank: np.full(len(run), -1, np.int64) for rank, run in runs.items()} for _ in range(2))
    meets = {rank: np.zeros(len(run), np.bool_) for rank, run in runs.items()}
    begin = 0
    for group in dict.fromkeys(name for run in runs.values() for name in run.group if name is not None):
        members = {rank: np.flatnonzero(run.group == group) for rank, run in runs.items()}
        table = _table(runs, {rank: member for rank, member in members.items() if len(member)}, base_ns)
        if not table:
            continue
        least, comer, ranks = _last(runs, table)
        longest = max(table, key=lambda rank: int((table[rank] >= 0).sum()))
        for rank, member in table.items():
            seen = (member >= 0) & (ranks > 1)
            shortest[rank][member[seen]], last[rank][member[seen]] = least[seen], comer[seen]
            number[rank][member[seen]] = begin + np.flatnonzero(seen)
            if rank != longest:
                seen &= at_once(runs[longest], table[longest], runs[rank], member)
            meets[rank][member[seen]] = True
        begin += len(comer)
    waits: dict[int, CollectiveWaits] = {}
    for rank, run in runs.items():
        if (known := last[rank] >= 0).any():
            waiting_ns, collective = (run.dur_ns - shortest[rank])[known], number[rank][known]
            found = run.entry[known], waiting_ns, last[rank][known], collective, meets[rank][known]
            waits[rank] = CollectiveWaits(*found)
    return waits


def _table(
    runs: Mapping[int, CollectiveRuns], members: Mapping[int, Rows], base_ns: Mapping[int, int] | None
) -> dict[int, Rows]:
    """Rank -> position in its runs of each collective of the rank that has most, -1 where it has none."""
    if len(members) < 2:
        return {}
    longest = max(members, key=lambda rank: len(members[rank]))
    own = members[longest]
    apart = {} if base_ns is None else {rank: base_ns[rank] - base_ns[longest] for rank in members}
    return {
        rank: own if rank == longest else partners(runs[longest], own, runs[rank], other, apart.get(rank))
        for rank, other in members.items()
    }


def _last(runs: Mapping[int, CollectiveRuns], table: Mapping[int, Rows]) -> tuple[Rows, Rows, Rows]:
    """(shortest duration of each collective, the rank that has it, how many ranks have the collective)."""
    ranks = np.array(list(table), np.int64)
    most = np.iinfo(np.int64).max
    took = np.stack([np.where(own >= 0, runs[rank].dur_ns[own], most) for rank, own in table.items()])
    return took.min(axis=0), ranks[took.argmin(axis=0)], (took < most).sum(axis=0)


def introduce(ranks: Ranks) -> JobView | None:
    """Give `CollectiveWaits` and `RankLoads` to all ranks that share a collective; what they share, or None."""
    every = [rank for rank in ranks.all if rank is not None]
    # Kernels that wait for other ranks are communication, before anything else is made of them.
    names = waiting_together(ranks.each(kernels, dict.fromkeys(every)))
    found = ranks.each(runs, dict.fromkeys(every), tuple(sorted(names)))
    own = told_apart({rank: wait for rank, (wait, _) in found.items()})
    base_ns = {rank: base for rank, (_, base) in found.items()}
    waits = measured(own, base_ns) if len(own) > 1 else {}
    if not waits:
        return None
    base_ns = {rank: base_ns[rank] for rank in waits}
    view = JobView(own, waits, clocks_of(own, waits, base_ns), base_ns)
    links = _links(ranks, view)
    waits = {rank: without_links(wait, links.get(rank, NO_LINKS)) for rank, wait in waits.items()}
    view = replace(view, waits=waits)
    held = view.held_up_ns()
    loads = ranks.each(load, {rank: (wait, held[rank], links.get(rank)) for rank, wait in view.waits.items()})
    shared = {rank: wait for rank, wait in loads.items() if wait is not None}
    if len(shared) > 1 and comparable(shared):
        ranks.each(know, {rank: rank for rank in shared}, shared)
    if not view.pipelined:
        ranks.each(know_program, rare_in(ranks.each(program, dict.fromkeys(waits))), len(waits) - 1)
    return view


def _links(ranks: Ranks, view: JobView) -> dict[int, RankLinks]:
    """Rank -> its slow links; without the ranks of which no link can be compared."""
    found = between_two(view)
    groups = {group for run in view.runs.values() for group in run.group}
    if len(groups) >= PEERS:
        ranks.each(give, view.waits)
        group_rates = rates(view.runs, view.waits, ranks.each(moved, dict.fromkeys(view.waits)))
        for rank, of_group in of_groups(view, group_rates).items():
            found[rank] = RankLinks((*found.get(rank, NO_LINKS).slow, *of_group.slow))
    return found


def kernels(analysis: Analysis, _: None, __: None) -> RankKernels:
    """What of the rank others are compared with."""
    return RankKernels.of(analysis.trace, analysis.index(DeviceWork))


def runs(analysis: Analysis, _: None, names: tuple[str, ...]) -> tuple[CollectiveRuns, int]:
    """(the rank's collectives, base time of its file); kernels of these names are communication."""
    if names:
        with suppress(Unavailable):
            work = analysis.index(DeviceWork)
            analysis.provide(with_waiting(analysis.trace, work, frozenset(names)))
    return analysis.index(CollectiveRuns), analysis.trace.meta.base_time_ns


def moved(analysis: Analysis, _: None, __: None) -> Moved:
    trace, work = analysis.trace, analysis.index(DeviceWork)
    known = analysis.index(CollectiveRuns), analysis.index(CollectiveWaits), analysis.index(Nesting)
    return Moved.of(trace, work, *known)


def load(analysis: Analysis, given: tuple[CollectiveWaits, Floats, RankLinks | None], _: None) -> Load | None:
    """What the rank computes in a step, once it knows how long it waits, and others for it; None without steps."""
    waits, held_ns, links = given
    analysis.provide(waits)
    if links is not None:
        analysis.provide(links)
    with suppress(Unavailable):
        return Load.of(analysis.index(DeviceWork), analysis.index(Steps), waits, held_ns)
    return None


def know(analysis: Analysis, rank: int, loads: dict[int, Load]) -> None:
    analysis.provide(RankLoads(rank, loads))


def program(analysis: Analysis, _: None, __: None) -> Hashes:
    """Hashes of the names of all ops and kernels, ascending."""
    return tuple(sorted(hashed_names(analysis.trace)))


def know_program(analysis: Analysis, rare: Hashes, others: int) -> None:
    """Give what the rank runs that the others do not."""
    analysis.provide(OtherProgram.of(analysis.trace, rare, others))
