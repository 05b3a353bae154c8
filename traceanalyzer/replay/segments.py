"""What each segment of the CPU timeline is and costs: its own time, without waiting and buffer requests."""

import re
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, median, pick, rank_within
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace, codes_at, ints, matching
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.slowdown import Slowed
from traceanalyzer.replay.steady_work import SteadyWork
from traceanalyzer.replay.waits import Waits
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import ALLOCATOR, BUFFER_OVERHEAD, STREAM_ORDERED
from traceanalyzer.timeline.nesting import Nesting

_KERNEL_LAUNCH = regex(r"Launch(Cooperative)?Kernel|KernelLaunch")
_CLOCK = regex(r"built-in function (perf_counter|monotonic|process_time|time)(_ns)?>")
_NODE = regex(r"^autograd::engine::evaluate_function")
_COVERED = 0.9  # share of a buffer request that a segment holds, to have been stalled by it; nearly all
_LAUNCH_STALL_NS = 60_000  # a launch that took so long,
_LAUNCH_QUEUE = 900  # with so much outstanding, met the full queue; H200, driver 580
_WAITED_NS = 1_000_000  # in a collective: a CPU that is busy for less beside it may be so by chance; chosen
# After the end of a collective the CPU that waited for it goes on; 5 to 60 us, V100 and H200.
_WOKEN_NS = 100_000
_GAP_NS = 2_300.0  # from op to op in a Python loop, where the trace has none; H200 host, torch 2.11
_PARTS = 16  # of a row that are told apart; what comes later in it counts as the last
_LONG_GAP_NS = 20_000.0  # a gap that holds more than the way from op to op


@dataclass(frozen=True, slots=True)
class Segments:
    """Arrays of shape (segments,), parallel to the timeline's.

    Attributes:
        cpu_ns: float64, as traced, less the profiler's own and what a call spent waiting.
        call: int64, row of `trace.cpu` of the call, -1 for none.
        top_op: int64, row of the outermost op around, -1 for none.
        kind: int64, equal for the same part of rows of the same name: before its first child, and so on.
        gap: bool, neither op nor call: the Python between.
        driver: bool, calls that ask the driver for memory or give it back: no graph and no compiler saves them.
        slowed: what of the segments the profiler slows.
        usual_gap_ns: median of the gaps that are the way from op to op.
        node: bool, of a node of autograd's graph as it runs backward.
    """

    cpu_ns: Floats
    call: Rows
    top_op: Rows
    kind: Rows
    gap: Mask
    driver: Mask
    slowed: Slowed
    usual_gap_ns: float
    node: Mask

    @classmethod
    def of(
        cls,
        trace: Trace,
        nesting: Nesting,
        work: DeviceWork,
        device: SteadyWork,
        timeline: CpuTimeline,
        waits: Waits,
        waiting: CollectiveWaits | None = None,
    ) -> Self:
        """Of the timeline's segments; without what they wait for other ranks, where that is known."""
        row = timeline.row
        is_call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        call = np.where(_of_rows(is_call, row), row, -1)
        gap = (pick(nesting.op, row) < 0) & (call < 0)
        cpu = np.maximum(timeline.end_ns - timeline.start_ns - stalled_ns(trace, nesting, timeline), 0.0)
        cpu = waits.less_waiting(without_queueing(cpu, work, device, timeline))
        cpu = cpu if waiting is None else without_waits(cpu, work, timeline, waiting)
        launch, steady = _named(trace, call, _KERNEL_LAUNCH), _named(trace, call, ALLOCATOR)
        python = python_call_counts(trace, timeline)
        top = nesting.top_op(row)
        calling = nesting.top_op(np.flatnonzero(is_call))
        host = ~gap & (call < 0) & ~np.isin(top, calling[calling >= 0])
        is_communication = bool(device.communication.any())
        slowed = Slowed.of(trace, cpu, gap, call >= 0, launch & (cpu > 0), host, steady, python, is_communication)
        between = cpu[gap & (cpu > 0) & (cpu < _LONG_GAP_NS)]
        usual = median(between) if len(between) else _GAP_NS
        kind = codes_at(trace.lanes.cpu, "name", row) * _PARTS + np.minimum(rank_within(row), _PARTS - 1)
        driver = steady & ~_named(trace, call, STREAM_ORDERED)
        node = _of_rows(matching(trace.lanes.cpu, "name", _NODE.search), top)
        return cls(cpu, call, top, kind, gap, driver, slowed, usual, node)

    def slower(self, times: float) -> Self:
        """The same on a host that takes so many times as long for everything, as the profiler does."""
        return replace(self, cpu_ns=self.cpu_ns * times, slowed=self.slowed.slower(times))


