"""Data that goes to the host and comes back, and values that the CPU waits for."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, among, distinct, grouped, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import CalledOps, Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

_MIN_BYTES = 1_024  # less is a value that is read back, and some value that goes up later
_WIDTH_RATIOS = (1, 2, 4, 8)  # of elements: what comes back may have another type, or be a mask
_DOWN, _UP = KINDS.index("copy_d2h"), KINDS.index("copy_h2d")


@dataclass(frozen=True, slots=True)
class HostRoundTrips:
    """Arrays of shape (trips,), in order of launch.

    Attributes:
        down, up: int64, entries of `DeviceWork`: the copy to the host, and the one that comes back.
        start_ns, end_ns: int64, on the CPU from the op that copies down to the end of the one that copies up.
        fetched_ns, sent_ns: int64, the end of the first and the start of the second: the host's own time.
        next_ns: int64, when the next row of the thread begins; `end_ns` where there is none.
        thread: int64, as in `Nesting`.
    """

    down: Rows
    up: Rows
    start_ns: Rows
    fetched_ns: Rows
    sent_ns: Rows
    end_ns: Rows
    next_ns: Rows
    thread: Rows

    def freed_ns(self, max_share: float) -> Rows:
        """The end of each trip, with the gap in which its tensors are freed where that is at most this share."""
        short = self.next_ns - self.end_ns <= max_share * (self.end_ns - self.start_ns)
        return np.where(short, self.next_ns, self.end_ns)

    @classmethod
    def build(
        cls, trace: Trace, work: DeviceWork, nesting: Nesting, ops: CalledOps, steps: Steps, syncs: SyncCalls
    ) -> Self:
        """A trip: the CPU waits for a copy down, the next copy of its thread goes up and has as many elements, both
        in one step, but in different ops. In that step every copy of those sizes belongs to a trip: a loop that sends
        batches and fetches results of the same size has a copy up before its first copy down.
        """
        if not (work.call >= 0).any():
            raise Unavailable("no launch calls in the trace: where the host waits cannot be seen")
        size = np.maximum(ints(trace.lanes.gpu, "bytes"), 0)[work.row]
        # Copies between host and device, by thread and launch.
        large = (work.call >= 0) & (size >= _MIN_BYTES)
        copies = np.flatnonzero(large & np.isin(work.kind, (_DOWN, _UP)))
        copies = copies[np.lexsort((work.call_start_ns[copies], nesting.thread[work.call[copies]]))]
        down, up = copies[:-1], copies[1:]
        trip = (work.kind[down] == _DOWN) & (work.kind[up] == _UP)
        trip &= nesting.thread[work.call[down]] == nesting.thread[work.call[up]]
        trip &= steps.of_work[down] == steps.of_work[up]
        # As many elements, of types as wide or of another width.
        low, high = np.minimum(size[down], size[up]), np.maximum(size[down], size[up])
        trip &= np.any([high == low * ratio for ratio in _WIDTH_RATIOS], axis=0)
        # A waiting call starts between each copy's launch and the launch of the copy up.
        waits = np.sort(syncs.start_ns[~syncs.profiler])
        first, last = (np.searchsorted(waits, work.call_start_ns[entries]) for entries in (down, up))
        trip &= last > first
        down, up = down[trip], up[trip]
        # No copy of the same step, size and direction is without a trip.
        number, _ = grouped([steps.of_work, size, work.kind])
        single = distinct(number[copies[~np.isin(copies, np.append(down, up))]])
        closed = np.flatnonzero(~among(number[down], single) & ~among(number[up], single))
        order = closed[np.argsort(work.call_start_ns[down[closed]], kind="stable")]
        down, up = down[order], up[order]
        start, end = nesting.start_ns, nesting.end_ns
        first, last = (ops.or_self(work.call[entries]) for entries in (down, up))
        # The host does nothing between two copies of the same op.
        apart = end[first] <= start[last]
        down, up, first, last = down[apart], up[apart], first[apart], last[apart]
        thread = pick(nesting.thread, first)
        following = _following(nesting, thread, end[last])
        return cls(down, up, start[first], end[first], start[last], end[last], following, thread)


def _following(nesting: Nesting, thread: Rows, end: Rows) -> Rows:
    """When the next row of each thread begins; `end` itself where there is none."""
    following = end.copy()
    for number in distinct(thread).tolist():
        on_thread, starts = np.flatnonzero(thread == number), nesting.thread_start_ns[number]
        position = np.searchsorted(starts, end[on_thread])
        there = position < len(starts)
        following[on_thread[there]] = starts[position[there]]
    return following


MAX_BYTES = 65_536  # of one copy: more is data, and takes longer than the wait for it (PCIe 3: 5 us)
_CHECKED, _UPDATED = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"


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
        size = ints(trace.lanes.gpu, "bytes")[work.row]
        # Old ROCm records no size; what goes up may be a batch.
        small = (work.kind == _DOWN) | ((work.kind == _UP) & (size > 0))
        copy = np.flatnonzero(small & (size <= MAX_BYTES) & (work.call >= 0))
        copy = copy[~among(copy, np.sort(trips.down))]
        wait = syncs.row[~syncs.profiler]
        copying, waiting = called.of(work.call[copy]), called.of(wait)
        op = distinct(copying[among(copying, distinct(waiting)) & (copying >= 0)])
        inside = among(copying, op), among(waiting, op)
        op = op[np.argsort(nesting.start_ns[op], kind="stable")]
        upwards = ~among(op, distinct(copying[work.kind[copy] == _DOWN]))
        return cls(op, upwards, _by_scaler(trace, nesting, op), copy[inside[0]], wait[inside[1]])


def _by_scaler(trace: Trace, nesting: Nesting, op: Rows) -> Mask:
    named = (matching(trace.lanes.cpu, "name", name.__eq__) for name in (_CHECKED, _UPDATED))
    checked, updated = (np.sort(nesting.start_ns[rows]) for rows in named)
    start = nesting.start_ns[op]
    items = np.flatnonzero(matching(trace.lanes.cpu, "name", "aten::item".__eq__)[op])
    last = np.searchsorted(start[items], updated) - 1
    asked = np.zeros(len(op), bool)
    asked[items[last[last >= 0]]] = True
    return np.asarray(asked & (np.searchsorted(checked, start) > np.searchsorted(updated, start)))
