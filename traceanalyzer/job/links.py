"""Links that are slower than those of their peers: between two ranks of an exchange, or within a group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from traceanalyzer.job.clocks import line
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Rate
from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Floats, Rows, distinct, median, medians
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import find

EXCHANGES = frozenset({"alltoall", "alltoallbase", "sendrecv", "dispatch", "combine"})
"""Each rank leaves these when its own data has moved; of all others the ranks leave together."""

_RANKS = 4  # two that are late, and two that are not
_FEW = 9  # collectives: three in each third; chosen
_MORE = 0.1  # of the transfer: ranks of four jobs without a slow link are late by up to 0.02, V100 and H200
_ERRORS = 5.0  # standard errors; chosen: ranks times groups are tried
_OTHERS = 0.4  # of what the two are late by: nobody else is later by so much; chosen
_SPREAD = 2.0  # of the transfers: of less spread a late end may be a clock; 3 in the jobs of 8 H200
_MEDIANS_ERROR = 1.25 * 1.4826  # from the median absolute deviation to the error of a median; textbook


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A slow link, as one of the ranks at it sees it: `group` and `collective` are None of two ranks within a group.

    `part` is by what part of the time a transfer takes longer than over the links of its peers, `more_ns` by how much
    the work `entry` of `DeviceWork` does; int64 both.
    """

    ranks: tuple[int, ...]
    group: str | None
    collective: str | None
    part: float
    entry: Rows
    more_ns: Rows


@dataclass(frozen=True, slots=True)
class RankLinks(GivenByJob):
    """The slow links of one rank: none, where its links could be compared and none is slow."""

    slow: tuple[SlowLink, ...] = ()
    missing: ClassVar[str] = (
        "no links to compare: that takes four ranks that exchange data (all-to-all), or three groups that do the "
        "same with as much"
    )


NO_LINKS = RankLinks()


def between_two(view: JobView) -> dict[int, RankLinks]:
    """Rank -> its slow links, for ranks of exchanges that are large enough to compare links."""
    result: dict[int, list[SlowLink]] = {}
    for ranks, numbers in _meetings(view):
        ends = _Ends.of(view, ranks, numbers)
        if ends is None or (late := ends.late()) is None:
            continue
        links = {rank: result.setdefault(rank, []) for rank in ranks}
        if len(late) == 2:  # a link has two ends; of more it is not known which
            pair = tuple(ranks[at] for at in late)
            for rank, part in zip(pair, late.values(), strict=True):
                links[rank].append(ends.slow(view, rank, pair, part))
    return {rank: RankLinks(tuple(own)) for rank, own in result.items()}


def of_groups(view: JobView, rates: Sequence[tuple[Rate, Rows]]) -> dict[int, RankLinks]:
    """Rank -> links of its groups that are slow, for ranks of groups that others do the same as."""
    result: dict[int, list[SlowLink]] = {}
    ranks = list(view.waits)
    every = np.concatenate([view.waits[rank].number for rank in ranks])
    owner = np.repeat(np.arange(len(ranks)), [len(view.waits[rank].number) for rank in ranks])
    for rate, numbers in rates:
        if rate.beside is None:
            continue
        wanted = np.zeros(int(every.max(initial=-1)) + 1, np.bool_)
        wanted[numbers] = True
        for rank in (ranks[at] for at in distinct(owner[wanted[every]]).tolist()):
            waits, runs, own = view.waits[rank], view.runs[rank], result.setdefault(rank, [])
            if rate.slow:
                entry = waits.entry[wanted[waits.number]]
                took = runs.dur_ns[np.searchsorted(runs.entry, entry)] - waits.of(entry)[0]
                part = rate.beside / rate.busbw - 1
                more = np.rint(took * part / (1 + part)).astype(np.int64)
                own.append(SlowLink(rate.ranks, rate.group, rate.collective, part, entry, more))
    return {rank: RankLinks(tuple(own)) for rank, own in result.items()}


def without_links(waits: CollectiveWaits, links: RankLinks) -> CollectiveWaits:
    """The waits of a rank less what is its own slow transfer."""
    waiting_ns = waits.waiting_ns.copy()
    for link in links.slow:
        position = np.searchsorted(waits.entry, link.entry)
        waiting_ns[position] = np.maximum(waiting_ns[position] - link.more_ns, 0)
    return replace(waits, waiting_ns=waiting_ns)


