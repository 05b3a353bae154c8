"""The profiler's own work (rows on pid -1, which name no thread) and which thread each stalled.

A row stalls a thread if for most of it nothing starts or ends there while an op or call is open that does not
wait for the device anyway: CUPTI asks for
a buffer inside the app's call. The same row on another thread costs the app nothing, and dispatch goes on.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.names import BUFFER_OVERHEAD, PROFILER_OVERHEAD, SYNCHRONISING
from traceanalyzer.timeline.nesting import Boundaries, Nesting

# Share of the row during which the thread stands still; below it the row ran beside the thread.
_MIN_STALLED = 0.5


@dataclass(frozen=True, slots=True)
class ProfilerRows:
    """The profiler's own rows, and which calls they stalled; not loading of kernels or full command buffers.

    Arrays of shape (rows,), ordered by start.

    Attributes:
        row: int64, row of `trace.cpu`.
        buffer: bool, an Activity Buffer Request or a Buffer Flush.
        stalled: int64, row of `trace.cpu` of the innermost op or call that it stalled, -1 for none.
        stall_start_ns, stall_end_ns: int64, when it did; empty where `stalled` is -1.
    """

    row: Rows
    buffer: Mask
    stalled: Rows
    stall_start_ns: Rows
    stall_end_ns: Rows

    @property
    def stalls(self) -> intervals.Set:
        """When the profiler stalled a thread."""
        return intervals.union(self.stall_start_ns, self.stall_end_ns)

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        cpu = trace.lanes.cpu
        overhead = matching(cpu, "category", "overhead".__eq__)
        row = np.flatnonzero(overhead & matching(cpu, "name", PROFILER_OVERHEAD.match))
        row = row[
            np.lexsort(
                (Texts.column(cpu, "name", row).ranks(), ints(cpu, "dur_ns")[row], nesting.start_ns[row])
            )
        ]
        buffer = matching(cpu, "name", BUFFER_OVERHEAD.match)[row]
        start, end = nesting.start_ns[row], nesting.end_ns[row]
        waits = matching(cpu, "name", SYNCHRONISING.search)
        may_stall = matching(cpu, "category", ("cpu_op", *CALL_CATEGORIES).__contains__)
        may_stall &= ~waits & ~nesting.annotation
        stalled = np.full(len(row), -1, np.int64)
        stall_start, stall_end = start.copy(), start.copy()
        boundaries = Boundaries.of(nesting) if len(row) else Boundaries((), ())
        for thread in range(len(boundaries.starts)):
            _find_stalls(nesting, boundaries, may_stall, thread, start, end, stalled, stall_start, stall_end)
        return cls(row, buffer, stalled, stall_start, stall_end)


def _find_stalls(
    nesting: Nesting,
    boundaries: Boundaries,
    may_stall: Mask,
    thread: int,
    start: Rows,
    end: Rows,
    stalled: Rows,
    low: Rows,
    high: Rows,
) -> None:
    """Write the stalls of one thread: the event-free interval around the midpoint of each overhead row.

    An interval that is at least half of the row contains its midpoint, so no other needs to be looked at.
    """
    before, after = boundaries.around(thread, (start + end + 1) // 2, side="left")
    a, b = np.maximum(before, start), np.minimum(after, end)
    around = nesting.around(thread, a, b)
    held = (b - a >= _MIN_STALLED * (end - start)) & (b - a > high - low) & (around >= 0)
    held &= may_stall[around]
    stalled[held], low[held], high[held] = around[held], a[held], b[held]
