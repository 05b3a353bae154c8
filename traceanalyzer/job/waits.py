"""How long each rank waits in its collectives for the last one to come, measured across the ranks of a job.

A collective ends on all ranks at about the same time (within 35 us on two H200), so the rank that runs it shortest came
last, its time is the transfer, and what another takes beyond that is waiting. No common clock is needed for that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceanalyzer.job.pairing import at_once, partners
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.timeline.collective_waits import CollectiveWaits


def measured(runs: Mapping[int, CollectiveRuns]) -> dict[int, CollectiveWaits]:
    """Rank -> its waiting; without the ranks none of whose collectives any other trace has.

    Where ranks of a group are missing the waiting is what it is at least: one of them may have come later still.
    """
    shortest = {rank: one.dur_ns.copy() for rank, one in runs.items()}
    last = {rank: np.full(len(one), -1, np.int64) for rank, one in runs.items()}
    number = {rank: np.full(len(one), -1, np.int64) for rank, one in runs.items()}
    meets = {rank: np.zeros(len(one), np.bool_) for rank, one in runs.items()}
    begin = 0
    for group in dict.fromkeys(name for one in runs.values() for name in one.group if name is not None):
        members = {rank: np.flatnonzero(one.group == group) for rank, one in runs.items()}
        table = _table(runs, {rank: own for rank, own in members.items() if len(own)})
        if not table:
            continue
        least, comer, ranks = _last(runs, table)
        longest = _longest(table)
        for rank, own in table.items():
            seen = (own >= 0) & (ranks > 1)
            shortest[rank][own[seen]], last[rank][own[seen]] = least[seen], comer[seen]
            number[rank][own[seen]] = begin + np.flatnonzero(seen)
            meets[rank][own[seen & _meets(runs, table, rank, longest)]] = True
        begin += len(comer)
    return {
        rank: CollectiveWaits(
            one.entry[known],
            (one.dur_ns - shortest[rank])[known],
            last[rank][known],
            number[rank][known],
            meets[rank][known],
        )
        for rank, one in runs.items()
        if (known := last[rank] >= 0).any()
    }


def _table(runs: Mapping[int, CollectiveRuns], members: Mapping[int, Rows]) -> dict[int, Rows]:
    """Rank -> position in its runs of each collective of the rank that has most, -1 where it has none."""
    if len(members) < 2:
        return {}
    longest = max(members, key=lambda rank: len(members[rank]))
    own = members[longest]
    return {
        rank: own if rank == longest else partners(runs[longest], own, runs[rank], other)
        for rank, other in members.items()
    }


def _longest(table: Mapping[int, Rows]) -> int:
    """The rank that has most collectives."""
    has = {rank: int((own >= 0).sum()) for rank, own in table.items()}
    return max(has, key=has.__getitem__)


def _meets(runs: Mapping[int, CollectiveRuns], table: Mapping[int, Rows], rank: int, longest: int) -> Mask:
    """Whether a rank's collectives run at once with those of the rank that has most."""
    if rank == longest:
        return np.ones(len(table[rank]), np.bool_)
    return at_once(runs[longest], table[longest], runs[rank], table[rank])


def _last(runs: Mapping[int, CollectiveRuns], table: Mapping[int, Rows]) -> tuple[Rows, Rows, Rows]:
    """(shortest duration of each collective, the rank that has it, how many ranks have the collective)."""
    ranks = np.array(list(table), np.int64)
    most = np.iinfo(np.int64).max
    took = np.stack([np.where(own >= 0, runs[rank].dur_ns[own], most) for rank, own in table.items()])
    return took.min(axis=0), ranks[took.argmin(axis=0)], (took < most).sum(axis=0)
