"""Where the CPU waits for the device, for which streams, and what the call costs beside the waiting."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, grouped, median, pick
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace, codes_at, matching
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.steady_work import LATE_NS, SteadyWork
from traceanalyzer.timeline.device_work import DeviceWork, find, pageable
from traceanalyzer.timeline.names import COPY_CALL
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

_SLACK_NS = 3_000  # work may be seen to end so long after the call that waited for it: clock rounding
_PAGEABLE_SLACK_NS = 30_000  # a pageable copy's call returns up to so long before its end
_MIN_PAGEABLE_NS, _MIN_COPY_NS = 20_000, 30_000  # copy calls that took less did not wait
_OWN_NS = 4_000.0  # a synchronisation that has nothing to wait for; H200 host
_MAX_TAIL_NS = 15_000.0  # from the awaited end to the call's return
# The same where no call of the trace waited; medians of 15 recordings 3.1 to 5.8 us, H200 host.
_TAIL_NS = 4_000.0
# A gap without any event that is shorter may end with the device's work by chance; chosen.
_UNRECORDED_NS = 1_000_000
# From the awaited end to the next event where the call is not recorded; 27 to 59 us, V100.
_WOKEN_NS = 100_000
# Of the long gaps of one place; all of them in waits for events, 4 % in a loader's decoding, V100.
_MOSTLY = 0.5
_FREES = regex(r"^(cuda|hip)(Free|FreeHost|HostAlloc|HostFree|HostMalloc)$")


@dataclass(frozen=True, slots=True)
class Waits:
    """Arrays of shape (waits,), in order.

    Attributes:
        row: int64, row of `trace.cpu` of the call; -1 where the recording has none.
        segment: int64, the call's segment that pays its own cost, `own_ns`.
        own_ns: float64, the call without its waiting.
        tail_ns: float64, from the end of what it waited for to its return.
        copy: int64, position of the work that the call itself launched, -1 for none.
        streams: bool (waits, streams), for which it waits, as far as work was launched before.
        last: int64, last segment of the call, after which it has waited.
    """

    row: Rows
    segment: Rows
    last: Rows
    own_ns: Floats
    tail_ns: Floats
    copy: Rows
    streams: Mask

    def less_waiting(self, cpu: Floats) -> Floats:
        """Durations of the segments where those of a waiting call are its own cost."""
        inner = np.zeros(len(cpu) + 1)
        np.add.at(inner, self.segment, 1)
        np.add.at(inner, self.last + 1, -1)
        cpu = np.where(np.cumsum(inner[:-1]) > 0, 0.0, cpu)
        cpu[self.segment] = self.own_ns
        return cpu

    @classmethod
    def of(
        cls,
        trace: Trace,
        nesting: Nesting,
        syncs: SyncCalls,
        work: DeviceWork,
        device: SteadyWork,
        timeline: CpuTimeline,
    ) -> Self:
        """Of synchronising calls, of copies that block, and of the allocator's calls that wait for the device.

        Older profilers do not record the call that waits for an event: its time is a gap that ends with the work.
        """
        order = LaunchOrder(work, device)
        is_call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        free = np.flatnonzero(is_call & matching(trace.lanes.cpu, "name", _FREES.match))
        explicit = rows_in_sample(nesting, timeline, syncs.row[~syncs.profiler & ~syncs.copy])
        copies = np.flatnonzero(is_call & matching(trace.lanes.cpu, "name", COPY_CALL.search))
        unpinned = pageable(trace)[work.row[device.entry]]
        gap = (pick(nesting.op, timeline.row) < 0) & ~np.append(is_call, False)[timeline.row]
        parts = [
            explicit_waits(explicit, nesting, order, np.isin(explicit, syncs.row[syncs.whole_device])),
            waits_of_frees(rows_in_sample(nesting, timeline, free), nesting, order),
            waits_of_copies(
                rows_in_sample(nesting, timeline, copies), nesting, order, work.call[device.entry], unpinned
            ),
            unrecorded_waits(trace, timeline, gap, work, device),
        ]
        row, start, end, *others = (np.concatenate([getattr(part, name) for part in parts]) for name in _Part.__slots__)
        segment = timeline.at(start)
        last = np.maximum(timeline.at(end - 1), segment)
        by_segment = np.lexsort((row, segment))
        return cls(*(column[by_segment] for column in (row, segment, last, *others)))


@dataclass(frozen=True, slots=True)
class _Part:
    row: Rows
    start_ns: Rows
    end_ns: Rows
    own_ns: Floats
    tail_ns: Floats
    copy: Rows
    streams: Mask

    def where(self, kept: Mask) -> Self:
        return type(self)(*(getattr(self, name)[kept] for name in self.__slots__))


class LaunchOrder:
    """Newest end per stream of the work that was launched before an instant."""

    def __init__(self, work: DeviceWork, device: SteadyWork) -> None:
        self.launched = [work.call_start_ns[device.entry[device.stream == s]] for s in range(device.streams)]
        self.ends = [work.end_ns[device.entry[device.stream == s]] for s in range(device.streams)]
        self.start, self.end = work.start_ns[device.entry], work.end_ns[device.entry]
        self.stream = device.stream

    def newest(self, at: Rows) -> Rows:
        """int64 (instants, streams): end of the newest work, -1 where there is none."""
        found = [pick(end, np.searchsorted(begun, at) - 1) for begun, end in zip(self.launched, self.ends, strict=True)]
        return np.asarray(np.stack(found, axis=1))


def rows_in_sample(nesting: Nesting, timeline: CpuTimeline, rows: Rows) -> Rows:
    """Those within the sampled steps, on the program's threads."""
    start = nesting.start_ns[rows]
    inside = (start >= timeline.start_ns[0]) & (start < timeline.end_ns[timeline.at(start)])
    return np.asarray(rows[inside & np.isin(nesting.thread[rows], timeline.threads)], np.int64)


