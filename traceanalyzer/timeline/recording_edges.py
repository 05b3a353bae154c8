"""From when on the recording tells what a device did.

Work that was launched before the recording is not in the file, and while the device runs it, the device looks idle. So
the time before its first recorded work is no idle time, unless the device is known to be idle. It may be busy

- until its first work began, where that work stood in a queue after its launch;
- until a synchronising call returned that waited although the file holds nothing to wait for;
- through a long stretch before the first step's mark in which no thread has a row: nobody knows what the program
  waited for. Within a mark it is the step's own host time.

Where the later steps begin with an idle device, too, the first step is taken to be like them.
"""

from collections.abc import Mapping

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Ns, distinct, median
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import DATA_LOADING
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

_NEVER_NS = -(2**62)  # before any time
_HELD_NS = 200_000  # after its launch returned; on an idle device 2 to 26 us, cold up to 0.1 ms (V100 to MI300)
_AT_ONCE_NS = 100_000  # a synchronising call on an idle device takes 2 to 40 us, V100 to H200
_QUIET_NS = 1_000_000  # Python between two ops takes up to 0.3 ms (H200 host); waiting for a request takes longer
_NEXT_TO_NOTHING = 0.01  # of the time from the recording's start on; chosen
_ALIKE = 0.5  # of the head, for which the device idles in the usual later step, too; chosen: most of it


def known_from(
    trace: Trace,
    nesting: Nesting,
    syncs: SyncCalls,
    work: DeviceWork,
    begins: Ns,
    start: int,
    in_mark_ns: int | None = None,
) -> Mapping[int, int]:
    """Device -> ns from which on the recording tells what it did; the start of its first work at the latest.

    Steps begin at `begins` on the CPU, the recording or the first step at `start`, the first mark at `in_mark_ns`.
    """
    known_ns = {}
    for device in distinct(work.device).tolist():
        of_device = np.flatnonzero(work.device == device)
        first = int(work.start_ns[of_device[0]])
        queued_until = _behind(work, of_device, start)
        if queued_until > first and (len(begins) < 2 or queued_until < begins[1]):
            known_ns[device] = queued_until
        elif work.call[of_device[0]] < 0 or first <= start:
            known_ns[device] = first
        elif _usual_head_ns(work, of_device, begins) >= _ALIKE * (first - start):
            known_ns[device] = start
        else:
            # It stood in a queue after its launch.
            queued = first - int(work.call_end_ns[of_device[0]]) > _HELD_NS
            busy = (
                first if queued else _NEVER_NS,
                _waited(syncs, start, first, int(work.call[of_device[0]])),
                _quiet(trace, nesting, start, first if in_mark_ns is None else min(first, in_mark_ns)),
            )
            known_ns[device] = max(start, *busy)
    return known_ns


def _usual_head_ns(work: DeviceWork, own: Ns, begins: Ns) -> float:
    """For how long the device idles in the steps after the first before they begin to run, median; 0 of none."""
    linked = own[work.call[own] >= 0]
    step = np.searchsorted(begins, work.call_start_ns[linked], side="right") - 1
    steps, first = np.unique(step, return_index=True)
    first = linked[first[steps > 0]]
    if len(first) == 0:
        return 0.0
    done = np.maximum.accumulate(work.end_ns[own])[np.searchsorted(own, first) - 1]
    return median(work.start_ns[first] - np.maximum(done, begins[steps[steps > 0]]))


def _behind(work: DeviceWork, own: Ns, start: int) -> int:
    """When a stream began on its first work, which stood in a queue though the device ran next to nothing, or never."""
    streams, first_of_stream = np.unique(work.stream[own], return_index=True)
    if len(streams) < 2:
        return _NEVER_NS
    first = own[first_of_stream]
    first = first[work.call[first] >= 0]
    free = np.maximum(work.call_end_ns[first], work.end_ns[own[0]])
    first = first[work.start_ns[first] - free > _HELD_NS]
    ran = intervals.union(work.start_ns[own], work.end_ns[own])
    since = np.minimum(work.call_end_ns[first], start)
    busy = intervals.covered(ran, since, work.start_ns[first])
    unblocked = busy < _NEXT_TO_NOTHING * (work.start_ns[first] - since)
    return int(work.start_ns[first][unblocked].max(initial=_NEVER_NS))


def _waited(syncs: SyncCalls, start: int, first: int, its_call: int) -> int:
    """Until when calls waited before the first work began, `first` at most; never where none did."""
    end = np.minimum(syncs.end_ns, first)
    # A call that starts the first work itself, a copy that blocks, starts it as late as other launches may.
    at_once = np.where(syncs.row == its_call, _HELD_NS, _AT_ONCE_NS)
    waited = end[end - np.maximum(syncs.start_ns, start) > at_once]
    return int(waited.max(initial=_NEVER_NS))


def _quiet(trace: Trace, nesting: Nesting, start: int, first: int) -> int:
    """End of the last long stretch before the first work in which no thread has a row; never where there is none."""
    # Annotations say nothing of what happens in them, but for a data loader's; of a graph's capture all is known.
    rows = ~nesting.annotation | matching(trace.lanes.cpu, "name", DATA_LOADING.search)
    rows &= (nesting.start_ns < first) & (nesting.end_ns > start)
    capturing = captures(trace, nesting).around
    begins = np.append(capturing[0], nesting.start_ns[rows])
    ends = np.append(capturing[1], nesting.end_ns[rows])
    free = intervals.complement(intervals.union(begins, ends), start, first)
    long = free[1] - free[0] > _QUIET_NS
    return int(free[1][long].max(initial=_NEVER_NS))
