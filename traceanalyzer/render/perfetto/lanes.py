"""Slices that overlap are drawn beside each other: in Perfetto, slices of one track may only lie in one another."""

from __future__ import annotations

import heapq

import numpy as np

from traceanalyzer.model.arrays import Ns
from traceanalyzer.model.overlay import Slices


def in_time(track: Slices) -> Ns:
    """Positions of its slices by start, then by end, int64; without those before time zero.

    Perfetto's times begin at zero, and so do all that torch writes; an occurrence that is nowhere has none.
    """
    order = np.lexsort((track.end_ns, track.start_ns))
    return order[track.start_ns[order] >= 0]


def lanes(start_ns: Ns, end_ns: Ns) -> Ns:
    """A lane for each slice, int64 (slices,), so that those of one lane do not overlap: the lowest that is free.

    Args:
        start_ns, end_ns: int64 (slices,), by start, and by end where they start together.
    """
    found = np.zeros(len(start_ns), np.int64)
    if np.all(start_ns[1:] >= end_ns[:-1]):
        return found
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    for at, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        found[at] = lane
        heapq.heappush(taken, (end, lane))
    return found