def _of_rows(marked: Mask, rows: Rows) -> Mask:
    """Whether each row is marked; -1 is not."""
    return np.append(marked, False)[rows]


def _named(trace: Trace, call: Rows, pattern: re.Pattern[str]) -> Mask:
    return _of_rows(matching(trace.lanes.cpu, "name", pattern.search), call)


def stalled_ns(trace: Trace, nesting: Nesting, timeline: CpuTimeline) -> Floats:
    """How long a buffer request or flush stalled each segment: one that covers most of it; float64 (segments,)."""
    buffer = np.flatnonzero(matching(trace.lanes.cpu, "name", BUFFER_OVERHEAD.search))
    start, end = nesting.start_ns[buffer], nesting.end_ns[buffer]
    at = timeline.at((start + end) // 2)
    over = np.minimum(end, timeline.end_ns[at]) - np.maximum(start, timeline.start_ns[at])
    stalled = over > _COVERED * (end - start)
    sums = np.zeros(len(timeline.row))
    np.add.at(sums, at[stalled], over[stalled])
    return sums


def without_queueing(cpu: Floats, work: DeviceWork, device: SteadyWork, timeline: CpuTimeline) -> Floats:
    """Launches into a full queue at a typical cost: the replay has a queue of its own."""
    segment = timeline.at(work.call_start_ns[device.entry])
    full = (work.outstanding[device.entry] > _LAUNCH_QUEUE) & (cpu[segment] > _LAUNCH_STALL_NS)
    full &= work.call[device.entry] == timeline.row[segment]
    if full.any():
        cpu[segment[full]] = _LAUNCH_STALL_NS if full.all() else median(cpu[segment[~full]])
    return cpu


def without_waits(cpu: Floats, work: DeviceWork, timeline: CpuTimeline, waiting: CollectiveWaits) -> Floats:
    """Without the waiting for other ranks, where a segment ends when the collective does: some waits have no call."""
    long = waiting.waiting_ns >= _WAITED_NS
    entry, waited = waiting.entry[long], waiting.waiting_ns[long]
    end = work.end_ns[entry]
    at = timeline.at(end)
    woken = timeline.end_ns[at] - end
    begin = np.maximum(work.start_ns[entry], timeline.start_ns[at])
    shared = np.maximum(work.start_ns[entry] + waited - begin, 0)
    blocked = (woken >= 0) & (woken <= _WOKEN_NS) & (end >= timeline.start_ns[at]) & (shared > 0)
    np.subtract.at(cpu, at[blocked], shared[blocked])
    return np.maximum(cpu, 0.0)


def python_call_counts(trace: Trace, timeline: CpuTimeline) -> Floats:
    """Python calls recorded within each segment; none where most look at the clock: such loops last as long as ever."""
    if not trace.meta.capabilities.get("stacks"):
        return np.zeros(len(timeline.row))
    clock = matching(trace.lanes.python, "name", lambda name: bool(_CLOCK.search(name)))
    start = ints(trace.lanes.python, "start_ns")
    end = start + ints(trace.lanes.python, "dur_ns")
    calls = _edges(start, end, timeline) / 2
    return np.where(_edges(start[clock], end[clock], timeline) > calls, 0.0, calls)


def _edges(start: Rows, end: Rows, timeline: CpuTimeline) -> Rows:
    """How many of the calls' starts and ends lie within each segment."""
    bounds = timeline.start_ns[0], timeline.end_ns[-1]
    count = np.zeros(len(timeline.row), np.int64)
    for edges in (start, end):
        edges = np.sort(edges[np.flatnonzero((edges >= bounds[0]) & (edges <= bounds[1]))])
        count += np.searchsorted(edges, timeline.end_ns) - np.searchsorted(edges, timeline.start_ns)
    return count
