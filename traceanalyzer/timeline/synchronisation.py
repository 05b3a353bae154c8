"""Calls in which the CPU waits for the device, and work that waits for other work though no call makes it wait."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick, previous_equal
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.device_work import DeviceWork, find, pageable
from traceanalyzer.timeline.names import COPY_CALL, DEVICE_SYNC, STREAM_WAIT, SYNCHRONISING
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
    """Copy calls that end after their copy does, or feed a pageable one for most of the time until its end."""
    blocking = np.zeros(len(trace.lanes.cpu), bool)
    rows = np.flatnonzero(calls & matching(trace.lanes.cpu, "name", COPY_CALL.search))
    copies = np.flatnonzero(matching(trace.lanes.gpu, "category", "gpu_memcpy".__eq__))
    position = find(ints(trace.lanes.gpu, "correlation")[copies], ints(trace.lanes.cpu, "correlation")[rows])
    rows, copies = rows[position >= 0], copies[position[position >= 0]]
    start = ints(trace.lanes.gpu, "start_ns")[copies]
    end = start + ints(trace.lanes.gpu, "dur_ns")[copies]
    begun, returned = nesting.start_ns[rows], nesting.end_ns[rows]
    fed = pageable(trace)[copies] & (returned > start) & (returned - begun >= _MOST * (end - begun))
    # An asynchronous call for a copy on the device never waits, even if it is slow and the copy is short.
    never = matching(trace.lanes.gpu, "name", lambda name: "DtoD" in name)[copies]
    never &= matching(trace.lanes.cpu, "name", lambda name: name.endswith("Async"))[rows]
    blocking[rows] = ((end <= returned) | fed) & ~never
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


_WOKEN_NS = 20_000  # after the end of what it waited for work has begun: 1 to 12 us; DDP on 2 H200
_SLACK_NS = 1_000  # of an end: clock rounding


@dataclass(frozen=True, slots=True)
class HiddenWaits:
    """Work that waits for another stream though no recorded call makes it wait.

    Streams that share a hardware queue run their work in the order of the launches: with CUDA_DEVICE_MAX_CONNECTIONS=1,
    or with more streams than queues. Then queued work begins when earlier work of another stream ends.

    Attributes:
        after: int64 (work,), entry of `DeviceWork` of another stream whose end each waits for; -1 for none.
    """

    after: Rows

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork) -> Self:
        """Of queued work that begins long after the end of the work before it on its stream."""
        after = np.full(len(work.row), -1, np.int64)
        issued = np.sort(nesting.start_ns[matching(trace.lanes.cpu, "name", STREAM_WAIT.search)])
        for device in distinct(work.device).tolist():
            entry = np.flatnonzero((work.device == device) & (work.call >= 0))
            if len(distinct(work.stream[entry])) < 2:
                continue
            before = pick(entry, previous_equal(work.stream[entry]))
            ended = pick(work.end_ns, before, 0)
            waits = (before >= 0) & (work.start_ns[entry] - ended > _WOKEN_NS)
            waits &= (work.call_end_ns[entry] <= ended) & ~work.shared[entry]
            since = np.searchsorted(issued, pick(work.call_start_ns, before, 0))
            waits &= np.searchsorted(issued, work.call_start_ns[entry]) == since  # no call made it wait
            by_end = entry[np.argsort(work.end_ns[entry], kind="stable")]
            place = np.searchsorted(work.end_ns[by_end], work.start_ns[entry] + _SLACK_NS, side="right") - 1
            awaited = pick(by_end, place)
            waits &= (awaited >= 0) & (work.start_ns[entry] - pick(work.end_ns, awaited, 0) <= _WOKEN_NS)
            waits &= pick(work.stream, awaited) != work.stream[entry]
            waits &= pick(work.call_start_ns, awaited, 0) < work.call_start_ns[entry]
            after[entry[waits]] = awaited[waits]
        return cls(after)
