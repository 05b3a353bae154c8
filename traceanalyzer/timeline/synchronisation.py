"""Calls in which the CPU waits for the device, and which of them are the profiler's own."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.device_work import find, pageable
from traceanalyzer.timeline.names import COPY_CALL, DEVICE_SYNC, SYNCHRONISING
from traceanalyzer.timeline.nesting import Nesting

_MOST = 0.5  # of the time from the call to the copy's end; chosen


@dataclass(frozen=True, slots=True)
class SyncCalls:
    """Calls in which the CPU waits for the device.

    Arrays of shape (calls,), ordered by end.

    Attributes:
        row: int64, row of `trace.cpu`.
        start_ns, end_ns: int64.
        thread: int64, thread as in `Nesting`.
        copy: bool, a copy call that returned only after its copy was done.
        whole_device: bool, it waits for all streams.
        profiler: bool, the profiler's own: it waits for the device when it starts and stops.
    """

    row: Rows
    start_ns: Rows
    end_ns: Rows
    thread: Rows
    copy: Mask
    whole_device: Mask
    profiler: Mask

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        calls = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        waits = calls & matching(trace.lanes.cpu, "name", SYNCHRONISING.search)
        copies = _blocking_copies(trace, nesting, calls)
        row = np.flatnonzero(waits | copies)
        name = Texts.column(trace.lanes.cpu, "name", row).ranks()
        row = row[np.lexsort((name, nesting.thread[row], nesting.start_ns[row], nesting.end_ns[row]))]
        whole = matching(trace.lanes.cpu, "name", DEVICE_SYNC.search)[row]
        columns = nesting.start_ns[row], nesting.end_ns[row], pick(nesting.thread, row), copies[row], whole
        return cls(row, *columns, profiler=_profilers_own(trace, nesting, row, whole))


def _blocking_copies(trace: Trace, nesting: Nesting, calls: Mask) -> Mask:
    """Copy calls that wait: they end after their copy does, or the copy is a pageable one, which the call itself
    feeds piece by piece, and most of the time until the copy's end was spent in the call.

    An asynchronous call for a copy on the device never waits, even if it is slow and the copy is short.
    """
    blocking = np.zeros(len(trace.lanes.cpu), bool)
    rows = np.flatnonzero(calls & matching(trace.lanes.cpu, "name", COPY_CALL.search))
    copies = np.flatnonzero(matching(trace.lanes.gpu, "category", "gpu_memcpy".__eq__))
    if len(rows) == 0 or len(copies) == 0:
        return blocking
    correlation = ints(trace.lanes.gpu, "correlation")[copies]
    starts = ints(trace.lanes.gpu, "start_ns")[copies]
    ends = starts + ints(trace.lanes.gpu, "dur_ns")[copies]
    unpinned = pageable(trace)[copies]
    on_device = matching(trace.lanes.gpu, "name", lambda name: "DtoD" in name)[copies]
    asynchronous = matching(trace.lanes.cpu, "name", lambda name: name.endswith("Async"))[rows]
    position = find(correlation, ints(trace.lanes.cpu, "correlation")[rows])
    begun, returned = nesting.start_ns[rows], nesting.end_ns[rows]
    fed = unpinned[position] & (returned > starts[position])
    fed &= returned - begun >= _MOST * (ends[position] - begun)
    never = on_device[position] & asynchronous
    blocking[rows] = (position >= 0) & ((ends[position] <= returned) | fed) & ~never
    return blocking


def _profilers_own(trace: Trace, nesting: Nesting, row: Rows, whole: Mask) -> Mask:
    """Whole-device waits outside any op or annotation, before the first op or mark or after the last."""
    inside = matching(trace.lanes.cpu, "category", ("cpu_op", "user_annotation").__contains__)
    inside |= matching(trace.lanes.cpu, "name", lambda name: "Launch" in name)
    inside &= nesting.thread >= 0
    starts = nesting.start_ns[inside if inside.any() else nesting.thread >= 0]
    if len(starts) == 0:
        return np.zeros(len(row), bool)
    outside = (nesting.end_ns[row] <= starts.min()) | (nesting.start_ns[row] >= starts.max())
    return np.asarray(whole & (nesting.parent[row] < 0) & outside)
