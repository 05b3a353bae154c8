"""Which gaps one call or op is to blame for that took many times what its kind usually takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.idle.round_trips import MOST
from traceanalyzer.model.arrays import among, distinct, numbered, pick
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, matching
from traceanalyzer.timeline.boundaries import Boundaries
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Launch calls take 4 to 10 us and ops tens of us (V100 to H200); what a library prepares at first use takes 0.1 ms
# (a workspace) to 30 s (a context). Ten times the median is far above the jitter of either.
_LONG_NS = 100_000
_MANY_TIMES = 10
_ALONE_NS = 1_000_000  # where nothing of that name is there to compare with


def long_calls(
    trace: Trace, gaps: Gaps, late: Mask, nesting: Nesting, boundaries: Boundaries, syncs: SyncCalls
) -> Rows:
    """Per gap the row of `trace.cpu` that stood still for most of it, unusually long; -1 for none.

    It stands still where nothing starts or ends on its thread. Waiting for the device is not meant.
    """
    found, still = np.full(len(gaps), -1), np.zeros(len(gaps), np.int64)
    for thread in distinct(nesting.thread[gaps.call[late]]).tolist():
        here = np.flatnonzero(late & (nesting.thread[gaps.call] == thread))
        middle = (gaps.start_ns[here] + gaps.end_ns[here]) // 2
        low, high = boundaries.around(thread, middle, side="right")
        still[here] = np.minimum(high, gaps.end_ns[here]) - np.maximum(low, gaps.start_ns[here])
        found[here] = nesting.around(thread, middle, middle)
    usable = matching(trace.cpu, "category", ("cpu_op", *CALL_CATEGORIES).__contains__) & ~nesting.annotation
    usable[syncs.row] = False
    holds = (pick(usable.astype(np.int64), found) > 0) & (still >= np.maximum(_LONG_NS, MOST * gaps.dur_ns))
    holds[holds] = _unusual(trace, nesting, found[holds], still[holds])
    return np.where(holds, found, -1)


def _unusual(trace: Trace, nesting: Nesting, rows: Rows, still: Rows) -> Mask:
    """Whether each row stood still many times longer than rows of its name usually do, or is the only one."""
    names = codes(trace.cpu, "name")
    name, wanted = numbered(names[rows])
    alike = np.flatnonzero(among(names, wanted))
    alike = alike[np.argsort(names[alike], kind="stable")]
    groups = np.split(nesting.self_ns[alike], np.searchsorted(names[alike], wanted[1:]))
    least = [_MANY_TIMES * np.median(usual) if len(usual) > 1 else _ALONE_NS for usual in groups]
    return np.asarray(still >= np.array(least)[name]) if len(rows) else np.zeros(0, bool)
