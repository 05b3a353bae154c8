"""How far the GPU lane lies behind the CPU lane, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.finding import Confidence, Hit
from traceanalyzer.model.trace import Trace, event_ids, text
from traceanalyzer.rule.places import Places
from traceanalyzer.rule.registry import rule
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.busy import Busy
from traceanalyzer.timeline.profiler_rows import ProfilerRows

_MOST = 0.5  # share of the offset that a stall must cover, and during which the device must be idle


@dataclass(frozen=True, slots=True)
class Limits:
    min_offset_ns: int = 100_000  # usual offsets onto an idle device are 2 to 26 us from V100 to MI300
    min_excess: float = 5.0  # times the trace's own median offset onto an idle device
    max_early: float = 0.01  # share of work that may start before its launch; none did in 37 traces looked at


# cause -> (message, advice)
_TEXTS = {
    "buffer-request": (
        "the GPU lane lies {offset} behind {op} (usual: {usual}): the profiler asked for a buffer inside it",
        "Nothing to fix in your code: warm up before recording, schedule(wait=1, warmup=3).",
    ),
    "first-use": (
        "the GPU lane lies up to {offset} behind {op} (usual: {usual}): kernels were loaded for the first time",
        "Warm up before measuring. If start-up matters itself, CUDA_MODULE_LOADING=EAGER moves it to the start.",
    ),
    "clock-error": (
        "{early} of {linked} pieces of work start before their launch, by up to {worst_early}: the clocks of CPU and "
        "GPU disagree, so distances between the lanes are off by as much",
        "Do not trust distances between the lanes below that size. torch 2.4 and later align the clocks better.",
    ),
}


@rule(limits=Limits, since="0.1")
def lane_offset(
    overheads: ProfilerRows, activity: Activity, busy: Busy, where: Places, trace: Trace, limits: Limits
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
    yield from _clock_error(where, trace, limits)
    for i in np.flatnonzero(overheads.stalled >= 0).tolist():
        for device in busy.devices:
            yield from _buffer_request(i, device, overheads, limits, busy, where, trace)
    yield from _first_use(activity, limits, busy, where, trace)


def _buffer_request(
    i: int, device: int, overheads: ProfilerRows, limits: Limits, busy: Busy, where: Places, trace: Trace
) -> Iterator[Hit]:
    """The offset from the op that the profiler stalled to the work that was launched next."""
    work, nesting, hit = where.work, where.nesting, int(overheads.stalled[i])
    op = int(nesting.op[hit]) if nesting.op[hit] >= 0 else hit
    later = np.flatnonzero((work.device == device) & (work.call_start_ns >= overheads.stall_start_ns[i]))
    if len(later) == 0:
        return
    start, end = int(nesting.start_ns[op]), int(work.start_ns[later[0]])
    stall = int(overheads.stall_end_ns[i] - overheads.stall_start_ns[i])
    idle = intervals.length(busy.gaps(device, start, end)) if end > start else 0
    if end - start >= limits.min_offset_ns and min(stall, idle) >= _MOST * (end - start):
        delays = work.delay_ns[work.outstanding == 0]
        usual = int(np.median(delays)) if len(delays) else 0
        yield _hit(
            "buffer-request", int(later[0]), op, start, overheads.row[i : i + 1], usual, busy, where, trace
        )


def _first_use(activity: Activity, limits: Limits, busy: Busy, where: Places, trace: Trace) -> Iterator[Hit]:
    """The offset from each outermost op to its first work, where something was loaded in between."""
    work, nesting, loading = where.work, where.nesting, activity.rows["module_loading"]
    top = nesting.top_op(work.call)
    _, first = np.unique(top, return_index=True)
    fresh = first[(top[first] >= 0) & (work.outstanding[first] == 0)]
    starts, ends = nesting.start_ns[top[fresh]], work.start_ns[fresh]
    loaded = intervals.covered(activity.sets["module_loading"], starts, ends) > 0
    usual = int(np.median((ends - starts)[~loaded])) if (~loaded).any() else 0
    far = ends - starts >= max(limits.min_offset_ns, int(limits.min_excess * usual))
    for i, start, end in zip(fresh[loaded & far], starts[loaded & far], ends[loaded & far], strict=True):
        rows = loading[(nesting.start_ns[loading] < end) & (nesting.end_ns[loading] > start)]
        yield _hit("first-use", int(i), int(work.op[i]), int(start), rows, usual, busy, where, trace)


def _hit(
    cause: str,
    entry: int,
    op: int,
    start: int,
    rows: NDArray[np.int64],
    usual: int,
    busy: Busy,
    where: Places,
    trace: Trace,
) -> Hit:
    """The offset from `start`, in `op`, to the start of a piece of work; `rows` of the CPU lane are the cause."""
    work, end = where.work, int(where.work.start_ns[entry])
    idle = busy.gaps(int(work.device[entry]), start, end)
    causes = ((trace.cpu, int(row)) for row in rows)
    at = where.steps.at_cpu(np.array([start]))[0]
    return Hit(
        span=replace(where.of_work(entry, start, end), step=where.step(int(at))),
        events=event_ids(
            (trace.cpu, op), *causes, (trace.cpu, int(work.call[entry])), (trace.gpu, int(work.row[entry]))
        ),
        cost_ns=intervals.length(idle),
        cost_spans=tuple(zip(idle[0].tolist(), idle[1].tolist(), strict=True)),
        cause=cause,
        message=_TEXTS[cause][0],
        advice=_TEXTS[cause][1],
        confidence=Confidence.HIGH if cause == "buffer-request" else Confidence.MEDIUM,
        evidence={"op": text(trace.cpu, "name", op) or "", "offset_ns": end - start, "usual_ns": usual},
        info=cause == "buffer-request",
    )


def _clock_error(where: Places, trace: Trace, limits: Limits) -> Iterator[Hit]:
    """Work that starts before its launch: the two lanes' clocks disagree."""
    work = where.work
    linked = np.flatnonzero(work.call >= 0)
    early = linked[work.delay_ns[linked] < 0]
    if len(early) <= limits.max_early * len(linked):
        return
    worst = int(early[np.argmin(work.delay_ns[early])])
    start, launched = int(work.start_ns[worst]), int(work.call_start_ns[worst])
    yield Hit(
        span=where.of_work(worst, start, launched),
        events=event_ids((trace.cpu, int(work.call[worst])), (trace.gpu, int(work.row[worst]))),
        cost_ns=0,
        cause="clock-error",
        message=_TEXTS["clock-error"][0],
        advice=_TEXTS["clock-error"][1],
        confidence=Confidence.HIGH,
        evidence={"early": len(early), "linked": len(linked), "worst_early_ns": launched - start},
        info=True,
    )
