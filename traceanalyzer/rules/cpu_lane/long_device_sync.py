"""Explicit synchronisation that leaves the device without work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.finding import Confidence, Hit, Span
from traceanalyzer.indexes.accounting import Accounting
from traceanalyzer.indexes.idle import Idle
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.indexes.syncs import Syncs
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, event_ids, ints, text


@dataclass(frozen=True, slots=True)
class Limits:
    min_idle_ns: int = (
        2_000  # after one call; queued kernels hand over within 0.8 to 1.7 us on an H200, torch 2.11
    )
    min_share: float = 0.005  # of the window, all calls together: where severity `low` begins


@rule(limits=Limits, since="0.1")
def long_device_sync(
    syncs: Syncs,
    idle: Idle,
    books: Accounting,
    work: Launches,
    nesting: Nesting,
    steps: Steps,
    trace: Trace,
    limits: Limits,
) -> Iterator[Hit]:
    """An explicit synchronisation leaves the GPU idle.

    What it looks for: cudaDeviceSynchronize and its kin (stream and event synchronisation called outside any op),
    and the idle time that the accounting charges to each: the device drained while the CPU waited, and stayed
    idle until the CPU had launched again.
    Why it costs: the CPU cannot queue work ahead, so every launch after it meets an idle device.
    Bad: torch.cuda.synchronize() after every layer, or for timing inside the loop. Good: CUDA events for timing,
    one synchronisation at the end.
    How sure: the idle time is measured. Waiting for a busy GPU costs nothing and is not counted, however long
    the call. The profiler's own synchronisation, before the first and after the last op, is never blamed.
    When it is wrong: under the profiler the CPU is slower, so a call whose wait shows without the profiler may
    find the device done already; the gap around it is still the call's, since it keeps the queue empty.
    Synchronisation inside an op (.item(), .cpu(), nonzero) is no explicit call: see scheduler-gap.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    explicit = syncs.row[~syncs.profiler & ~syncs.copy & (nesting.op[syncs.row] < 0)]
    segments = np.flatnonzero(books.gap >= 0)
    segments = segments[idle.is_cause("synchronisation_round_trip")[books.gap[segments]]]
    segments = segments[np.isin(idle.row[books.gap[segments]], explicit)]
    if books.dur_ns[segments].sum() < limits.min_share * steps.window_ns:
        return
    calls = idle.row[books.gap[segments]]
    order = np.lexsort((books.start_ns[segments], books.device[segments], calls))
    segments, calls = segments[order], calls[order]
    pairs = np.stack((calls, books.device[segments]))
    edges = np.flatnonzero(np.any(np.diff(pairs, axis=1) != 0, axis=0)) + 1
    for group in np.split(segments, edges):
        if books.dur_ns[group].sum() >= limits.min_idle_ns:
            yield _hit(group, books, idle, work, nesting, steps, trace)


def _hit(
    segments: np.ndarray[tuple[int], np.dtype[np.int64]],
    books: Accounting,
    idle: Idle,
    work: Launches,
    nesting: Nesting,
    steps: Steps,
    trace: Trace,
) -> Hit:
    """One call and the idle time that it is charged with on one device."""
    gap = int(books.gap[segments[0]])
    call, after = int(idle.row[gap]), int(idle.work[gap])
    starts, durations = books.start_ns[segments], books.dur_ns[segments]
    at = int(books.step[segments[0]])
    before = int(idle.before[gap])
    rows = [
        (trace.cpu, call),
        (trace.gpu, int(work.row[before]) if before >= 0 else -1),
        (trace.gpu, int(work.row[after])),
    ]
    return Hit(
        span=Span(
            start_ns=int(nesting.start_ns[call]),
            end_ns=int(nesting.end_ns[call]),
            device=int(books.device[segments[0]]),
            stream=int(work.stream[after]),
            thread=int(ints(trace.cpu, "tid")[call]),
            step=int(steps.number[at]) if at >= 0 else None,
        ),
        events=event_ids(*rows, (trace.cpu, int(work.op[after]))),
        cost_ns=int(durations.sum()),
        cost_spans=tuple(zip(starts.tolist(), (starts + durations).tolist(), strict=True)),
        cause="device-drained",
        message="{sync} {times}, {in_steps}: the GPU was idle for {total} in all, {median} around the median call",
        advice="Remove it from the loop. Time with CUDA events, and synchronise once at the end if at all.",
        confidence=Confidence.HIGH,
        evidence={
            "sync": text(trace.cpu, "name", call) or "",
            "sync_dur_ns": int(nesting.end_ns[call] - nesting.start_ns[call]),
            "idle_ns": int(durations.sum()),
        },
    )
