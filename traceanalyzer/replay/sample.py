"""Which steps stand for the program: neither the cold first nor a hiccup, and not more than can be replayed quickly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

_SLOW = 1.6  # times the median: a hiccup, or the profiler's buffers; REPLAY prototype
_RARE = 0.2  # share of the steps that may be hiccups; what is slow more often is the program
_MAX_ROWS = 60_000  # of the CPU lane, so that a replay takes milliseconds


def sample(steps: Steps, nesting: Nesting) -> Rows:
    """Positions of the sampled steps, ascending; at least one."""
    dur = steps.cpu_end_ns - steps.cpu_start_ns
    usable = np.flatnonzero(dur > 0)
    if len(usable) > 2:
        usable = usable[1:]
    slow = dur[usable] > _SLOW * np.median(dur[usable])
    if slow.mean() <= _RARE or slow.sum() <= 1:
        usable = usable[~slow]
    starts = (
        np.sort(np.concatenate(nesting.thread_start_ns)) if nesting.thread_start_ns else np.empty(0, np.int64)
    )
    rows = np.searchsorted(starts, steps.cpu_end_ns[usable]) - np.searchsorted(
        starts, steps.cpu_start_ns[usable]
    )
    return _typical(usable, dur, rows)


def _typical(usable: Rows, dur: Rows, rows: Rows) -> Rows:
    """As many as fit: a run of steps in the middle of the trace, where all is warm."""
    total: NDArray[np.int64] = np.cumsum(rows)
    if len(usable) == 0 or total[-1] <= _MAX_ROWS:
        return usable if len(usable) else np.zeros(1, np.int64)
    first = len(usable) // 2
    last = np.searchsorted(total, total[first] - rows[first] + _MAX_ROWS, side="right")
    return usable[first : max(int(last), first + 1)]
