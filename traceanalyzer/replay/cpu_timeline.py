"""One CPU timeline of a traced program: the main thread, and where autograd's thread runs in its place, that one.

Cut at every instant at which something starts or ends on these threads, so that the segments' sum is the step.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.intervals import overlaps, union
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

_MAX_ENCLOSING = 0.1  # share of a thread's outermost rows that hold an edge of the main one; training


@dataclass(frozen=True, slots=True)
class CpuTimeline:
    """Segments in order; arrays of shape (segments,).

    Attributes:
        start_ns, end_ns: int64, as traced; within a step each begins where the one before ends.
        row: int64, row of `trace.cpu` of the innermost op, call or annotation that is open, -1 for none.
        step: int64, position of the step among those that were asked for.
        threads: int64 of shape (threads,), threads as in `Nesting`, the main one first.
    """

    start_ns: Rows
    end_ns: Rows
    row: Rows
    step: Rows
    threads: Rows

    @classmethod
    def of(cls, nesting: Nesting, threads: Rows, begins: Rows, ends: Rows) -> Self:
        """Cut the steps [begins[i], ends[i]) at every edge of the threads' rows."""
        inner = [_edges(nesting, thread, begins[0], ends[-1]) for thread in threads]
        edges = distinct(np.concatenate([begins, ends, *inner]))
        start, end = edges[:-1], edges[1:]
        step = np.searchsorted(begins, start, side="right") - 1
        inside = (step >= 0) & (start < pick(ends, step))
        start, end, step = start[inside], end[inside], step[inside]
        row = np.full(len(start), -1, np.int64)
        # The last thread that has a row owns the time, and the main thread comes first.
        for thread in threads.tolist():
            outermost = nesting.thread_rows[thread]
            outermost = outermost[nesting.parent[outermost] < 0]
            covered = union(nesting.start_ns[outermost], nesting.end_ns[outermost])
            _, within = overlaps((start, end), *covered)  # not all segments for each of many threads
            innermost = nesting.around(thread, start[within], end[within])
            row[within] = np.where(innermost >= 0, innermost, row[within])
        return cls(start, end, row, step, threads)

    def at(self, instants: Rows) -> Rows:
        """Segment in which each instant lies, or the one before; int64 of the shape of `instants`."""
        return np.maximum(np.searchsorted(self.start_ns, instants, side="right") - 1, 0)


def _edges(nesting: Nesting, thread: int, low: int, high: int) -> Rows:
    """Starts and ends of a thread's rows in [low, high]."""
    begun = [int(nesting.around(thread, np.array([low]), np.array([low]))[0])]
    while begun[-1] >= 0:
        begun.append(int(nesting.parent[begun[-1]]))
    rows = np.append(_within(nesting, thread, low, high), np.array(begun[:-1], np.int64))
    both = np.concatenate((nesting.start_ns[rows], nesting.end_ns[rows]))
    return both[(both >= low) & (both <= high)]


def program_threads(nesting: Nesting, steps: Steps, is_op: Mask, launches: Rows, low: int, high: int) -> Rows:
    """The main thread, and those in its place from `low` to `high` that run or launch something; as in `Nesting`."""
    # The thread whose annotations mark the steps; without marks the one that starts most work.
    marks = np.flatnonzero(nesting.annotation) if steps.marked else np.empty(0, np.int64)
    marks = marks[
        np.isin(nesting.start_ns[marks], steps.cpu_start_ns) | np.isin(nesting.end_ns[marks], steps.cpu_end_ns)
    ]
    main = int(np.bincount(nesting.thread[marks if len(marks) else launches]).argmax())
    edges = np.sort(_edges(nesting, main, low, high))
    chosen = [main]
    for thread in range(len(nesting.thread_rows)):
        rows = _within(nesting, thread, low, high)
        rows = rows[nesting.parent[rows] < 0]
        if thread == main or not is_op[rows].any():
            continue
        first, last = nesting.start_ns[rows], nesting.end_ns[rows]
        enclosed = np.searchsorted(edges, last) > np.searchsorted(edges, first, "right")
        if enclosed.mean() <= _MAX_ENCLOSING:
            chosen.append(thread)
    return np.array(chosen, np.int64)


def _within(nesting: Nesting, thread: int, low: int, high: int) -> Rows:
    first, last = np.searchsorted(nesting.thread_start_ns[thread], (low, high))
    return nesting.thread_rows[thread][first:last].astype(np.int64)
