"""Explicit synchronisation that leaves the device without work."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule
from traceanalyzer.timeline.synchronisation import SyncCalls

_ON_EVENT = re.compile(r"EventSynchronize$")
_EVENTS = (
    r"^(cuda|hip)Event(Create|CreateWithFlags|Record|RecordWithFlags|ElapsedTime|Destroy|Query)$"
    r"|^(cuda|hip)StreamIsCapturing$|^INVALID$"  # before each record; cudaEventElapsedTime as CUPTI 13 names it
)
_ORDERS = r"StreamWaitEvent$"


@rule(since="0.1", claims=Claims.EVENT)
def long_device_sync(calls: Calls, idle: IdleTime, syncs: SyncCalls) -> Iterator[Hits]:
    """An explicit synchronisation leaves the GPU idle.

    What it looks for: cudaDeviceSynchronize, and stream or event synchronisation outside of any op.
    Why it costs: while the CPU waits, it cannot queue work. The GPU finishes its queue, and is idle until the
    next launch.
    Bad: torch.cuda.synchronize() after every layer, or for timing inside the loop. Good: CUDA events for
    timing, one synchronisation at the end.
    How sure: the idle time is measured. Waiting for a busy GPU costs nothing and is not part of the cost.
    When it is wrong: the profiler slows the CPU, so the GPU may run out of work in the recording, but not
    without the profiler. Then this call costs less than the finding says.
    See also: implicit-sync for synchronisation inside an op (.item(), .cpu(), nonzero).
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    rows = syncs.row[~syncs.profiler & ~syncs.copy]
    explicit = calls[np.isin(calls.rows, rows) & ~calls.op.there]
    for name, waits in explicit.by(explicit.name):
        charged = idle.charged_to("synchronisation")
        owner = charged.call.index_of_enclosing(waits)
        if not (owner >= 0).any():  # the device was busy throughout, or had nothing to do before or after
            continue
        lines = waits.line.sums(waits.dur_ns)
        yield Hits(
            occurrences=waits,
            named_by=name,
            lost=LostTime.all_of(charged[owner >= 0], owner[owner >= 0]),
            fix=Drop(np.union1d(waits.rows, timing_calls(calls) if _ON_EVENT.search(name) else waits.rows)),
            message="{by} {times_a_step}: the GPU finishes its queue and stays idle until the next launch"
            + (", called at {lines:of these calls' time}" if lines else ""),
            advice="Remove it from the loop: CUDA events measure time without stopping the CPU, and results "
            "need one synchronisation at the end.",
            evidence={"waited_ns": waits.total_ns, "lines": lines},
        )


def timing_calls(calls: Calls) -> Rows:
    """Rows of the calls that make, record and read events outside any op: nothing but timing where no stream waits."""
    events = calls[calls.is_call & ~calls.op.there]
    orders = bool(events.name.matches(_ORDERS).any())
    return events.rows[events.name.matches(_EVENTS) & (not orders)]
