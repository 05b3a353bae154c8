"""Which collective of one recorded rank is which of another, and how long each rank waited there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from benchmarks.delays import Meeting, Rank, end_of, talks

_CLOCKS_US = 50.0  # by which those of several processes of one host differ at most; V100, H200
_APART = 0.1  # of a kernel's executions one rank is done before another comes: it does not wait; jobs/: 0, or a third


def paired(ranks: Mapping[int, Rank]) -> None:
    """Fill what `Rank` says of collectives: by kind and order from the end.

    DeepEP sends and receives by turns, in kernels of one name, and what receives waits for the others to have sent.
    """
    result: dict[Meeting, dict[int, int]] = {}
    for number, rank in ranks.items():
        count: Counter[str] = Counter()
        for at in reversed(range(len(rank.work))):
            if talks(rank.work[at]):
                name = rank.work[at]["name"].partition("(")[0]
                result.setdefault((name, count[name]), {})[number] = at
                count[name] += 1
    for name in {name for name, _ in result}:
        every = {key: own for key, own in result.items() if key[0] == name}
        apart = sum(not _meet(ranks, own) for own in every.values())
        if apart <= _APART * len(every):
            for key, own in every.items():
                _together(ranks, key, own)
        else:
            for key, own in every.items():
                if key[1] % 2 == 0 and (name, key[1] + 1) in every:
                    _received(ranks, key, own, every[name, key[1] + 1])


def _meet(ranks: Mapping[int, Rank], own: Mapping[int, int]) -> bool:
    """Whether none was done before the last had come; all recorded jobs are of one host."""
    works = [ranks[number].work[at] for number, at in own.items()]
    return max(work["ts"] for work in works) < min(map(end_of, works)) + _CLOCKS_US


def _together(ranks: Mapping[int, Rank], key: Meeting, own: Mapping[int, int]) -> None:
    least = min(ranks[number].work[at]["dur"] for number, at in own.items())
    for number, at in own.items():
        ranks[number].meeting[at] = key
        ranks[number].spare[at] = ranks[number].work[at]["dur"] - least


def _received(ranks: Mapping[int, Rank], key: Meeting, own: Mapping[int, int], sends: Mapping[int, int]) -> None:
    """The one before from the end is what sent: the last of these is waited for."""
    if own.keys() != sends.keys():
        return
    sent = {number: end_of(ranks[number].work[send]) for number, send in sends.items()}
    last = max(sent.values())
    least = min(ranks[number].work[send]["dur"] for number, send in own.items())
    after = {number: end_of(ranks[number].work[send]) - last for number, send in own.items()}
    for number, send in own.items():
        one = ranks[number]
        one.meeting[send], one.sent[send] = key, sends[number]
        one.spare[send] = last - sent[number]
        one.idle[send] = one.work[send]["dur"] - least, after[number] - min(after.values())
