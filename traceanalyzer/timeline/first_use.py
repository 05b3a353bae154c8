"""What happens once, at the head of a program or at a first use: loading, tuning, allocating, compiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, among, distinct, starts_of_runs
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, matching
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.names import GRAPH_LAUNCH
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.stalled_calls import ALONE_NS, LONG_NS, MANY_TIMES
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

KINDS = ("capturing graphs", "compiling", "tuning", "loading kernels", "allocating", "first use of a library")

# An allocation takes 0.05 to 12 ms, preparing a device or a library within one 260 ms to 6 s; public A100 trace.
_PREPARES_NS = 100_000_000
_SLICES = 8  # of a window without steps, in place of them
_FEWEST_STEPS = 3  # with fewer, a first and a last step are all there is
_OFTEN = (
    8  # rows in a slice of such a window: a storm has hundreds a step, the first use of a library a dozen
)


@dataclass(frozen=True, slots=True)
class FirstUse:
    """Rows that stall the CPU once; what does the same in half of the later steps is the program's and left out.

    Attributes:
        row, kind: int64 (rows,), rows of `trace.cpu`, and which of `KINDS` each is; rows may lie in one another.
    """

    row: Rows
    kind: Rows

    @classmethod
    def build(
        cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps, syncs: SyncCalls
    ) -> Self:
        allocating, preparing = _allocations(trace, nesting, activity.rows["allocator"])
        found = [
            activity.rows["capture"],
            activity.rows["compilation"],
            _tuning(trace, nesting, syncs),
            activity.rows["module_loading"],
            allocating,
            np.union1d(preparing, _long(trace, nesting, activity, syncs, steps)),
        ]
        once = [rows if _is_once(nesting, rows, steps) else rows[:0] for rows in found]
        kind = np.repeat(np.arange(len(KINDS)), [len(rows) for rows in once])
        return cls(np.concatenate(once), kind)


def _allocations(trace: Trace, nesting: Nesting, rows: Rows) -> tuple[Rows, Rows]:
    """(calls that allocate and free, those that prepare the device or a library with their first one)."""
    pins = matching(trace.lanes.cpu, "name", lambda name: "Host" in name)[
        rows
    ]  # takes as long as the memory is large
    long = ~pins & (nesting.end_ns[rows] - nesting.start_ns[rows] >= _PREPARES_NS)
    return rows[~long], rows[long]


def _edges(steps: Steps) -> Rows:
    """Starts of the steps; where there are too few to compare, of equal parts of the window."""
    if len(steps) >= _FEWEST_STEPS:
        return steps.cpu_start_ns
    return np.linspace(steps.window_start_ns, steps.window_end_ns, _SLICES + 1).astype(np.int64)[:-1]


def _is_once(nesting: Nesting, rows: Rows, steps: Steps) -> bool:
    """Less than half of the steps after the head have such rows."""
    edges = _edges(steps)
    head = max(1, len(edges) // 3)
    real = rows[nesting.end_ns[rows] - nesting.start_ns[rows] >= LONG_NS // 10]
    step = np.searchsorted(edges, nesting.start_ns[real], side="right") - 1
    count = np.bincount(np.maximum(step, 0), minlength=len(edges))[head:]
    least = 1 if len(steps) >= _FEWEST_STEPS else _OFTEN
    return bool(2 * (count >= least).sum() < len(count))


def _tuning(trace: Trace, nesting: Nesting, syncs: SyncCalls) -> Rows:
    """Outermost ops in which a library times its kernels: they wait for events, which no op does otherwise."""
    waits = syncs.row[matching(trace.lanes.cpu, "name", lambda name: "EventSynchronize" in name)[syncs.row]]
    ops = nesting.top_op(waits)
    return np.unique(ops[ops >= 0])


def _long(trace: Trace, nesting: Nesting, activity: Activity, syncs: SyncCalls, steps: Steps) -> Rows:
    """Ops and calls that take many times what their name usually does; waiting for the device is not meant.

    Where there are steps, they are in the first third of those, or the first of their name.
    """
    rows = np.flatnonzero(nesting.self_ns >= LONG_NS)  # few
    call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
    usable = (call[rows] | (nesting.op[rows] == rows)) & activity.launching[nesting.thread[rows]]
    usable &= ~matching(trace.lanes.cpu, "name", GRAPH_LAUNCH.search)[rows]
    usable &= ~among(rows, distinct(syncs.row)) & ~among(rows, distinct(activity.rows["allocator"]))
    rows = rows[usable & (nesting.self_ns[rows] >= (nesting.end_ns - nesting.start_ns)[rows] // 2)]
    stalled = intervals.covered(activity.sets["profiler"], nesting.start_ns[rows], nesting.end_ns[rows])
    own = nesting.self_ns[rows] - stalled
    names = codes(trace.lanes.cpu, "name")
    usual = _usual(nesting.self_ns, names, rows)
    least = np.where(usual >= 0, np.maximum(MANY_TIMES * usual, LONG_NS), ALONE_NS)
    # An op that computes on the CPU alone may be meant to take that long: only a call starts something.
    calls_inside = np.zeros(len(call) + 1, bool)
    calls_inside[nesting.parent[np.flatnonzero(call)]] = True
    starts = call[rows] | calls_inside[rows]
    found: Rows = rows[starts & (own >= least) & _early(nesting, names, rows, steps)]
    return found


def _early(nesting: Nesting, names: Rows, rows: Rows, steps: Steps) -> Mask:
    if len(steps) < _FEWEST_STEPS:
        return np.ones(len(rows), bool)
    first = np.full(int(names.max(initial=-1)) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, names, nesting.start_ns)
    start = nesting.start_ns[rows]
    return np.asarray((start <= first[names[rows]]) | (start < steps.cpu_start_ns[max(1, len(steps) // 3)]))


def _usual(self_ns: Rows, names: Rows, rows: Rows) -> Rows:
    """Per row the median self time of its name, -1 where it is the only one."""
    wanted = np.zeros(int(names.max(initial=-1)) + 2, bool)
    wanted[names[rows]] = True
    alike = np.flatnonzero(wanted[names])
    alike = alike[np.lexsort((self_ns[alike], names[alike]))]
    first = np.flatnonzero(starts_of_runs(names[alike]))
    count = np.diff(first, append=len(alike))
    median = np.full(len(wanted), -1, np.int64)
    median[names[alike[first]]] = np.where(count > 1, self_ns[alike[first + (count - 1) // 2]], -1)
    return median[names[rows]]
