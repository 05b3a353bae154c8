"""Selections of CPU calls (ops, runtime calls, annotations) and of GPU work (kernels, copies, memsets)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, Value, distinct, distinct_pairs, pick, places_of
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.shapes import product_of
from traceanalyzer.model.texts import ClosedTexts, Texts
from traceanalyzer.model.trace import NULL_INT, ints, ints_at, matching
from traceanalyzer.timeline.device_work import KINDS, DeviceWork, pageable
from traceanalyzer.timeline.names import STEP_MARK
from traceanalyzer.timeline.selection import Events, Selection, cached_readonly, check_same_trace


class Calls(Selection):
    """Rows of threads of the CPU lane. As an index it holds all of them, in order of event_id.

    Of a missing row (the op of a kernel without one) `there` is False, texts are null, the rest is meaningless.
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

    def lines_with_common(self, share: float = 0.8, spent_ns: Rows | None = None) -> dict[str, int]:
        """Line of the user's code -> ns (`spent_ns` or durations), most first, after the function around this share."""
        spent_ns = self.dur_ns if spent_ns is None else spent_ns
        lines = self.line.sums(spent_ns)
        common = self.events.user_code.around_most(self.rows, spent_ns, share) if lines else ""
        return {common: int(spent_ns.sum()), **lines} if common else lines

    @cached_readonly
    def annotation(self) -> Texts:
        """The innermost annotation around each row that is no step mark."""
        nesting = self.events.nesting
        marks = nesting.annotation & ~matching(self.events.trace.lanes.cpu, "name", STEP_MARK.search)
        return Calls(self.events, nearest_marked(nesting.parent, marks, self._rows)).name

    def inside(self, outer: Calls) -> Mask:
        """Which rows lie in, or are, one of the others."""
        return self.index_of_enclosing(outer) >= 0

    def index_of_enclosing(self, outer: Calls) -> Rows:
        """Position in `outer` of the nearest of them that is or contains each row, -1 for none."""
        check_same_trace(self, outer)
        if not outer.there.any():
            return np.full(len(self), -1, np.int64)
        parent = self.events.nesting.parent
        place = places_of(outer.rows, len(parent))
        place[-1] = -1  # that of missing rows
        return place[nearest_marked(parent, place[:-1] >= 0, self._rows)]

    def contents(self) -> Calls:
        """Everything inside these rows, and themselves."""
        every = Calls.build(self.events)
        return every[every.inside(self)]

    def in_order(self, *, by_step: bool = False) -> Self:
        """Sorted by thread and start, or by step, thread and start: neighbours began one after the other."""
        order = (self.start_ns, self.thread, self.step) if by_step else (self.start_ns, self.thread)
        return self[np.lexsort(order)]

    def outermost(self) -> Self:
        """Those that lie in no other of them: their times are disjoint on each thread."""
        return self[~self.parent.inside(self)]

    def launched(self) -> tuple[Work, Rows]:
        """(the work launched by these rows or what is inside them, position of the row in this selection)."""
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


