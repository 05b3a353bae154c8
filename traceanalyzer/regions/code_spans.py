"""What encloses ops on the program's main thread: annotations, modules, functions of the user's code, wrapper ops.

So do those in a hook that calls backward on autograd's thread, for which the main thread waits.
"""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.containment import depths, first_reaching, inherited, nearest_reaching
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import codes, ints, ints_at, matching, texts_of
from traceanalyzer.timeline.backward_nodes import hooks_of, in_hooks
from traceanalyzer.timeline.names import STEP_MARK
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import between_marks

BETWEEN_ITERATIONS = "between iterations"
KINDS = ("annotation", "module", "function", "wrapper")
_MODULE = regex(r"^nn\.Module: (\w+?)(_\d+)?$")
# An op of no library that holds other ops: a custom autograd.Function, a compiled region.
_WRAPPER = regex(r"^(?!.*(::|Backward\d*$))\S")
_Part = tuple[int, Rows, Rows, Rows, Texts]  # kind, starts, ends, rows of `trace.cpu` or -1, names


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
        """The innermost span that contains each interval, -1 for none."""
        began = np.searchsorted(self.start_ns, starts, side="right") - 1
        return first_reaching(began, self.parent, self.end_ns, ends)

    def inside(self, pattern: re.Pattern[str]) -> Mask:
        """Which spans are, or are in, one whose name has the pattern."""
        return inherited(self.parent, Texts(self.name, np.array(self.names, object)).matches(pattern)) >= 0

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

        code = events.user_code
        functions = code.start_ns, code.end_ns, code.tid, Texts(code.code, code.names)
        frames = [(KINDS.index("module"), *_modules(events)), (KINDS.index("function"), *functions)]
        parts = [
            (KINDS.index(kind), *_bounds(events, rows), rows, Texts.column(cpu, "name", rows))
            for kind, rows in (("annotation", marks), ("wrapper", wrappers))
        ]
        for kind, start, end, frame_tid, names in frames:
            chosen = np.flatnonzero(of_program(frame_tid, start, end))
            parts.append((kind, start[chosen], end[chosen], np.full(len(chosen), -1), names[chosen]))
        start, end = between_marks(events.steps, nesting)
        names = Texts(np.zeros(len(start), np.int64), np.array([BETWEEN_ITERATIONS], object))
        parts.append((KINDS.index("annotation"), start, end, np.full(len(start), -1), names))
        return cls._nested(parts, begins, ends)

    @classmethod
    def _nested(cls, parts: list[_Part], begins: Rows, ends: Rows) -> Self:
        """The spans of all parts that lie within the steps [begins, ends)."""
        start, end, row = (np.concatenate([part[place] for part in parts]) for place in (1, 2, 3))
        kind = np.repeat([part[0] for part in parts], [len(part[1]) for part in parts])
        texts = np.concatenate([part[4].values() for part in parts])
        step = np.searchsorted(begins, start, side="right") - 1
        chosen = np.flatnonzero((step >= 0) & (end <= pick(ends, step)))
        order = chosen[np.lexsort((kind[chosen] == KINDS.index("wrapper"), -end[chosen], start[chosen]))]
        start, end = start[order], end[order]
        parent = nearest_reaching(end, end, np.zeros(len(end), np.int64))
        number = {name: place for place, name in enumerate(dict.fromkeys(map(str, texts[chosen])))}
        name = np.array([number[str(text)] for text in texts[order]], np.int64)
        return cls(start, end, parent, depths(parent), kind[order], name, row[order], tuple(number))


def _bounds(events: Events, rows: Rows) -> tuple[Rows, Rows]:
    return events.nesting.start_ns[rows], events.nesting.end_ns[rows]


def _modules(events: Events) -> tuple[Rows, Rows, Rows, Texts]:
    """(starts, ends, threads, classes) of the calls of modules: what all of a class cost."""
    python = events.trace.lanes.python
    rows = np.flatnonzero(matching(python, "name", _MODULE.match))
    start, dur, tid = (ints(python, column)[rows] for column in ("start_ns", "dur_ns", "tid"))
    classes = np.array([_MODULE.sub(r"\1", name) for name in texts_of(python, "name")], object)
    return start, start + dur, tid, Texts(codes(python, "name")[rows], classes)
