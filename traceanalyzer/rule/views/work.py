"""Pieces of GPU work as rules see them: kernels, copies, memsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, Value, distinct, distinct_pairs
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.shapes import product_of
from traceanalyzer.model.texts import ClosedTexts, Texts
from traceanalyzer.model.trace import ints
from traceanalyzer.rule.views.calls import Calls
from traceanalyzer.rule.views.columns import check_column
from traceanalyzer.rule.views.events import Events
from traceanalyzer.rule.views.selection import Selection, cached_readonly
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.host_memory import pageable


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
        check_column("gpu", column, text=True)
        return Texts.column(self.events.trace.lanes.gpu, column, self._work.row[self._rows])

    def number(self, column: str) -> Rows:
        """A number column of `trace.gpu`, such as bytes; null is the least int64."""
        check_column("gpu", column, text=False)
        return ints(self.events.trace.lanes.gpu, column)[self._work.row[self._rows]]

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
        """The pieces of these kinds, named as by `kind`.

        Raises:
            ValueError: there is no such kind.
        """
        return self[self.kind.one_of(*kinds)]

    def by_device(self) -> Iterator[tuple[int, Self]]:
        """(device, its pieces), by ordinal."""
        device = self.device
        if len(device) and (device == device[0]).all():
            yield int(device[0]), self
            return
        for ordinal in distinct(device).tolist():
            yield ordinal, self[device == ordinal]

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
        """The user's line that launched it; of backward work that of the forward op where it is known."""
        return self.launch.line.or_else(self.op.line)

    @cached_readonly
    def dims(self) -> Texts:
        """Recorded input shapes of the op, as JSON text."""
        return self.op.text("input_dims")

    @cached_readonly
    def types(self) -> Texts:
        """Recorded element types of the op, as JSON text."""
        return self.op.text("input_type")

    @cached_readonly
    def blocks(self) -> Rows:
        """Blocks of the grid, 0 where not recorded."""
        return _products(self.text("grid"))

    @cached_readonly
    def threads(self) -> Rows:
        """Threads of a block, 0 where not recorded."""
        return _products(self.text("block"))

    @cached_readonly
    def delay_ns(self) -> Rows:
        """work.start - launch.start; the least int64 where the launch is not in the trace."""
        return self._at(self._work.delay_ns)

    def beside_ns(self) -> Rows:
        """How long work of another stream of the same device ran beside each piece."""
        beside, every = np.zeros(len(self), np.int64), self._work
        for device, stream in zip(*distinct_pairs(self.device, self.stream), strict=True):
            others = (every.device == device) & (every.stream != stream)
            cover = intervals.union(every.start_ns[others], every.end_ns[others])
            own = (self.device == device) & (self.stream == stream)
            beside[own] = intervals.covered(cover, self.start_ns[own], self.end_ns[own])
        return beside

    def in_order(self) -> Self:
        """Sorted by device, stream and start: neighbours ran one after the other."""
        start, stream, device = self.start_ns, self.stream, self.device
        if (start[1:] < start[:-1]).any():
            return self[np.lexsort((start, stream, device))]
        if (stream == stream[:1]).all() and (device == device[:1]).all():
            return self
        return self[np.lexsort((stream, device))]  # stable: each stream stays in the order of start


def _products(texts: Texts) -> Rows:
    """Product of the sizes in each JSON list, 0 where there are none."""
    sizes = np.zeros(len(texts.names) + 1, np.int64)
    for code in texts.occurring():
        sizes[code] = product_of(texts.names[code])
    products: NDArray[np.int64] = sizes[texts.code]
    return products
