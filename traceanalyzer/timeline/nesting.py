"""Nesting of the CPU lane per thread: parent, self time and called op of every row of `trace.cpu`.

A row that only overlaps another has no part in it: its parent is the nearest row that contains it whole.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from traceanalyzer.model import containment
from traceanalyzer.model.arrays import Mask, Rows, Small, numbered, pick
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.names import ANNOTATION


@dataclass(frozen=True)
class Nesting:
    """What contains what on each thread of the CPU lane.

    Arrays of shape (rows,), parallel to `trace.cpu`; overhead rows are no part of any thread's nesting.

    Attributes:
        start_ns, end_ns: int64.
        thread: int32, dense number of (pid, tid); -1 for overhead rows.
        parent: int32, row of the innermost containing row, -1 for none.
        self_ns: int64, duration less the children's.
        op: int32, row of the innermost cpu_op that is or contains the row, -1 for none. Nodes of backward whose hook
            runs a backward pass are no ops, but places of what the hook runs.
        annotation: bool, annotations; torch before 1.12 wrote those as ops, and their names tell.
        thread_rows: per thread its rows as int32, by start, and the outer before the inner.
        thread_start_ns: per thread the starts of those rows, int64.
        start_ns, end_ns: of the row itself.
        thread: dense number of (pid, tid); -1 for overhead rows.
        parent: row of the innermost containing row, -1 for none.
        self_ns: duration less the children's.
        op: row of the innermost cpu_op that is or contains the row, -1 for none. Nodes of backward whose hook runs a
            backward pass are no ops, but places of what the hook runs.
        annotation: annotations; torch before 1.12 wrote those as ops, and their names tell.
        thread_rows: per thread its rows, by start, and the outer before the inner.
        thread_start_ns: per thread the starts of those rows.
    """

    start_ns: Rows
    end_ns: Rows
    thread: Small
    parent: Small
    self_ns: Rows
    op: Small
    annotation: Mask
    thread_rows: tuple[Small, ...]
    thread_start_ns: tuple[Rows, ...]

    @cached_property
    def _outer_op(self) -> Small:
        return containment.outermost(self.parent, self.op).astype(np.int32)

    def top_op(self, rows: Rows) -> Rows:
        """Row of the outermost cpu_op that is or contains each of `rows`, -1 for none or where the row is -1."""
        return pick(self._outer_op, rows)

    def edges(self, thread: int) -> tuple[Rows, Rows]:
        """Starts and ends of the thread's rows, both sorted; ends are sorted faster than kept."""
        return self.thread_start_ns[thread], np.sort(self.end_ns.take(self.thread_rows[thread]), kind="stable")

    def around(self, thread: int, starts: Rows, ends: Rows) -> Rows:
        """The innermost row of the thread that contains each interval [starts[i], ends[i]], -1 for none."""
        if thread < 0:
            return np.full(len(starts), -1, np.int64)
        position = np.searchsorted(self.thread_start_ns[thread], starts, side="right") - 1
        began = pick(self.thread_rows[thread], position)
        return containment.first_reaching(began, self.parent, self.end_ns, ends)

    @classmethod
    def build(cls, trace: Trace) -> Self:
        cpu = trace.lanes.cpu
        start, dur = ints(cpu, "start_ns"), ints(cpu, "dur_ns")
        end = start + dur
        is_op = matching(cpu, "category", "cpu_op".__eq__)
        is_annotation = is_op & matching(cpu, "name", ANNOTATION.match)
        is_annotation |= matching(cpu, "category", "user_annotation".__eq__)
        is_op &= ~is_annotation
        thread = _threads(trace)
        # At the same start and of one duration an annotation is outside, then ops, then calls; names decide last.
        kind = np.where(is_annotation, 0, np.where(is_op, 1, 2))
        name = Texts.column(cpu, "name", np.arange(len(cpu))).ranks()
        order = np.lexsort((name, kind, -dur, start, thread))
        ordered_thread = thread[order]
        off = int(np.searchsorted(ordered_thread, 0))  # overhead rows, which are on no thread
        order, ordered_thread, ordered_end = order[off:], ordered_thread[off:], end[order[off:]]
        placed = containment.nearest_reaching(ordered_end, ordered_end, ordered_thread)
        parent = np.full(len(cpu), -1, np.int64)
        parent[order] = pick(order, placed)
        self_ns = dur - containment.child_sums(parent, dur)
        bounds = np.searchsorted(ordered_thread, np.arange(1, thread.max(initial=-1) + 1))
        by_thread = tuple(np.split(_small(order), bounds)), tuple(np.split(start[order], bounds))
        op = containment.inherited(parent, is_op)
        engine = matching(cpu, "name", lambda name: name.startswith(ENGINE))
        # A hook has called backward there: a node's function computes in the op of the node.
        if len(hooks := containment.marked_right_around(parent, op, engine)):
            is_op[hooks] = False
            op = containment.inherited(parent, is_op)
        return cls(start, end, _small(thread), _small(parent), self_ns, _small(op), is_annotation, *by_thread)


def _small(numbers: Rows) -> Small:
    return numbers.astype(np.int32)


def _threads(trace: Trace) -> Rows:
    process, processes = numbered(ints(trace.lanes.cpu, "pid"))
    thread, tids = numbered(ints(trace.lanes.cpu, "tid"))
    if len(processes) > 1:
        thread, _ = numbered(process * len(tids) + thread)
    thread[matching(trace.lanes.cpu, "category", "overhead".__eq__)] = -1
    return thread


def edges_around(starts: Rows, ends: Rows, at: Rows, side: Literal["left", "right"]) -> tuple[Rows, Rows]:
    """The last of a thread's edges before each instant and the first after it, by `side` as of `np.searchsorted`.

    The least and the largest int64 stand for no edge at all.
    """
    never = np.iinfo(np.int64)
    before, after = np.full(len(at), never.min), np.full(len(at), never.max)
    for edges in (starts, ends):
        place = np.searchsorted(edges, at, side=side)
        later, earlier = np.flatnonzero(place < len(edges)), np.flatnonzero(place)
        after[later] = np.minimum(after[later], edges[place[later]])
        before[earlier] = np.maximum(before[earlier], edges[place[earlier] - 1])
    return before, after


# Names of ops of a library, such as aten::mm; autograd:: and torch:: are nodes and wrappers that hold other ops.
_LIBRARY_OP = regex(r"^(?!autograd::|torch::)\w+::\w")


@dataclass(frozen=True, slots=True)
class CalledOps:
    """For every row of `trace.cpu` the op that the user called, int32 (rows,), -1 where it is in none.

    The outermost op may be a wrapper that holds half of the step: a compiled region, a node of autograd.

    Attributes:
        row: the outermost op above the innermost one that is or contains the row, with only library ops between.
    """

    row: Small

    def of(self, rows: Rows) -> Rows:
        """The op of some rows; -1 stays."""
        return pick(self.row, rows)

    def or_self(self, rows: Rows) -> Rows:
        """The op of some rows, and the row itself where it is in none."""
        op = self.of(rows)
        return np.where(op >= 0, op, rows)

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        library: Mask = matching(trace.lanes.cpu, "name", _LIBRARY_OP.match)
        above = pick(nesting.op, nesting.parent)
        ops = np.flatnonzero((nesting.op == np.arange(len(library))) & library & (above >= 0))
        ops = ops[library[above[ops]]]
        return cls(pick(containment.followed(len(library), ops, above[ops]), nesting.op).astype(np.int32))