def _meetings(view: JobView) -> Iterator[tuple[tuple[int, ...], Rows]]:
    """(ranks, numbers of the collectives that just these have), where these are four or more."""
    size = 1 + max((int(wait.number.max(initial=-1)) for wait in view.waits.values()), default=-1)
    ranks = sorted(view.waits)
    has = np.zeros((len(ranks), size), np.bool_)
    for index, rank in enumerate(ranks):
        has[index, view.waits[rank].number] = True
    kinds, which = np.unique(has, axis=1, return_inverse=True)
    for kind, there in enumerate(kinds.T):
        if there.sum() >= _RANKS:
            present = tuple(ranks[index] for index in np.flatnonzero(there))
            yield present, np.flatnonzero(which.ravel() == kind)


@dataclass(frozen=True, slots=True)
class _Ends:
    """When ranks leave the collectives `numbers` that all of them have, by their clocks set alike.

    `late_ns` (ranks, collectives) is after the median of those that leave first, `transfer_ns` (collectives,) from the
    last to come to these, the shortest duration of all ranks at most; 0 where they leave together.
    """

    late_ns: Floats
    transfer_ns: Floats
    numbers: Rows

    @classmethod
    def of(cls, view: JobView, ranks: Sequence[int], numbers: Rows) -> Self | None:
        """None where nothing is exchanged.

        Clocks are set by the third that moves least: those of a slow link's ranks would seem to be behind by the rest.
        """
        at = [_positions(view, rank, numbers) for rank in ranks]
        runs = [(view.runs[rank], own) for rank, own in zip(ranks, at, strict=True)]
        exchanged = np.array([np.isin(run.what[own], list(EXCHANGES)) for run, own in runs]).any(axis=0)
        if not exchanged.any():
            return None
        origin = int(runs[0][0].end_ns[at[0]][0]) + view.base_ns[ranks[0]]
        shift = np.array([view.base_ns[rank] - origin for rank in ranks])[:, None]
        start = (np.array([run.start_ns[own] for run, own in runs]) + shift).astype(np.float64)
        end = (np.array([run.end_ns[own] for run, own in runs]) + shift).astype(np.float64)
        transfer = np.where(exchanged, (end - start).min(axis=0), 0.0)
        least = np.argsort(transfer, kind="stable")
        least = np.sort(least[: max(len(least) // 3, 1)])
        seconds = end[0] / 1e9
        for rank in range(1, len(ranks)):
            offset, drift, _ = line(seconds[least], (end[rank] - end[0])[least])
            start[rank] -= offset + drift * seconds
            end[rank] -= offset + drift * seconds
        first = np.sort(end, axis=0)[(len(ranks) - 1) // 2]
        # A rank at a slow link comes last, and takes longer.
        moved = np.maximum(first - start.max(axis=0), 0.0)
        return cls(end - first, np.where(exchanged, np.minimum(moved, transfer), 0.0), numbers)

    def late(self) -> dict[int, float] | None:
        """Position of each rank that is late in proportion to the transfer -> by what part of it; None: not decidable.

        A line through the medians of the thirds with the least and the most transfer: clocks that differ, and kernels
        that end late by as much whatever they move, are its offset and no slow link.
        """
        count = len(self.numbers)
        order = np.argsort(self.transfer_ns, kind="stable")
        least, most = order[: count // 3], order[count - count // 3 :]
        if count < _FEW:
            return None
        low, high = (median(self.transfer_ns[part]) for part in (least, most))
        if high < _SPREAD * max(low, 1.0):
            return None
        at_low, at_high = (medians(self.late_ns[:, part]) for part in (least, most))
        part = (at_high - at_low) / (high - low)
        line = at_low[:, None] + part[:, None] * (self.transfer_ns - low)
        off = medians(abs(self.late_ns - line))
        error = _MEDIANS_ERROR * off * np.sqrt(2 / len(most)) / (high - low)
        if median(error) * _ERRORS > _MORE * 2:
            return None
        late = (part >= _MORE) & (part >= _ERRORS * error)
        if late.any() and (part[~late] > _OTHERS * part[late].min()).any():
            return {}
        return {int(at): float(part[at]) for at in np.flatnonzero(late)}

    def slow(self, view: JobView, rank: int, ranks: tuple[int, ...], part: float) -> SlowLink:
        """The link as one of its two ranks sees it."""
        moved, runs = np.flatnonzero(self.transfer_ns > 0), view.runs[rank]
        at = _positions(view, rank, self.numbers[moved])
        more = np.minimum(np.rint(self.transfer_ns[moved] * part).astype(np.int64), runs.dur_ns[at])
        return SlowLink(ranks, None, None, part, runs.entry[at], more)


def _positions(view: JobView, rank: int, numbers: Rows) -> Rows:
    """Positions in the rank's runs of collectives that it has."""
    waits = view.waits[rank]
    return find(view.runs[rank].entry, waits.entry[find(waits.number, numbers)])
