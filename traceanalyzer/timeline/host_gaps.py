"""Where a launching thread ran no op and no call: python, garbage collection, other code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import pick
from traceanalyzer.model.containment import running_at
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, ints, matching
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.step_marks import StepMarks

Rows = NDArray[np.int64]

_MIN_NS = 20_000  # python between two ops takes up to 15 us under the profiler with stacks (H200, torch 2.11)


@dataclass(frozen=True, slots=True)
class HostGaps:
    """Where a thread that launches work ran no op and no call for 20 us or more, between two of them.

    Arrays of shape (gaps,), ordered by thread and start. Annotations are no ops: what lies in one, but in no op, is
    such a stretch.

    Attributes:
        thread: int64, thread as in `Nesting`.
        start_ns, end_ns: int64; before the first op and after the last one of a thread there is none.
        step: int64, position in `StepMarks` by its start on the CPU, -1 before the first.
        before, after: int64, row of `trace.cpu` of the op or call that ends before it and that begins after it.
        function: int64, code in `trace.python["name"]` of the innermost python function that was open in its middle on
            that thread, -1 for none or without stacks.
    """

    thread: Rows
    start_ns: Rows
    end_ns: Rows
    step: Rows
    before: Rows
    after: Rows
    function: Rows

    @property
    def dur_ns(self) -> Rows:
        """Length of each stretch."""
        return self.end_ns - self.start_ns

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, marks: StepMarks) -> Self:
        call = matching(trace.cpu, "category", CALL_CATEGORIES.__contains__)
        busy = (nesting.op == np.arange(len(call))) | call
        outermost = busy & (pick(nesting.op, nesting.parent) < 0)
        parts = [
            _of_thread(nesting, outermost, thread) for thread in np.flatnonzero(activity.launching).tolist()
        ]
        none = [np.empty(0, np.int64)] * 5
        thread, start, end, before, after = (
            np.concatenate(columns) for columns in zip(none, *parts, strict=True)
        )
        step = np.searchsorted(marks.cpu_start_ns, start, side="right") - 1
        function = _functions(trace, nesting, before, (start + end) // 2)
        return cls(thread, start, end, np.asarray(step, np.int64), before, after, function)

    def longest(self, starts: Rows, ends: Rows) -> Rows:
        """For each interval the position of the stretch that overlaps it longest, -1 for none.

        Stretches of several threads may overlap; so the longest is looked for thread by thread.
        """
        best, most = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
        for thread in np.unique(self.thread).tolist():
            rows = np.flatnonzero(self.thread == thread)
            position, overlap = intervals.longest_overlap(
                (self.start_ns[rows], self.end_ns[rows]), starts, ends
            )
            better = overlap > most
            best[better], most[better] = rows[position[better]], overlap[better]
        return best


def _of_thread(nesting: Nesting, outermost: NDArray[np.bool_], thread: int) -> tuple[Rows, ...]:
    """(thread, start, end, row before, row after) of the stretches of one thread."""
    rows = nesting.thread_rows[thread]
    rows = rows[outermost[rows]]
    if len(rows) == 0:
        return (np.empty(0, np.int64),) * 5
    ends = nesting.end_ns[rows]
    reached = np.maximum.accumulate(ends)
    latest = np.maximum.accumulate(np.where(ends == reached, np.arange(len(rows)), 0))
    start, end = reached[:-1], nesting.start_ns[rows][1:]
    found = np.flatnonzero(end - start >= _MIN_NS)
    return np.full(len(found), thread), start[found], end[found], rows[latest[found]], rows[found + 1]


def _functions(trace: Trace, nesting: Nesting, before: Rows, middle: Rows) -> Rows:
    """Code of the python function open at each instant on the thread of the row before."""
    if not trace.meta.rows.get("python") or len(before) == 0:
        return np.full(len(before), -1)
    start = ints(trace.python, "start_ns")
    thread, wanted = ints(trace.python, "tid"), ints(trace.cpu, "tid")[before]
    row = running_at(start, start + ints(trace.python, "dur_ns"), thread, middle, wanted)
    return pick(codes(trace.python, "name"), row)
