"""Offsets between the clocks of ranks, from the ends of collectives: all ranks leave one at about the same time."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.arrays import Floats, Rows, median
from traceanalyzer.model.report import Clock
from traceanalyzer.timeline.collective_waits import CollectiveWaits

_FEW = 8  # collectives that both ranks have; of fewer no drift is told
_SECONDS = 0.05  # of overlap: in less a drift of 40 µs/s is lost among ends that differ by 10 µs; chosen
_MAD = 1.4826  # from median absolute deviation to standard deviation; of a normal distribution
# Of the fit, without what lies so many deviations off: a rank that was descheduled.
_PASSES, _OUTLIER = 4, 4.0
_LEAST_NS = 1_000.0  # the finest unit of a trace's times


def clocks_of(
    runs: Mapping[int, CollectiveRuns], waits: Mapping[int, CollectiveWaits], base_ns: Mapping[int, int]
) -> dict[int, Clock]:
    """Rank -> its clock, against the rank that shares most collectives; without those that share none."""
    reference = max(waits, key=lambda rank: (len(waits[rank].entry), -rank), default=-1)
    times = {rank: _times(runs[rank], wait, base_ns[rank]) for rank, wait in waits.items()}
    clocks = {rank: _clock(reference, times[reference], own) for rank, own in times.items()}
    return {rank: clock for rank, clock in clocks.items() if clock is not None}


def _times(runs: CollectiveRuns, waits: CollectiveWaits, base_ns: int) -> tuple[Rows, Rows, Rows]:
    """(number, start, end) of what other ranks have, by number."""
    order = np.argsort(waits.number)
    position = np.searchsorted(runs.entry, waits.entry)[order]
    return waits.number[order], runs.start_ns[position] + base_ns, runs.end_ns[position] + base_ns


def _clock(reference: int, known: tuple[Rows, Rows, Rows], own: tuple[Rows, Rows, Rows]) -> Clock | None:
    both, here, there = np.intersect1d(known[0], own[0], assume_unique=True, return_indices=True)
    if len(both) == 0:
        return None
    ends, apart = known[2][here], (own[2][there] - known[2][here]).astype(np.float64)
    at_ns = int(ends[0])
    seconds = (ends - at_ns) / 1e9
    offset, drift, error = line(seconds, apart)
    clock = Clock(reference, round(offset), drift / 1e3, round(error), at_ns, len(both))
    begins = own[1][there] - clock.ahead_ns(own[1][there])
    return replace(clock, broken=int((begins > ends + clock.uncertainty_ns).sum()))


def line(seconds: Floats, apart: Floats) -> tuple[float, float, float]:
    """(offset, drift per second, what a single end may be off) of most of the points, in ns."""
    selected = np.ones(len(apart), bool)
    offset, drift, spread = median(apart), 0.0, 0.0
    for _ in range(_PASSES):
        drift = 0.0
        if selected.sum() >= _FEW and np.ptp(seconds[selected]) >= _SECONDS:
            drift = float(np.polyfit(seconds[selected], apart[selected], 1)[0])
        left = apart - drift * seconds
        offset = median(left[selected])
        off = abs(left - offset)
        spread = _MAD * median(off[selected])
        selected = off <= max(_OUTLIER * spread, 1.0)
    error = max(_OUTLIER * spread, _LEAST_NS)
    if drift and abs(drift) * np.ptp(seconds) <= error:
        return median(apart[selected]), 0.0, error
    return offset, drift, error
