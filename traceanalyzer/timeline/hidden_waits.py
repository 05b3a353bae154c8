"""Work that waits for another stream though no recorded call makes it wait.

Streams that share a hardware queue run their work in the order of the launches: with CUDA_DEVICE_MAX_CONNECTIONS=1, or
with more streams than queues. Then queued work begins when earlier work of another stream ends.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, pick, previous_equal
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import STREAM_WAIT
from traceanalyzer.timeline.nesting import Nesting

_WOKEN_NS = 20_000  # after the end of what it waited for work has begun: 1 to 12 us; DDP on 2 H200
_SLACK_NS = 1_000  # of an end: clock rounding


@dataclass(frozen=True, slots=True)
class HiddenWaits:
    """
    Attributes:
        after: int64 (work,), entry of `DeviceWork` of another stream whose end each waits for; -1 for none.
    """

    after: Rows

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork) -> Self:
        """Of queued work that begins long after the end of the work before it on its stream."""
        after = np.full(len(work.row), -1, np.int64)
        issued = np.sort(nesting.start_ns[matching(trace.lanes.cpu, "name", STREAM_WAIT.search)])
        for device in distinct(work.device).tolist():
            entry = np.flatnonzero((work.device == device) & (work.call >= 0))
            if len(distinct(work.stream[entry])) < 2:
                continue
            before = pick(entry, previous_equal(work.stream[entry]))
            ended = pick(work.end_ns, before, 0)
            waits = (before >= 0) & (work.start_ns[entry] - ended > _WOKEN_NS)
            waits &= (work.call_end_ns[entry] <= ended) & ~work.shared[entry]
            since = np.searchsorted(issued, pick(work.call_start_ns, before, 0))
            waits &= np.searchsorted(issued, work.call_start_ns[entry]) == since  # no call made it wait
            by_end = entry[np.argsort(work.end_ns[entry], kind="stable")]
            place = np.searchsorted(work.end_ns[by_end], work.start_ns[entry] + _SLACK_NS, side="right") - 1
            awaited = pick(by_end, place)
            waits &= (awaited >= 0) & (work.start_ns[entry] - pick(work.end_ns, awaited, 0) <= _WOKEN_NS)
            waits &= pick(work.stream, awaited) != work.stream[entry]
            waits &= pick(work.call_start_ns, awaited, 0) < work.call_start_ns[entry]
            after[entry[waits]] = awaited[waits]
        return cls(after)
