"""Explicit synchronisation that leaves the device without work."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import Drop, ReadLater
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.timeline.host_round_trips import MAX_BYTES
from traceanalyzer.timeline.names import TRAINS
from traceanalyzer.timeline.synchronisation import SyncCalls

_ON_EVENT = regex(r"EventSynchronize$")
_EVENTS = (
    r"^(cuda|hip)Event(Create|CreateWithFlags|Record|RecordWithFlags|ElapsedTime|Destroy|Query)$"
    r"|^(cuda|hip)StreamIsCapturing$|^INVALID$"  # before each record; cudaEventElapsedTime as CUPTI 13 names it
)
_ORDERS = r"StreamWaitEvent$"
_RUNS = "{by} {times_a_step}: the GPU finishes its queue and stays idle until the next launch"
_WAITS = "{by} waits {times_a_step} for copies to the host; the GPU stays idle until the next launch"
_REMOVE = (
    "Remove it from the loop: CUDA events measure time without stopping the CPU, and results need one synchronisation "
    "at the end."
)
_KEEP = (
    "Keep the wait, because the CPU reads these copies after it. Launch the next work before it, or read the copies "
    "one step later."
)
_AHEAD = (
    "Launch step n+1 before you read the tokens of step n, and read their copy one step later. If step n+1 needs what "
    "the CPU makes of them, keep the wait."
)


@rule(since="0.1", claims=Claims.EVENT, causes=("read-back",))
def long_device_sync(calls: Calls, work: Work, idle: IdleTime, syncs: SyncCalls) -> Iterator[Hits]:
    """An explicit synchronisation leaves the GPU idle.

    What it looks for: cudaDeviceSynchronize, and stream or event synchronisation outside of any op.
    A second case (cause `read-back`, named in the finding's title): since the synchronisation before, a copy
    to pinned memory was launched. The CPU reads it after the wait, so the wait cannot be removed. If it is a few
    bytes (sampled tokens), no data go back to the device and nothing trains, the next step can be launched first.
    Why it costs: while the CPU waits, it cannot queue work. The GPU finishes its queue, and is idle until the
    next launch.
    Bad: torch.cuda.synchronize() after every layer, or for timing inside the loop. Good: CUDA events for
    timing, one synchronisation at the end.
    How sure: the idle time is measured. Waiting for a busy GPU costs nothing and is not part of the cost.
    When it is wrong: the profiler slows the CPU, so the GPU may run out of work in the recording, but not
    without the profiler. Then this call costs less than the finding says.
    Saving: predicted without the wait. Other read-backs have none.
    See also: implicit-sync for synchronisation inside an op (.item(), .cpu(), nonzero).
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    rows = syncs.row[~syncs.profiler & ~syncs.copy]
    explicit = calls[np.isin(calls.rows, rows) & ~calls.op.there]
    copies = work[work.kind.one_of("copy_d2h", "copy_h2d") & work.launch.there]
    pinned = copies[copies.kind.one_of("copy_d2h") & ~copies.pageable]
    data = pinned if calls.name.matches(TRAINS).any() else copies[copies.bytes > MAX_BYTES]
    reads = _reads(explicit, pinned, syncs)
    for read, of_kind in ((True, explicit[reads]), (False, explicit[~reads])):
        for name, waits in of_kind.by(of_kind.name):
            charged = idle.charged_to("synchronisation")
            owner = charged.call.index_of_enclosing(waits)
            lost = LostTime.all_of(charged[owner >= 0], owner[owner >= 0])
            ahead = read and not _reads(waits, data, syncs).any()
            timing = timing_calls(calls) if _ON_EVENT.search(name) else waits.rows
            needless = () if read else Drop(distinct(np.append(waits.rows, timing)))
            lines = waits.line.sums(waits.dur_ns)
            # Otherwise the device was busy throughout, or had nothing to do before or after.
            if not ahead and (owner < 0).all():
                continue
            yield Hits(
                occurrences=waits,
                named_by=name,
                cause="read-back" if read else "",
                lost=lost,
                fix=ReadLater(waits.rows) if ahead else needless,
                message=(_WAITS if read else _RUNS) + ", called at {lines:of these calls' time}" * bool(lines),
                advice=_AHEAD if ahead else _KEEP if read else _REMOVE,
                evidence={"waited_ns": waits.total_ns, "lines": lines},
            )


def _reads(waits: Calls, copies: Work, syncs: SyncCalls) -> Mask:
    """Whether one of the copies was launched since the synchronisation before; bool (waits,)."""
    launched = np.sort(copies.launch.start_ns)
    ends = np.append(np.iinfo(np.int64).min, syncs.end_ns)
    before = ends[np.searchsorted(syncs.end_ns, waits.start_ns, side="right")]
    return np.searchsorted(launched, waits.start_ns) > np.searchsorted(launched, before)


def timing_calls(calls: Calls) -> Rows:
    """Rows of the calls that make, record and read events outside any op: nothing but timing where no stream waits."""
    events = calls[calls.is_call & ~calls.op.there]
    orders = bool(events.name.matches(_ORDERS).any())
    return events.rows[events.name.matches(_EVENTS) & (not orders)]
