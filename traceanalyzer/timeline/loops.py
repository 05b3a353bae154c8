"""Loops in sequences: where the same few kinds come again and again, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, narrowed

_MAX_PERIOD = 200  # ops: a ResNet-50 has 140; a model that is called sample by sample
_SAMPLES = 8  # at least, of a stretch: by chance as many are hardly ever the same
_WORTH = 1.2  # times what a shorter period covers must a longer one cover, or it is only a multiple of it


@dataclass(frozen=True, slots=True)
class Loops:
    """The loop of each group that covers most, wherever it runs: once in each layer. Arrays of shape (loops,), int64.

    Attributes:
        group: whose loop it is.
        first: position of its first member.
        period: members of one repeat.
        repeats: how often it comes, at least `least`.
    """

    group: Rows
    first: Rows
    period: Rows
    repeats: Rows

    def __len__(self) -> int:
        return len(self.group)

    def members(self, loop: int) -> Rows:
        """Positions of a loop's members, int64 of shape (repeats, period)."""
        size = int(self.repeats[loop]), int(self.period[loop])
        return int(self.first[loop]) + np.arange(size[0] * size[1]).reshape(size)

    @classmethod
    def of(cls, kind: Rows, group: Rows, least: int) -> Loops:
        """The loops of sequences.

        Args:
            kind: int64 (members,), equal for what counts as the same.
            group: int64 of the same shape, from 0, sorted: no loop reaches from one into the next.
            least: fewer repeats make no loop.
        """
        groups = int(group[-1]) + 1 if len(group) else 0
        best = np.zeros((3, groups), np.int64)  # first, period, repeats
        kind, group = narrowed(kind), narrowed(group)  # all are compared with all again and again
        for period in range(1, min(_MAX_PERIOD, len(kind) // least) + 1):
            same = kind[period:] == kind[:-period]
            if not _may_hold(same, (least - 1) * period):
                continue
            first, run = _runs(same & (group[period:] == group[:-period]))
            repeats = run // period + 1
            enough = (run > 0) & (repeats >= least)
            first, repeats = first[enough], repeats[enough]
            order = np.argsort(repeats, kind="stable")  # of several with one index the last assignment stays
            found = np.zeros((3, groups), np.int64)
            found[:, group[first[order]]] = first[order], np.full(len(order), period), repeats[order]
            better = found[1] * found[2] > _WORTH * best[1] * best[2]
            best[:, better] = found[:, better]
        ends = np.cumsum(np.bincount(group, minlength=groups)).tolist()
        spans = list(zip([0, *ends], ends, strict=False))
        there = np.flatnonzero(best[2]).tolist()
        loops = [
            (own, *alike)
            for own in there
            for alike in _alike(kind, spans[own], best[:2, own].tolist(), least)
        ]
        return cls(*np.array(loops, np.int64).reshape(-1, 4).T)


def _may_hold(same: NDArray[np.bool_], length: int) -> bool:
    """Whether a stretch of True may be so long: of every few values, as many in a row as lie in it are True."""
    apart = max(length // _SAMPLES, 1)
    samples, many = same[::apart], length // apart
    if len(samples) < many:
        return False
    found = samples[: len(samples) - many + 1].copy()
    for later in range(1, many):
        found &= samples[later : len(found) + later]
    return bool(found.any())


def _alike(
    kind: NDArray[Any], span: tuple[int, int], best: list[int], least: int
) -> list[tuple[int, int, int]]:
    """(first, period, repeats) of all loops within a span that have the members of its best, in any rotation."""
    (low, high), (begin, period) = span, best
    members = np.sort(kind[begin : begin + period])
    first, run = _runs(kind[low + period : high] == kind[low : high - period])
    return [
        (low + at, period, length // period + 1)
        for at, length in zip(first.tolist(), run.tolist(), strict=True)
        if length // period + 1 >= least
        and np.array_equal(np.sort(kind[low + at : low + at + period]), members)
    ]


def _runs(same: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[Rows, Rows]:
    """Start and length of each stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    return edges[::2], edges[1::2] - edges[::2]
