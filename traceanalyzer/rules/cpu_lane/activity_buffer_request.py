"""CUPTI asking for, and flushing, the buffers that it records into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer import intervals
from traceanalyzer.finding import Confidence, Hit, Span
from traceanalyzer.indexes.busy import Busy
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.overheads import Overheads
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, event_ids, ints, text


@dataclass(frozen=True, slots=True)
class Limits:
    min_stall_ns: int = (
        20_000  # a flush takes 80 us and a request 1.5 to 3 ms (H200, B200); a launch call 4 to 10 us
    )


_ADVICE = "Nothing to fix in your code. Warm up longer (schedule(wait=1, warmup=3)) or record fewer steps to keep it out."


@rule(limits=Limits, since="0.1")
def activity_buffer_request(
    overheads: Overheads,
    busy: Busy,
    work: Launches,
    nesting: Nesting,
    steps: Steps,
    trace: Trace,
    limits: Limits,
) -> Iterator[Hit]:
    """The profiler asked for a buffer in the middle of an op.

    What it looks for: `Activity Buffer Request` and `Buffer Flush` rows of CUPTI, and the op or call during which
    the thread stood still. A row that ran beside the thread, on CUPTI's own, stalls nothing and costs nothing.
    Why it costs: the op that it hits seems to take milliseconds, and the device runs dry meanwhile. It is the
    profiler's time: without the profiler it is not spent, so the finding is never more than `info`.
    Bad: schedule(wait=0, warmup=0), or a window of many thousand launches. Good: a warm-up that fills the first buffer.
    How sure: the rows are the profiler's own record. Which op it hit follows from nothing starting or ending on
    that thread during most of the row while the op was open.
    When it is wrong: CUPTI of CUDA before 12.7 writes no such rows; then the stall looks like a slow launch.
    Source: kineto issue 1020; measured on traces of an H200 with torch 2.11.
    """
    for i in np.flatnonzero(overheads.buffer).tolist():
        hit = int(overheads.hit[i])
        if hit < 0 or overheads.stall_end_ns[i] - overheads.stall_start_ns[i] < limits.min_stall_ns:
            yield _beside(i, overheads, nesting, trace)
            continue
        for device in busy.devices:
            yield _stalled(i, device, overheads, busy, work, nesting, steps, trace)


def _stalled(
    i: int,
    device: int,
    overheads: Overheads,
    busy: Busy,
    work: Launches,
    nesting: Nesting,
    steps: Steps,
    trace: Trace,
) -> Hit:
    """The stall of one thread, and what it cost one device: the time it was idle meanwhile."""
    row, hit = int(overheads.row[i]), int(overheads.hit[i])
    kind = text(trace.cpu, "name", row) or ""
    start, end = int(overheads.stall_start_ns[i]), int(overheads.stall_end_ns[i])
    later = np.flatnonzero((work.device == device) & (work.call_end_ns >= end))
    idle = busy.gaps(device, start, end)
    op = int(nesting.op[hit]) if nesting.op[hit] >= 0 else hit
    at = int(steps.at_cpu(np.array([start]))[0])
    first = (
        (trace.gpu, int(work.row[later[np.argmin(work.start_ns[later])]])) if len(later) else (trace.gpu, -1)
    )
    return Hit(
        span=Span(
            start_ns=int(nesting.start_ns[row]),
            end_ns=int(nesting.end_ns[row]),
            device=device,
            thread=int(ints(trace.cpu, "tid")[hit]),
            step=int(steps.number[at]) if 0 <= at < len(steps) else None,
        ),
        events=event_ids((trace.cpu, row), (trace.cpu, hit), (trace.cpu, op), first),
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
            "row_ns": int(nesting.end_ns[row] - nesting.start_ns[row]),
        },
        info=True,
    )


def _beside(i: int, overheads: Overheads, nesting: Nesting, trace: Trace) -> Hit:
    row = int(overheads.row[i])
    start, end = int(nesting.start_ns[row]), int(nesting.end_ns[row])
    return Hit(
        span=Span(start, end),
        events=event_ids((trace.cpu, row)),
        cost_ns=0,
        cause="beside",
        message="{kind} by the profiler, {times}: took {row} beside the threads that launch work and stalled none",
        advice=_ADVICE,
        confidence=Confidence.MEDIUM,
        evidence={"kind": text(trace.cpu, "name", row) or "", "row_ns": end - start},
        info=True,
    )