def explicit_waits(rows: Rows, nesting: Nesting, order: LaunchOrder, whole: Mask) -> _Part:
    """A stream's or an event's synchronisation waits for the streams that had come so far when it returned.

    The profiler makes the CPU late, so that work may have ended when the call begins. Without it the call waits, and
    returns as late after the work as those that did wait in the trace.
    """
    start, end = nesting.start_ns[rows], nesting.end_ns[rows]
    newest = order.newest(start)
    streams = whole[:, None] | (newest >= 0) & (newest <= end[:, None] + _SLACK_NS)
    waited_for = np.where(streams, newest, -1).max(axis=1, initial=-1)
    tail, waited = np.clip(end - waited_for, 0, _MAX_TAIL_NS), waited_for > start
    tail = np.where(waited, tail, median(tail[waited]) if waited.any() else _TAIL_NS)
    none = np.full(len(rows), -1, np.int64)
    part = _Part(rows, start, end, np.minimum(end - start, _OWN_NS), tail, none, streams)
    return part.where(np.any(streams, axis=1))


def waits_of_frees(rows: Rows, nesting: Nesting, order: LaunchOrder) -> _Part:
    """Freeing waits for the whole device, if work was pending and had ended when it returned; its own work follows."""
    start, end = nesting.start_ns[rows], nesting.end_ns[rows]
    newest = order.newest(start)
    waited_for = newest.max(axis=1, initial=-1)
    waited = (waited_for > start) & (waited_for <= end)
    tail = np.where(waited, end - waited_for, 0.0)
    none = np.full(len(rows), -1, np.int64)
    part = _Part(rows, start, end, np.zeros(len(rows)), tail, none, newest >= 0)
    return part.where(waited)


def waits_of_copies(rows: Rows, nesting: Nesting, order: LaunchOrder, call: Rows, pageable: Mask) -> _Part:
    """A copy's call that waits for its own copy.

    What it takes long after that, as to stage pageable memory or to wait for a lock of the driver, is the program's.
    """
    own = find(call, rows)
    rows, own = rows[own >= 0], own[own >= 0]
    start, end = nesting.start_ns[rows], nesting.end_ns[rows]
    done = order.end[own]
    waited = pageable[own] & (done <= end + _PAGEABLE_SLACK_NS) & (end - start > _MIN_PAGEABLE_NS)
    waited |= (end - start > _MIN_COPY_NS) & (done <= end)
    tail = np.where(end - done > LATE_NS, end - done, np.clip(end - done, 0, _MAX_TAIL_NS))
    streams = np.arange(len(order.ends)) == order.stream[own][:, None]
    return _Part(rows, start, end, np.minimum(end - start, _OWN_NS), tail, own, streams).where(waited)


def unrecorded_waits(trace: Trace, timeline: CpuTimeline, gap: Mask, work: DeviceWork, device: SteadyWork) -> _Part:
    """Most long gaps of a place that end just after work launched before, twice or more after kernels of one name."""
    at = np.flatnonzero(gap & (timeline.end_ns - timeline.start_ns >= _UNRECORDED_NS))
    start, end = timeline.start_ns[at], timeline.end_ns[at]
    by_end = np.argsort(work.end_ns, kind="stable")
    waited_for = pick(by_end, np.searchsorted(work.end_ns[by_end], end, side="right") - 1)
    launched = (waited_for >= 0) & (work.call[waited_for] >= 0) & (work.call_start_ns[waited_for] < start)
    tail = end - work.end_ns[waited_for]
    waited = launched & (tail <= _WOKEN_NS)
    code = codes_at(trace.lanes.gpu, "name", work.row[waited_for])
    waited &= np.bincount(code[waited], minlength=int(code.max(initial=0)) + 1)[code] > 1
    place, first = grouped([codes_at(trace.lanes.cpu, "name", timeline.row[at])])
    every, found = np.bincount(place), np.bincount(place[waited], minlength=len(first))
    waited &= (found >= _MOSTLY * every)[place]
    kind, _ = grouped([work.device, work.stream])
    stream_of = np.full(int(kind.max(initial=0)) + 1, -1, np.int64)
    stream_of[kind[device.entry]] = device.stream
    stream = stream_of[kind[waited_for]]
    none = np.full(len(at), -1, np.int64)
    streams = np.arange(device.streams) == stream[:, None]
    own = np.full(len(at), _OWN_NS)
    part = _Part(none, start, end, own, np.minimum(tail, _MAX_TAIL_NS), none, streams)
    return part.where(waited & (stream >= 0))