class Work(Selection):
    """Kernels, copies and memsets. As an index it holds all of them, in order of start."""

    __slots__ = ()

    @classmethod
    def build(cls, events: Events) -> Self:
        if events.work is None:
            raise Unavailable("no kernels, copies or memsets in the trace")
        every: Self = events.once(cls.__name__, lambda: cls(events, events.entries))
        return every

    @property
    def _work(self) -> DeviceWork:
        assert self.events.work is not None
        return self.events.work

    def _at(self, column: NDArray[Value]) -> NDArray[Value]:
        """A column of `DeviceWork` at the entries; the column itself where these are all."""
        return column if self._rows is self.events.entries else column[self._rows]

    @property
    def entries(self) -> Rows:
        """Entries of `DeviceWork`: what edits are made of."""
        return self._rows

    @cached_readonly
    def name(self) -> Texts:
        """Name of the kernel or copy."""
        return self.text("name")

    def text(self, column: str) -> Texts:
        """A text column of `trace.gpu`, such as grid."""
        return Texts.column(self.events.trace.lanes.gpu, column, self._work.row[self._rows])

    def number(self, column: str) -> Rows:
        """A number column of `trace.gpu`, such as bytes; null is the least int64."""
        return ints(self.events.trace.lanes.gpu, column)[self._work.row[self._rows]]

    def number_or_ops(self, column: str) -> Rows:
        """The same of the launching op where the kernel's row has none, as of collectives by torch's version."""
        own, of_op = self.number(column), ints_at(self.events.trace.lanes.cpu, column, self.op.rows)
        return np.where(own == NULL_INT, of_op, own)

    @cached_readonly
    def bytes(self) -> Rows:
        """Bytes of copies and memsets, 0 where not recorded."""
        return np.maximum(self.number("bytes"), 0)

    @cached_readonly
    def pageable(self) -> Mask:
        """Copies from or to host memory that is not pinned, as far as the trace says."""
        return pageable(self.events.trace)[self._work.row[self._rows]]

    @cached_readonly
    def kind(self) -> ClosedTexts:
        """compute, communication, copy_h2d, copy_d2h, copy_p2p, copy_d2d, copy_other or memset."""
        return ClosedTexts(self._at(self._work.kind), np.array(KINDS, object))

    def of_kind(self, *kinds: str) -> Self:
        """The pieces of these kinds, named as by `kind`. Raises ValueError: there is no such kind."""
        return self[self.kind.one_of(*kinds)]

    def by_device(self) -> Iterator[tuple[int, Self]]:
        """(device, its pieces), by ordinal."""
        for ordinal in distinct(self.device).tolist():
            yield ordinal, self[self.device == ordinal]

    def device_shares(self, min_share: float = 0.0) -> Iterator[tuple[Self, float]]:
        """(pieces of one device, their share of its GPU time), by ordinal; without shares below `min_share`."""
        every = Work.build(self.events)
        for device, pieces in self.by_device():
            share = pieces.total_ns / max(every[every.device == device].total_ns, 1)
            if share >= min_share:
                yield pieces, share

    @cached_readonly
    def start_ns(self) -> Rows:
        return self._at(self._work.start_ns)

    @cached_readonly
    def end_ns(self) -> Rows:
        return self._at(self._work.end_ns)

    @cached_readonly
    def device(self) -> Rows:
        """GPU ordinal within the process."""
        return self._at(self._work.device)

    @cached_readonly
    def stream(self) -> Rows:
        return self._at(self._work.stream)

    @cached_readonly
    def step(self) -> Rows:
        """Position of the step that launched it."""
        return self._at(self.events.steps.of_work)

    @cached_readonly
    def launch(self) -> Calls:
        """The call that started it."""
        return Calls(self.events, self._at(self._work.call))

    @cached_readonly
    def in_graph(self) -> Mask:
        """Started together with other work by one call: a CUDA graph."""
        return self._at(self._work.shared)

    @cached_readonly
    def op(self) -> Calls:
        """The innermost op that launched it."""
        return Calls(self.events, self._at(self._work.op))

    @cached_readonly
    def outer_op(self) -> Calls:
        """The outermost op that launched it: what the user called."""
        return self.op.outer_op

    @cached_readonly
    def line(self) -> Texts:
        """The user's line that launched it; of backward work see `lines_of`."""
        return self.launch.line.or_else(self.op.line)

    @cached_readonly
    def dims(self) -> Texts:
        """Recorded input shapes of the op, as JSON text."""
        return self.op.text("input_dims")

    @cached_readonly
    def blocks(self) -> Rows:
        """Blocks of the grid, 0 where not recorded."""
        return self.text("grid").numbers(product_of)

    @cached_readonly
    def threads(self) -> Rows:
        """Threads of a block, 0 where not recorded."""
        return self.text("block").numbers(product_of)

    @cached_readonly
    def delay_ns(self) -> Rows:
        """work.start - launch.start; the least int64 where the launch is not in the trace."""
        return self._at(self._work.delay_ns)

    def beside_ns(self) -> Rows:
        """How long work of another stream of the same device ran beside each piece."""
        overlap_ns, every = np.zeros(len(self), np.int64), self._work
        for device, stream in zip(*distinct_pairs(self.device, self.stream), strict=True):
            elsewhere = (every.device == device) & (every.stream != stream)
            cover = intervals.union(every.start_ns[elsewhere], every.end_ns[elsewhere])
            on_stream = (self.device == device) & (self.stream == stream)
            overlap_ns[on_stream] = intervals.covered(cover, self.start_ns[on_stream], self.end_ns[on_stream])
        return overlap_ns

    def in_order(self) -> Self:
        """Sorted by device, stream and start: neighbours ran one after the other."""
        return self[np.lexsort((self.start_ns, self.stream, self.device))]
