"""Whether steps launch the same work in the same order: what recurs can be captured once and replayed."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, starts_of_runs
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, near 2**64 / golden ratio: Fibonacci hashing


def same_steps(trace: Trace, work: DeviceWork | None, steps: Steps) -> float:
    """Share of the steps that launch the most common sequence of kernels on the same grids; 0 to 1.

    Copies and memsets count by name. One step alone is like itself; without any it is 0.
    """
    if work is None or not (steps.of_work >= 0).any():
        return 0.0
    own = np.flatnonzero(steps.of_work >= 0)
    own = own[np.lexsort((work.start_ns[own], work.call_start_ns[own], steps.of_work[own]))]
    step = steps.of_work[own]
    kind, _ = grouped(
        [codes_at(trace.lanes.gpu, "name", work.row[own]), codes_at(trace.lanes.gpu, "grid", work.row[own])]
    )
    found = step[starts_of_runs(step)]
    _, counts = np.unique(_signatures(kind, step)[found], return_counts=True)
    return float(counts.max() / len(found))


def _signatures(kind: Rows, step: Rows) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A number for the sequence of kinds in each step, equal for equal sequences; `step` is sorted."""
    place = np.arange(len(step))
    rank = place - np.maximum.accumulate(np.where(starts_of_runs(step), place, 0))
    mixed = (kind.astype(np.uint64) + np.uint64(1)) * _MIX
    mixed ^= mixed >> np.uint64(29)
    weight = rank.astype(np.uint64) * np.uint64(2) + np.uint64(1)
    signatures = np.zeros(int(step[-1]) + 1, np.uint64)
    np.add.at(signatures, step, (mixed * weight) ^ (mixed >> np.uint64(17)) + weight * _MIX)
    return signatures
