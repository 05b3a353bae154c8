"""Compute beside a collective that waits for another rank: it takes longer, and would not if that rank came in time."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Floats, Mask, Rows, grouped, median_of
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork

_FREE, _BESIDE = 0.02, 0.9  # share of a kernel's time beside communication: none of it, and all; chosen
_FEW = 3  # executions of a kind that tell its usual time; chosen
_SLOWER = 1.35  # beside a collective where no kind ran both ways; 1.2 to 1.9 by kernel, DDP on 2 H200, NVLink
_MOST = 3.0  # times; more is no matter of sharing the device


def undisturbed_ns(trace: Trace, work: DeviceWork, entry: Rows, waits: CollectiveWaits) -> Floats:
    """What each entry would take if no collective beside it waited for other ranks; float64 (entries,).

    A kernel that ran alone elsewhere in the recording says how long it takes; of others the mean of those is taken.
    """
    took = (work.end_ns - work.start_ns)[entry].astype(np.float64)
    computes = (work.kind == KINDS.index("compute"))[entry]
    communication = np.flatnonzero(work.kind == KINDS.index("communication"))
    waiting, overlapping = np.zeros(len(entry)), np.zeros(len(entry))
    for device in np.unique(work.device[entry]).tolist():
        on_device = computes & (work.device[entry] == device)
        there = communication[work.device[communication] == device]
        starts, ends = work.start_ns[entry[on_device]], work.end_ns[entry[on_device]]
        late = waits.entry[work.device[waits.entry] == device]
        until = work.start_ns[late] + np.maximum(waits.of(late)[0], 0)
        waiting[on_device] = _covered(work.start_ns[late], until, starts, ends)
        overlapping[on_device] = _covered(work.start_ns[there], work.end_ns[there], starts, ends)
    if not waiting.any():
        return took
    slower = _slower(trace, work, entry, took, np.where(computes, overlapping, -1.0))
    return took - waiting * (1 - 1 / slower)


def _covered(begins: Rows, finishes: Rows, starts: Rows, ends: Rows) -> Rows:
    return intervals.covered(intervals.union(begins, finishes), starts, ends)


def _slower(trace: Trace, work: DeviceWork, entry: Rows, took: Floats, overlapping: Floats) -> Floats:
    """By how much each entry's kind is slower beside communication than alone; float64 (entries,)."""
    columns = (codes_at(trace.lanes.gpu, name, work.row[entry]) for name in ("name", "grid", "block"))
    kind, first = grouped(list(columns))
    share = overlapping / np.maximum(took, 1.0)
    unblocked = _medians(kind, took, (share >= 0) & (share < _FREE), len(first))
    shared = _medians(kind, took, share > _BESIDE, len(first))
    ratio = np.clip(shared / unblocked, 1.0, _MOST)
    measured = ~np.isnan(ratio)
    weight = np.bincount(kind, weights=took * (share > _BESIDE), minlength=len(first))
    usual = (
        float(np.average(ratio[measured], weights=weight[measured])) if weight[measured].sum() else _SLOWER
    )
    return np.where(measured, ratio, usual)[kind]


def _medians(kind: Rows, values: Floats, among: Mask, kinds: int) -> Floats:
    """Median of each kind's values; NaN where there are few."""
    enough = np.bincount(kind[among], minlength=kinds) >= _FEW
    chosen = among & enough[kind]
    medians = np.full(kinds, np.nan)
    medians[enough] = median_of((np.cumsum(enough) - 1)[kind[chosen]], values[chosen])
    return medians
