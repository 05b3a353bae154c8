"""How much of each piece of work nothing else hides: each instant of a device belongs to one piece."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows
from traceanalyzer.timeline.device_work import KINDS, DeviceWork


def exposed_ns(work: DeviceWork) -> Rows:
    """Time in which each piece of work is the one that counts; int64 (work,).

    Compute goes before communication, that before copies and memsets, as in the accounting; of two of one kind the
    one that started first. On a device they sum to the time in which anything runs.
    """
    exposed = np.zeros(len(work.row), np.int64)
    for device in np.unique(work.device).tolist():
        before: intervals.Set = (np.empty(0, np.int64), np.empty(0, np.int64))
        for kind in range(len(KINDS)):
            own = np.flatnonzero((work.device == device) & (work.kind == kind))
            start, end = _in_turn(work.start_ns[own], work.end_ns[own])
            exposed[own] = (end - start) - intervals.covered(before, start, end)
            starts, ends = np.append(before[0], start), np.append(before[1], end)
            before = intervals.union(starts, ends)
    return exposed


def _in_turn(start: Rows, end: Rows) -> tuple[Rows, Rows]:
    """Each interval without what those that started before it cover; they come by start."""
    if len(start) == 0:
        return start, end
    reached = np.maximum.accumulate(end)
    begin = np.maximum(start, np.append(start[:1], reached[:-1]))
    return begin, np.maximum(end, begin)
