"""How far the GPU lane lies behind the CPU lane, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer import intervals
from traceanalyzer.finding import Confidence, Hit, Span
from traceanalyzer.indexes.activity import Activity
from traceanalyzer.indexes.busy import Busy
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.overheads import Overheads
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, event_ids, ints, text


@dataclass(frozen=True, slots=True)
class Limits:
    min_offset_ns: int = 100_000  # usual offsets onto an idle device are 2 to 26 us from V100 to MI300
    min_excess: float = 5.0  # times the trace's own median offset onto an idle device
    max_early: float = (
        0.01  # share of work that may start before its launch; none does in 37 traces looked at
    )


@rule(limits=Limits, since="0.1")
def lane_offset(
    work: Launches,
    overheads: Overheads,
    activity: Activity,
    busy: Busy,
    nesting: Nesting,
    steps: Steps,
    trace: Trace,
    limits: Limits,
) -> Iterator[Hit]:
    """The GPU lane starts long after the CPU lane.

    What it looks for: the time from an op's start to the start of its first work on an idle device, where it is
    far above the trace's usual, told apart by cause: the profiler's buffer request, first use (modules and
    functions being loaded), or clocks that disagree (work that starts before its launch).
    Why it costs: first use is paid once per process; a buffer request only under the profiler. Bad clocks cost
    nothing, but make every comparison of the two lanes doubtful.
    Bad: recording without warm-up. Good: schedule(wait=1, warmup=3).
    How sure: each cause has its own rows in the trace. An offset because the CPU is ahead of a busy GPU is
    queueing, is how it should be, and is not reported.
    When it is wrong: CUDA before 12.4 writes no loading rows, so first use is not seen there.
    Source: kineto issues 1020 and 1380; measured on traces of an H200 with torch 2.11.
    """
    yield from _clock_error(work, trace, limits)
    context = (busy, work, nesting, steps, trace)
    for i in np.flatnonzero(overheads.hit >= 0).tolist():
        yield from _buffer_request(i, overheads, limits, context)
    loading = activity.rows["module_loading"]
    loads = intervals.union(nesting.start_ns[loading], nesting.end_ns[loading])
    offset, first = _offsets(work, nesting)
    fresh = first[work.outstanding[first] == 0]
    loaded = intervals.covered(loads, work.start_ns[fresh] - offset[fresh], work.start_ns[fresh])
    usual = int(np.median(offset[fresh[loaded == 0]])) if (loaded == 0).any() else 0
    least = max(limits.min_offset_ns, int(limits.min_excess * usual))
    for i in fresh[(loaded > 0) & (offset[fresh] >= least)].tolist():
        start, end = int(work.start_ns[i] - offset[i]), int(work.start_ns[i])
        rows = loading[(nesting.start_ns[loading] < end) & (nesting.end_ns[loading] > start)]
        yield _hit("first-use", i, int(work.op[i]), start, rows, usual, context)


def _buffer_request(i: int, overheads: Overheads, limits: Limits, context: _Context) -> Iterator[Hit]:
    """The offset from the op that the profiler stalled to the work that was launched next, on each device."""
    busy, work, nesting, _, _ = context
    hit = int(overheads.hit[i])
    op = int(nesting.op[hit]) if nesting.op[hit] >= 0 else hit
    start, stall = int(nesting.start_ns[op]), int(overheads.stall_end_ns[i] - overheads.stall_start_ns[i])
    for device in busy.devices:
        later = np.flatnonzero((work.device == device) & (work.call_start_ns >= overheads.stall_start_ns[i]))
        if len(later) == 0:
            continue
        following = int(later[0])
        offset = int(work.start_ns[following]) - start
        idle = intervals.length(busy.gaps(device, start, int(work.start_ns[following]))) if offset > 0 else 0
        if offset >= limits.min_offset_ns and stall >= _MOST * offset and idle >= _MOST * offset:
            rows = overheads.row[i : i + 1]
            yield _hit("buffer-request", following, op, start, rows, int(np.median(_usual(work))), context)


_Context = tuple[Busy, Launches, Nesting, Steps, Trace]
_MOST = 0.5  # share of the offset that the cause must cover, and during which the device must be idle


def _usual(work: Launches) -> NDArray[np.int64]:
    """Delays from launch to start onto an idle device."""
    delays = work.delay_ns[work.outstanding == 0]
    return delays if len(delays) else np.zeros(1, np.int64)


_TEXTS = {
    "buffer-request": (
        "the GPU lane lies {offset} behind {op} (usual: {usual}): the profiler asked for a buffer inside it",
        "Nothing to fix in your code: warm up before recording, schedule(wait=1, warmup=3).",
    ),
    "first-use": (
        "the GPU lane lies {offset} behind {op} (usual: {usual}): kernels were loaded for the first time inside it",
        "Warm up before measuring. If start-up matters itself, CUDA_MODULE_LOADING=EAGER moves it to the start.",
    ),
}


def _offsets(work: Launches, nesting: Nesting) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(work.start - op.start per work, the first work of each outermost op)."""
    top = np.where(work.call >= 0, nesting.top_op[work.call], -1)
    offset = np.where(top >= 0, work.start_ns - nesting.start_ns[top], 0)
    _, first = np.unique(top, return_index=True)
    return offset, first[top[first] >= 0]


