"""Explicit synchronisation that leaves the device without work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.finding import Confidence, Hit
from traceanalyzer.model.trace import Trace, event_ids, text
from traceanalyzer.rule.places import Places
from traceanalyzer.rule.registry import rule
from traceanalyzer.timeline.synchronisation import SyncCalls


@dataclass(frozen=True, slots=True)
class Limits:
    min_idle_ns: int = (
        2_000  # after one call; queued kernels hand over within 0.8 to 1.7 us on an H200, torch 2.11
    )
    min_share: float = 0.005  # of the window, all calls together: where severity `low` begins


@rule(limits=Limits, since="0.1")
def long_device_sync(
    syncs: SyncCalls, idle: Idle, books: Accounting, where: Places, trace: Trace, limits: Limits
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
    explicit = syncs.row[~syncs.profiler & ~syncs.copy & (where.nesting.op[syncs.row] < 0)]
    segments = np.flatnonzero(books.gap >= 0)
    segments = segments[idle.is_cause("synchronisation_round_trip")[books.gap[segments]]]
    segments = segments[np.isin(idle.row[books.gap[segments]], explicit)]
    if books.dur_ns[segments].sum() < limits.min_share * where.steps.window_ns:
        return
    calls = idle.row[books.gap[segments]]
    order = np.lexsort((books.start_ns[segments], books.device[segments], calls))
    segments, calls = segments[order], calls[order]
    pairs = np.stack((calls, books.device[segments]))
    edges = np.flatnonzero(np.any(np.diff(pairs, axis=1) != 0, axis=0)) + 1
    for group in np.split(segments, edges):
        if books.dur_ns[group].sum() >= limits.min_idle_ns:
            yield _hit(group, books, idle, where, trace)


def _hit(segments: NDArray[np.int64], books: Accounting, idle: Idle, where: Places, trace: Trace) -> Hit:
    """One call and the idle time that it is charged with on one device."""
    gap = int(books.gap[segments[0]])
    call, before, after = int(idle.row[gap]), int(idle.before[gap]), int(idle.work[gap])
    starts, durations = books.start_ns[segments], books.dur_ns[segments]
    work = where.work
    rows = [(trace.gpu, int(work.row[entry]) if entry >= 0 else -1) for entry in (before, after)]
    span = replace(where.of_row(call, int(books.device[segments[0]])), stream=int(work.stream[after]))
    return Hit(
        span=span,
        events=event_ids((trace.cpu, call), *rows, (trace.cpu, int(work.op[after]))),
        cost_ns=int(durations.sum()),
        cost_spans=tuple(zip(starts.tolist(), (starts + durations).tolist(), strict=True)),
        cause="device-drained",
        message="{sync} {times}, {in_steps}: the GPU was idle for {total} in all, {median} around the median call",
        advice="Remove it from the loop. Time with CUDA events, and synchronise once at the end if at all.",
        confidence=Confidence.HIGH,
        evidence={
            "sync": text(trace.cpu, "name", call) or "",
            "sync_dur_ns": span.end_ns - span.start_ns,
            "idle_ns": int(durations.sum()),
        },
    )
