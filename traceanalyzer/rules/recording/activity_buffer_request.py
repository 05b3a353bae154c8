"""CUPTI asking for, and flushing, the buffers that it records into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.finding import Confidence, Hit
from traceanalyzer.model.trace import Trace, event_ids, text
from traceanalyzer.rule.places import Places
from traceanalyzer.rule.registry import rule
from traceanalyzer.timeline.busy import Busy
from traceanalyzer.timeline.profiler_rows import ProfilerRows


@dataclass(frozen=True, slots=True)
class Limits:
    min_stall_ns: int = (
        20_000  # a flush takes 80 us and a request 1.5 to 3 ms (H200, B200); a launch call 4 to 10 us
    )


_ADVICE = (
    "Nothing to fix in your code. A longer warm-up, schedule(wait=1, warmup=3), or fewer steps keep it out."
)


@rule(limits=Limits, since="0.1")
def activity_buffer_request(
    overheads: ProfilerRows, busy: Busy, where: Places, trace: Trace, limits: Limits
) -> Iterator[Hit]:
    """The profiler asked for a buffer in the middle of an op.

    What it looks for: `Activity Buffer Request` and `Buffer Flush` rows of CUPTI, and the op or call during which
    the thread stood still. A row that ran beside the thread, on CUPTI's own, stalls nothing and costs nothing.
    Why it costs: the op that it hits seems to take milliseconds, and the device runs dry meanwhile. It is the
    profiler's time: without the profiler it is not spent, so the finding is never more than `info`.
    Bad: schedule(wait=0, warmup=0), or a window of many thousand launches. Good: a warm-up.
    How sure: the rows are the profiler's own record. Which op it hit follows from nothing starting or ending on
    that thread during most of the row while the op was open.
    When it is wrong: CUPTI of CUDA before 12.7 writes no such rows; then the stall looks like a slow launch.
    Source: kineto issue 1020; measured on traces of an H200 with torch 2.11.
    """
    for i in np.flatnonzero(overheads.buffer).tolist():
        stall = int(overheads.stall_end_ns[i] - overheads.stall_start_ns[i])
        if overheads.stalled[i] < 0 or stall < limits.min_stall_ns:
            yield _beside(int(overheads.row[i]), where, trace)
        else:
            yield from (_stalled(i, device, overheads, busy, where, trace) for device in busy.devices)


def _stalled(i: int, device: int, overheads: ProfilerRows, busy: Busy, where: Places, trace: Trace) -> Hit:
    """The stall of one thread, and what it cost one device: the time it was idle meanwhile."""
    row, hit = int(overheads.row[i]), int(overheads.stalled[i])
    start, end = int(overheads.stall_start_ns[i]), int(overheads.stall_end_ns[i])
    kind, idle = text(trace.cpu, "name", row) or "", busy.gaps(device, start, end)
    op = int(where.nesting.op[hit]) if where.nesting.op[hit] >= 0 else hit
    return Hit(
        span=replace(where.of_row(row, device), thread=int(where.tid[hit])),
        events=event_ids((trace.cpu, row), (trace.cpu, hit), (trace.cpu, op)),
        cost_ns=intervals.length(idle),
        cost_spans=tuple(zip(idle[0].tolist(), idle[1].tolist(), strict=True)),
        cause=kind.replace(" ", "-").lower(),
        message="{kind} by the profiler, {times}: {op} stood still for {stall}; the GPU was idle for {total} meanwhile",
        advice=_ADVICE,
        confidence=Confidence.HIGH,
        evidence={
            "kind": kind,
            "op": text(trace.cpu, "name", op) or "",
            "stalled": text(trace.cpu, "name", hit) or "",
            "stall_ns": end - start,
            "row_ns": int(where.nesting.end_ns[row] - where.nesting.start_ns[row]),
        },
        info=True,
    )


def _beside(row: int, where: Places, trace: Trace) -> Hit:
    """A row that ran on a thread of its own."""
    span = where.of_row(row)
    return Hit(
        span=span,
        events=event_ids((trace.cpu, row)),
        cost_ns=0,
        cause="beside",
        message="{kind} by the profiler, {times}: took {row} beside the threads that launch work and stalled none",
        advice=_ADVICE,
        confidence=Confidence.MEDIUM,
        evidence={"kind": text(trace.cpu, "name", row) or "", "row_ns": span.end_ns - span.start_ns},
        info=True,
    )
