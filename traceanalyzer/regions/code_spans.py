"""What encloses ops on the program's main thread: annotations, modules, functions of the user's code, wrapper ops.

So do those in a hook that calls backward on autograd's thread, for which the main thread waits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.containment import depths, inherited, nearest_reaching
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, ints_at, matching
from traceanalyzer.timeline.backward_nodes import hooks_of, in_hooks
from traceanalyzer.timeline.names import STEP_MARK
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import between_marks

BETWEEN_ITERATIONS = "between iterations"
KINDS = ("annotation", "module", "function", "wrapper")
_MODULE = regex(r"^nn\.Module: (\w+?)(_\d+)?$")
# An op of no library that holds other ops: a custom autograd.Function, a compiled region.
_WRAPPER = regex(r"^(?!.*(::|Backward\d*$))\S")


@dataclass(frozen=True, slots=True)
class CodeSpans:
    """Spans of the program within steps, the outer before the inner; arrays of shape (spans,).

    Attributes:
        parent: int64, position of the span around each, -1 for none.
        depth: int64, how many spans are around each.
        kind: int64, position in `KINDS`.
        name: int64, position in `names`.
        row: int64, row of `trace.cpu`, -1 of modules, functions and time between iterations.
    """

    start_ns: Rows
    end_ns: Rows
    parent: Rows
    depth: Rows
    kind: Rows
    name: Rows
    row: Rows
    names: tuple[str, ...]

    def at(self, starts: Rows, ends: Rows) -> Rows:
        """The innermost span that contains each interval, -1 for none; int64."""
        span = np.searchsorted(self.start_ns, starts, side="right") - 1
        going = np.flatnonzero(span >= 0)
        while len(going := going[self.end_ns[span[going]] < ends[going]]):
            span[going] = self.parent[span[going]]
            going = going[span[going] >= 0]
        return span

    def inside(self, marked: Mask) -> Mask:
        """Which spans are, or are in, one of those that are marked."""
        return inherited(self.parent, marked) >= 0

    def named(self, pattern: re.Pattern[str]) -> Mask:
        """Which spans have a name with the pattern."""
        known = np.array([bool(pattern.search(name)) for name in self.names] or [False])
        return known[self.name] if len(self.name) else np.zeros(0, bool)

    @classmethod
    def of(cls, events: Events, thread: int, begins: Rows, ends: Rows) -> Self:
        """The spans of a thread as in `Nesting`, and of hooks, that lie within the steps [begins, ends)."""
        cpu, nesting = events.trace.lanes.cpu, events.nesting
        hooks = np.flatnonzero(hooks_of(events) & (nesting.thread != thread))
        rows = nesting.thread_rows[thread].astype(np.int64)
        if len(hooks):
            rows = np.append(rows, np.flatnonzero(in_hooks(events, np.arange(len(cpu))) & (nesting.thread != thread)))
        marks = rows[nesting.annotation[rows] & ~matching(cpu, "name", STEP_MARK.match)[rows]]
        tops = rows[(nesting.op[rows] == rows) & (nesting.top_op(rows) == rows)]
        wrappers = tops[matching(cpu, "name", _WRAPPER.match)[tops]]
        tid = int(ints_at(cpu, "tid", rows[:1])[0])
        hook_tid = ints_at(cpu, "tid", hooks)

        def of_program(frame_tid: Rows, start: Rows, end: Rows) -> Mask:
            """Frames of the thread, and those in hooks."""
            chosen = np.asarray(frame_tid == tid)
            for other in distinct(hook_tid).tolist():
                of_hooks = intervals.union(*_bounds(events, hooks[hook_tid == other]))
                chosen |= (frame_tid == other) & (intervals.covered(of_hooks, start, end) == end - start)
            return chosen

        def within(start: Rows, end: Rows) -> Rows:
            step = np.searchsorted(begins, start, side="right") - 1
            return np.flatnonzero((step >= 0) & (end <= pick(ends, step)))

        parts = [
            _of_rows(events, rows[within(*_bounds(events, rows))], kind) for rows, kind in ((marks, 0), (wrappers, 3))
        ]
        parts += [_of_python(events, of_program, within, modules=modules) for modules in (True, False)]
        parts.append(_between_iterations(events, within))
        start, end, kind, row = (np.concatenate([part[place] for part in parts]) for place in range(4))
        texts = [text for part in parts for text in part[4]]
        order = np.lexsort((kind == KINDS.index("wrapper"), -end, start))
        start, end = start[order], end[order]
        parent = nearest_reaching(end, end, np.zeros(len(end), np.int64))
        number = {name: place for place, name in enumerate(dict.fromkeys(texts))}
        code = np.array([number[text] for text in texts], np.int64)[order]
        return cls(start, end, parent, depths(parent), kind[order], code, row[order], tuple(number))


_Part = tuple[Rows, Rows, Rows, Rows, list[str]]


def _part(start: Rows, end: Rows, kind: int, row: Rows, names: Texts) -> _Part:
    """(start, end, kind, row of `trace.cpu`, names) of spans of one kind."""
    return start, end, np.full(len(start), kind), row, [str(name) for name in names.values()]


def _bounds(events: Events, rows: Rows) -> tuple[Rows, Rows]:
    return events.nesting.start_ns[rows], events.nesting.end_ns[rows]


def _of_rows(events: Events, rows: Rows, kind: int) -> _Part:
    return _part(*_bounds(events, rows), kind, rows, Texts.column(events.trace.lanes.cpu, "name", rows))


def _between_iterations(events: Events, within: Callable[[Rows, Rows], Rows]) -> _Part:
    start, end = between_marks(events.steps, events.nesting)
    chosen = within(start, end)
    names = Texts(np.zeros(len(chosen), np.int64), np.array([BETWEEN_ITERATIONS], object))
    return _part(start[chosen], end[chosen], 0, np.full(len(chosen), -1), names)


def _of_python(
    events: Events,
    of_program: Callable[[Rows, Rows, Rows], Mask],
    within: Callable[[Rows, Rows], Rows],
    *,
    modules: bool,
) -> _Part:
    """Functions of the user's code, or modules by their class: what all of a class cost."""
    code, python = events.user_code, events.trace.lanes.python
    if not modules:
        start, end, names = code.start_ns, code.end_ns, Texts(code.code, code.names)
        chosen = of_program(code.tid, start, end)
    elif events.trace.meta.rows.get("python"):
        is_module = matching(python, "name", lambda name: bool(_MODULE.match(name)))
        start = ints(python, "start_ns")
        end, names = start + ints(python, "dur_ns"), Texts.column(python, "name", np.arange(len(start)))
        chosen = is_module & of_program(ints(python, "tid"), start, end)
    else:
        return _of_rows(events, np.empty(0, np.int64), 1)
    rows = np.flatnonzero(chosen)
    rows = rows[within(start[rows], end[rows])]
    part = _part(start[rows], end[rows], 1 if modules else 2, np.full(len(rows), -1), names[rows])
    return (*part[:4], [_MODULE.sub(r"\1", name) for name in part[4]])
