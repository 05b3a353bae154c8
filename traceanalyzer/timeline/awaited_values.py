"""Ops that copy a value between host and device, and in which the CPU waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, among, distinct
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.called_ops import CalledOps
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.host_round_trips import HostRoundTrips
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

MAX_BYTES = 65_536  # of one copy: more is data, and takes longer than the wait for it (PCIe 3: 5 us)
_CHECKED, _UPDATED = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"
_TO_HOST, _TO_DEVICE = KINDS.index("copy_d2h"), KINDS.index("copy_h2d")


@dataclass(frozen=True, slots=True)
class AwaitedValues:
    """Ops as the user called them, in order of start.

    Attributes:
        op: int64 (ops,), row of `trace.cpu`.
        upwards: bool (ops,), it copies to the device, and nothing to the host.
        scaler: bool (ops,), GradScaler asking whether a gradient overflowed: the last `.item()` between its check of
            the gradients and its update of the scale.
        copy: int64 (copies,), entries of `DeviceWork`: the copies of `MAX_BYTES` at most that these ops make.
        wait: int64 (calls,), rows of `trace.cpu`: the calls in these ops in which the CPU waits.
    """

    op: Rows
    upwards: Mask
    scaler: Mask
    copy: Rows
    wait: Rows

    @classmethod
    def build(
        cls,
        trace: Trace,
        work: DeviceWork,
        nesting: Nesting,
        called: CalledOps,
        syncs: SyncCalls,
        trips: HostRoundTrips,
    ) -> Self:
        copy = _small_copies(trace, work)
        copy = copy[~among(copy, np.sort(trips.down))]
        wait = syncs.row[~syncs.profiler]
        copying, waiting = called.of(work.call[copy]), called.of(wait)
        op = distinct(copying[among(copying, distinct(waiting)) & (copying >= 0)])
        inside = among(copying, op), among(waiting, op)
        op = op[np.argsort(nesting.start_ns[op], kind="stable")]
        upwards = ~among(op, distinct(copying[work.kind[copy] == _TO_HOST]))
        return cls(op, upwards, _by_scaler(trace, nesting, op), copy[inside[0]], wait[inside[1]])


def _small_copies(trace: Trace, work: DeviceWork) -> Rows:
    size = ints(trace.lanes.gpu, "bytes")[work.row]
    known = (work.kind == _TO_HOST) | (size > 0)  # old ROCm records no size; what goes up may be a batch
    between = (work.kind == _TO_HOST) | (work.kind == _TO_DEVICE)
    return np.flatnonzero(between & known & (size <= MAX_BYTES) & (work.call >= 0))


def _by_scaler(trace: Trace, nesting: Nesting, op: Rows) -> Mask:
    checked, updated = (
        np.sort(nesting.start_ns[matching(trace.lanes.cpu, "name", name.__eq__)])
        for name in (_CHECKED, _UPDATED)
    )
    start = nesting.start_ns[op]
    items = np.flatnonzero(matching(trace.lanes.cpu, "name", "aten::item".__eq__)[op])
    last = np.searchsorted(start[items], updated) - 1
    found = np.zeros(len(op), bool)
    found[items[last[last >= 0]]] = True
    return np.asarray(found & (np.searchsorted(checked, start) > np.searchsorted(updated, start)))