def _hit(
    cause: str, i: int, op: int, start: int, rows: NDArray[np.int64], usual: int, context: _Context
) -> Hit:
    """The offset from `start`, where `op` began, to the start of work `i`; `rows` of the CPU lane are the cause."""
    busy, work, nesting, steps, trace = context
    call = int(work.call[i])
    idle = busy.gaps(int(work.device[i]), start, int(work.start_ns[i]))
    at = int(steps.at_cpu(np.array([start]))[0])
    return Hit(
        span=Span(
            start_ns=start,
            end_ns=int(work.start_ns[i]),
            device=int(work.device[i]),
            stream=int(work.stream[i]),
            thread=int(ints(trace.cpu, "tid")[call]),
            step=int(steps.number[at]) if 0 <= at < len(steps) else None,
        ),
        events=event_ids(
            (trace.cpu, op),
            *((trace.cpu, int(r)) for r in rows),
            (trace.cpu, call),
            (trace.gpu, int(work.row[i])),
        ),
        cost_ns=intervals.length(idle),
        cost_spans=tuple(zip(idle[0].tolist(), idle[1].tolist(), strict=True)),
        cause=cause,
        message=_TEXTS[cause][0],
        advice=_TEXTS[cause][1],
        confidence=Confidence.HIGH if cause == "buffer-request" else Confidence.MEDIUM,
        evidence={
            "op": text(trace.cpu, "name", op) or "",
            "offset_ns": int(work.start_ns[i]) - start,
            "usual_ns": usual,
        },
        info=cause == "buffer-request",
    )


def _clock_error(work: Launches, trace: Trace, limits: Limits) -> Iterator[Hit]:
    """Work that starts before its launch: the two lanes' clocks disagree."""
    linked = np.flatnonzero(work.call >= 0)
    early = linked[work.delay_ns[linked] < 0]
    if len(early) <= limits.max_early * len(linked):
        return
    worst = int(early[np.argmin(work.delay_ns[early])])
    yield Hit(
        span=Span(int(work.start_ns[worst]), int(work.call_start_ns[worst]), int(work.device[worst])),
        events=event_ids((trace.cpu, int(work.call[worst])), (trace.gpu, int(work.row[worst]))),
        cost_ns=0,
        cause="clock-error",
        message="{early} of {linked} pieces of work start before their launch, by up to {worst_early}: "
        "the clocks of CPU and GPU disagree, so distances between the lanes are off by as much",
        advice="Do not trust distances between the lanes below that size. torch 2.4 and later align the clocks better.",
        confidence=Confidence.HIGH,
        evidence={
            "early": len(early),
            "linked": len(linked),
            "worst_early_ns": int(-work.delay_ns[worst]),
        },
        info=True,
    )
