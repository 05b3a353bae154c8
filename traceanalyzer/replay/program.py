"""The trace as a program: CPU segments in order, calls that launch work, work in order per stream, and waits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, ints, matching
from traceanalyzer.replay.sample import sample
from traceanalyzer.replay.slowdown import Slowed
from traceanalyzer.replay.steady_work import SteadyWork
from traceanalyzer.replay.timeline import Timeline, threads
from traceanalyzer.replay.waits import Waits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import ALLOCATOR, BUFFER_OVERHEAD, COMMUNICATION, STREAM_WAIT
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_COVERED = 0.9  # share of a buffer request that a segment holds, to have been stalled by it; REPLAY prototype
_LAUNCH_STALL_NS, _LAUNCH_QUEUE = (
    60_000,
    900,
)  # a launch that took so long with so much outstanding hit the full queue
KERNEL_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel")
_GAP_NS = 2_300.0  # from op to op in a Python loop, where the trace has none; H200 host, torch 2.11
_LONG_GAP_NS = 20_000.0  # a gap that holds more than the way from op to op


@dataclass(frozen=True, slots=True)
class Program:
    """The sampled steps as one block that repeats.

    Attributes:
        steps: int64, positions in `Steps` of the sampled steps, in order.
        of_steps: how many steps the trace has.
        timeline: CPU segments; arrays of shape (segments,) follow.
        cpu_ns: float64 (segments,), as traced, less the profiler's own and what a call spent waiting.
        call: int64 (segments,), row of `trace.cpu` of the call, -1 for none.
        kind: int64 (segments,), equal for equal names of the innermost row.
        top_op: int64 (segments,), row of the outermost op around, -1 for none.
        gap: bool (segments,), neither op nor call: the Python between.
        slowed: what of the segments the profiler slows.
        usual_gap_ns: median of the gaps.
        work: the device's side.
        launch: int64 (work,), segment in which the launch begins.
        waits: where the CPU waits for the device.
        row_start_ns, row_end_ns: int64 (rows of `trace.cpu`,).
    """

    steps: Rows
    of_steps: int
    timeline: Timeline
    cpu_ns: Floats
    call: Rows
    kind: Rows
    top_op: Rows
    gap: Mask
    slowed: Slowed
    usual_gap_ns: float
    work: SteadyWork
    launch: Rows
    waits: Waits
    row_start_ns: Rows
    row_end_ns: Rows

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, nesting: Nesting, steps: Steps, syncs: SyncCalls) -> Self:
        """Of the representative steps; the rest is left out, so that the cost is bounded.

        Raises:
            Unavailable: without CPU rows, or where no launch of the steps' work is in the trace.
        """
        linked = work.call >= 0
        if not linked.any():
            raise Unavailable("no work is linked to its launch: the program cannot be replayed")
        is_call = matching(trace.cpu, "category", CALL_CATEGORIES.__contains__)
        is_op = (trace.cpu["category"] == "cpu_op").to_numpy()
        chosen = sample(steps, nesting)
        begins, ends = steps.cpu_start_ns[chosen], steps.cpu_end_ns[chosen]
        lanes = threads(nesting, steps, is_op, work.call[linked], int(begins[0]), int(ends[-1]))
        timeline = Timeline.of(nesting, lanes, begins, ends)
        stream_wait = matching(trace.cpu, "name", lambda name: bool(STREAM_WAIT.search(name))) & is_call
        device = SteadyWork.of(
            work,
            codes(trace.gpu, "category")[work.row],
            matching(trace.gpu, "name", lambda name: bool(COMMUNICATION.search(name)))[work.row],
            linked & _inside(work.call_start_ns, begins, ends),
            np.sort(nesting.start_ns[np.flatnonzero(stream_wait)]),
        )
        if len(device.entry) == 0:
            raise Unavailable("no launch lies within the steps: the program cannot be replayed")
        launch = timeline.at(work.call_start_ns[device.entry])
        waits = Waits.of(trace, nesting, syncs, work, device, timeline, is_call)
        row = timeline.row
        call = np.where(pick(is_call.astype(np.int64), row, 0) > 0, row, -1)
        cpu = _own_cpu(trace, nesting, work, device, timeline, waits)
        gap = (pick(nesting.op, row) < 0) & (call < 0)
        allocator = matching(trace.cpu, "name", lambda name: bool(ALLOCATOR.search(name))) & is_call
        steady = pick(allocator.astype(np.int64), row, 0) > 0
        between = cpu[gap & (cpu > 0) & (cpu < _LONG_GAP_NS)]
        return cls(
            chosen,
            len(steps),
            timeline,
            cpu,
            call,
            pick(codes(trace.cpu, "name"), row),
            nesting.top_op(row),
            gap,
            Slowed.of(
                trace,
                cpu,
                gap,
                call >= 0,
                _launches(trace, call, cpu),
                steady,
                _python_calls(trace, timeline),
            ),
            float(np.median(between)) if len(between) else _GAP_NS,
            device,
            launch,
            waits,
            nesting.start_ns,
            nesting.end_ns,
        )


def _inside(at: Rows, begins: Rows, ends: Rows) -> Mask:
    step = np.searchsorted(begins, at, side="right") - 1
    return np.asarray((step >= 0) & (at < pick(ends, step)))


def _launches(trace: Trace, call: Rows, cpu: Floats) -> Mask:
    kernel = matching(trace.cpu, "name", lambda name: bool(KERNEL_LAUNCH.search(name)))
    return (pick(kernel.astype(np.int64), call, 0) > 0) & (cpu > 0)


def _python_calls(trace: Trace, timeline: Timeline) -> Floats:
    """Python calls recorded within each segment; every call has two edges."""
    if not trace.meta.capabilities.get("stacks"):
        return np.zeros(len(timeline.row))
    start = ints(trace.python, "start_ns")
    edges = np.sort(np.concatenate((start, start + ints(trace.python, "dur_ns"))))
    return (np.searchsorted(edges, timeline.end_ns) - np.searchsorted(edges, timeline.start_ns)) / 2


def _own_cpu(
    trace: Trace, nesting: Nesting, work: DeviceWork, device: SteadyWork, timeline: Timeline, waits: Waits
) -> Floats:
    """Durations of the segments, less the profiler's buffers, waits, and launches into a full queue."""
    cpu = (timeline.end_ns - timeline.start_ns).astype(np.float64)
    buffer = np.flatnonzero(matching(trace.cpu, "name", lambda name: bool(BUFFER_OVERHEAD.search(name))))
    start, end = nesting.start_ns[buffer], nesting.end_ns[buffer]
    at = timeline.at((start + end) // 2)
    over = np.minimum(end, timeline.end_ns[at]) - np.maximum(start, timeline.start_ns[at])
    stalled = over > _COVERED * (end - start)
    np.subtract.at(cpu, at[stalled], over[stalled])
    segment = timeline.at(work.call_start_ns[device.entry])
    full = (work.outstanding[device.entry] > _LAUNCH_QUEUE) & (cpu[segment] > _LAUNCH_STALL_NS)
    full &= work.call[device.entry] == timeline.row[segment]
    if full.any():
        cpu[segment[full]] = np.median(cpu[segment[~full]]) if not full.all() else _LAUNCH_STALL_NS
    return waits.less_waiting(np.maximum(cpu, 0.0))
