"""When threads that launch work launched none: python, garbage collection, ops and other code that run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.names import QUERY
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

OPTIMIZER = regex(r"^Optimizer\.(step|zero_grad)#")  # its time is torch's, not the user's

_MIN_NS = 20_000  # python between two ops takes up to 15 us under the profiler with stacks (H200, torch 2.11)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Disjoint stretches of the CPU's time, by start; arrays of shape (stretches,).

    Attributes:
        start_ns, end_ns: int64.
        before, after: int64, row of `trace.cpu` of the op or call that ended last before it, and of the next one.
    """

    start_ns: Rows
    end_ns: Rows
    before: Rows
    after: Rows

    @classmethod
    def between(cls, rows: Rows, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        """The stretches of 20 us or more in the steps in which none of some rows is open.

        Loading of data, compilation, capture of graphs, collectives on the CPU, an optimizer's own and what
        prof.step() takes are left out.
        """
        rows = rows[np.argsort(nesting.start_ns[rows], kind="stable")]
        if len(rows) < 2:
            none = np.empty(0, np.int64)
            return cls(none, none, none, none)
        ends = nesting.end_ns[rows]
        reached = np.maximum.accumulate(ends)
        latest = np.maximum.accumulate(np.where(ends == reached, np.arange(len(rows)), 0))
        edges = reached[:-1], nesting.start_ns[rows][1:]
        named = ("data_loading", "compilation", "capture", "profiler", "host_collective")
        known = [activity.sets[kind] for kind in named]
        start, end = _left(intervals.union(*edges), [*known, _optimizers(trace, nesting)], steps)
        gap = np.searchsorted(edges[0], start, side="right") - 1
        return cls(start, end, rows[latest[gap]], rows[gap + 1])


class CpuGaps(Stretches):
    """Stretches in which no thread that launches work has an op or a call open.

    While the autograd engine runs, its thread has ops open and the thread that called it has none: so a stretch
    counts only where none of them has. Annotations are no ops: what lies in one, but in no op, is such a stretch.
    """

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        return cls.between(activity.rows["dispatching"], trace, nesting, activity, steps)


class HostTime(Stretches):
    """Stretches without any op that makes a call: ops that work on the CPU alone, and what is between ops."""

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        calls = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        calls &= ~matching(trace.lanes.cpu, "name", QUERY.search)
        outer = nesting.top_op(np.flatnonzero(calls))
        makes = calls.copy()
        makes[outer[outer >= 0]] = True
        rows = activity.rows["dispatching"]
        return cls.between(rows[makes[rows]], trace, nesting, activity, steps)


def _optimizers(trace: Trace, nesting: Nesting) -> intervals.Set:
    rows = matching(trace.lanes.cpu, "name", OPTIMIZER.match) & (nesting.thread >= 0)
    return intervals.union(nesting.start_ns[rows], nesting.end_ns[rows])


def _left(quiet: intervals.Set, known: Sequence[intervals.Set], steps: Steps) -> intervals.Set:
    """What counts of the stretches without an op: nothing else explains it, it is in the steps, and long enough."""
    others = intervals.union(*(np.concatenate(edges) for edges in zip(*known, strict=True)))
    low = max(int(steps.cpu_start_ns[0]), steps.window_start_ns)
    high = min(int(steps.cpu_end_ns[-1]), steps.window_end_ns)
    start, end = intervals.difference(intervals.clip(quiet, low, high), others)
    long = end - start >= _MIN_NS
    return start[long], end[long]
