"""Work that starts long after its launch though nothing runs on its device, for a reason that no trace shows.

A driver that submits launches in batches, another process that has the device: the profiler causes none of it, so the
replay keeps it. Steps differ in it by chance, and none counts with more than the median step has.
"""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, median, pick, previous_equal
from traceanalyzer.timeline.device_work import KINDS, DeviceWork

LATE_NS = 100_000
"""After its launch on an idle device work starts within 2 to 26 us, cold within 0.1 ms; V100 to MI300."""


def late_starts_ns(
    work: DeviceWork, entry: Rows, step: Rows, stream_waits: Rows, since_ns: int
) -> tuple[Floats, Floats]:
    """How late each entry starts for no known reason: (after its launch, after what it waited for in its queue).

    float64 (entries,) both, 0 for most. Where all of a device is idle, no stream of it waits for another; of several
    devices one may wait for another.

    Args:
        entry: int64, entries of `DeviceWork` in order of launch.
        step: int64 (entries,), step that launches each.
        stream_waits: starts of the calls that make a stream wait for another, sorted.
        since_ns: start of the steps; what kept the device until then is no part of them.
    """
    free_ns = work.start_ns.copy()  # what ran before the first work of a device is not recorded
    devices = distinct(work.device).tolist()
    for device in devices:
        on_device = np.flatnonzero(work.device == device)
        ends = np.maximum.accumulate(work.end_ns[on_device])
        free_ns[on_device[1:]] = ends[:-1]
    start, free = work.start_ns[entry], free_ns[entry]
    copy = work.kind[entry] >= KINDS.index("copy_h2d")
    blocking = copy & (work.call_end_ns[entry] > start)
    issued = np.where(blocking, work.call_start_ns[entry], work.call_end_ns[entry])
    late = (start - np.maximum(np.maximum(issued, free), since_ns)).astype(np.float64)
    late[(late < LATE_NS) | work.shared[entry]] = 0.0
    if len(devices) > 1:
        late[_waits_for_stream(work, entry, stream_waits)] = 0.0
    whole = np.bincount(step, late)
    usual = median(whole[distinct(step)]) if len(step) else 0.0
    late *= np.minimum(1.0, usual / np.maximum(whole, 1.0))[step]
    return np.where(issued > free, late, 0.0), np.where(issued > free, 0.0, late)


def _waits_for_stream(work: DeviceWork, entry: Rows, stream_waits: Rows) -> Mask:
    """Which entries are the first of their stream after a call that may make it wait for another."""
    waits = np.searchsorted(stream_waits, work.call_start_ns[entry])
    before = previous_equal(work.device[entry] * (1 << 20) + work.stream[entry])
    return np.asarray(waits > pick(waits, before, 0))
