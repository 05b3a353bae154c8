"""Rows of the CPU lane as rules see them: ops, runtime and driver calls, annotations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints_at, matching
from traceanalyzer.rule.views.columns import check_column
from traceanalyzer.rule.views.events import Events
from traceanalyzer.rule.views.selection import Selection, cached_readonly, check_same_trace

if TYPE_CHECKING:
    from traceanalyzer.rule.views.work import Work


class Calls(Selection):
    """Rows of threads of the CPU lane. As an index it holds all of them, in order of event_id.

    A row may be missing (a kernel without op has an op that is not there): then `there` is False, texts are
    null, times and numbers are meaningless.
    """

    __slots__ = ()

    @classmethod
    def build(cls, events: Events) -> Self:
        every: Self = events.once(cls.__name__, lambda: cls(events, events.calls))
        return every

    @property
    def rows(self) -> Rows:
        """Rows of `trace.cpu`, no positions in `Calls`; -1 where there is none: what edits are made of."""
        return self._rows

    @property
    def there(self) -> Mask:
        """Whether there is a row."""
        return self._rows >= 0

    @cached_readonly
    def name(self) -> Texts:
        """Name of the op, call or annotation."""
        return self.text("name")

    def text(self, column: str) -> Texts:
        """A text column of `trace.cpu`, such as input_dims."""
        check_column("cpu", column, text=True)
        return Texts.column(self.events.trace.lanes.cpu, column, self._rows)

    @cached_readonly
    def start_ns(self) -> Rows:
        return self._of_rows(self.events.nesting.start_ns)

    @cached_readonly
    def end_ns(self) -> Rows:
        return self._of_rows(self.events.nesting.end_ns)

    def _of_rows(self, column: Rows) -> Rows:
        """A column of `trace.cpu`; the column itself where these are all of its rows."""
        every = self._rows is self.events.calls and len(column) == len(self._rows)
        return column if every else pick(column, self._rows)

    @property
    def self_ns(self) -> Rows:
        """Duration less what is inside."""
        return pick(self.events.nesting.self_ns, self._rows)

    @property
    def thread(self) -> Rows:
        """The operating system's thread."""
        return ints_at(self.events.trace.lanes.cpu, "tid", self._rows)

    @cached_readonly
    def step(self) -> Rows:
        """Position of the step in which it began."""
        return np.where(self.there, self.events.steps.at_cpu(self.start_ns), -1)

    @cached_readonly
    def is_op(self) -> Mask:
        """cpu_op rows, annotations left out."""
        return np.asarray(self.there & (pick(self.events.nesting.op, self._rows) == self._rows))

    @cached_readonly
    def is_top_op(self) -> Mask:
        """Ops in no other op: what the user called, or a wrapper of it."""
        return np.asarray(self.is_op & (self.events.nesting.top_op(self._rows) == self._rows))

    @cached_readonly
    def is_call(self) -> Mask:
        """Runtime and driver calls."""
        calls = matching(self.events.trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        return pick(calls, self._rows, False)

    @cached_readonly
    def is_annotation(self) -> Mask:
        """record_function blocks, step marks among them."""
        return pick(self.events.nesting.annotation, self._rows, False)

    @property
    def op(self) -> Calls:
        """The innermost op that is or contains each row."""
        return Calls(self.events, pick(self.events.nesting.op, self._rows))

    @property
    def outer_op(self) -> Calls:
        """The outermost op that is or contains each row: what the user called."""
        return Calls(self.events, self.events.nesting.top_op(self._rows))

    @property
    def parent(self) -> Calls:
        """The innermost row around each."""
        return Calls(self.events, pick(self.events.nesting.parent, self._rows))

    @cached_readonly
    def line(self) -> Texts:
        """`path.py(12): function` of the user's own code around each row; null without stacks."""
        return self.events.user_code.around(self._rows)

    @cached_readonly
    def annotation(self) -> Texts:
        """The innermost annotation around each row that is no step mark."""
        marks = self.events.once("marks", partial(_marks, self.events))
        return Calls(self.events, nearest_marked(self.events.nesting.parent, marks, self._rows)).name

    def inside(self, outer: Calls) -> Mask:
        """Which rows lie in, or are, one of the others."""
        return self.index_of_enclosing(outer) >= 0

    def index_of_enclosing(self, outer: Calls) -> Rows:
        """Position in `outer` of the nearest of them that is or contains each row, -1 for none."""
        if not isinstance(outer, Calls):
            raise TypeError(f"rows lie in Calls, not in {type(outer).__name__}")
        check_same_trace(self, outer)
        there = outer.rows[outer.there]
        if len(there) == 0:
            return np.full(len(self), -1, np.int64)
        marked = np.zeros(len(self.events.nesting.parent), bool)
        marked[there] = True
        place = np.full(len(marked) + 1, -1, np.int64)
        place[there] = np.flatnonzero(outer.there)
        return place[nearest_marked(self.events.nesting.parent, marked, self._rows)]

    def contents(self) -> Calls:
        """Everything inside these rows, and themselves."""
        every = Calls.build(self.events)
        return every[every.inside(self)]

    def outermost(self) -> Self:
        """Those that lie in no other of them: their times are disjoint on each thread."""
        return self[~self.parent.inside(self)]

    def launched(self) -> tuple[Work, Rows]:
        """(the work launched by these rows or what is inside them, position of the row in this selection)."""
        from traceanalyzer.rule.views.work import Work

        everything = Work.build(self.events)
        owner = everything.launch.index_of_enclosing(self)
        return everything[owner >= 0], owner[owner >= 0]

    def joined(self, parts: Sequence[Calls]) -> Calls:
        """All rows of several selections of the same events, one after the other."""
        for part in parts:
            check_same_trace(self, part)
        return Calls(self.events, np.concatenate([part.rows for part in parts]))

    def distinct(self) -> Calls:
        """Each row once, none missing, in the order of `event_id`."""
        return Calls(self.events, distinct(self._rows[self.there]))


def _marks(events: Events) -> Mask:
    """Which rows of `trace.cpu` are annotations other than step marks."""
    marks = Calls(events, np.flatnonzero(events.nesting.annotation))
    found = np.zeros(len(events.nesting.parent), bool)
    found[marks.rows[~marks.name.matches(r"^ProfilerStep#")]] = True
    return found
