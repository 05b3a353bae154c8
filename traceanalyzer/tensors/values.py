"""Values of tensors in an execution trace: storages at a version.

Each write to a storage, and each new use of a freed one, begins a version. Values with equal content come of the same
op with the same numbers and equal inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.execution_trace import Access, ExecutionTrace
from traceanalyzer.model.records import dataclass
from traceanalyzer.tensors.ops.table import op_row

_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values of an execution trace in order of their first use.

    Attributes:
        producer: int64 (values,), op that made it; -1 if no op of the trace did.
        content: int64 (values,), equal for values with equal content.
        storage: int64 (values,).
        replaced: int64 (values,), op that began the storage's next version; the number of ops if none did.
        freed: bool (values,), whether that op had the storage as a new one.
        on_cpu: bool (values,).
        elements: int64 (values,), of the tensor that the op made; 0 if it is not known.
        reads, read, argument: int64 (reads,), op, value and position among the op's inputs of each read, in order.
        part: int64 (reads, 2), offset and elements of the tensor that is read.
        results, made: int64 (results,), op and value of each result or write, in order.
        written: int64 (writes,), values in whose storages ops write, in order of the ops.
        reads_from, results_from, written_from: int64 (ops + 1,), where those of each op begin.
    """

    producer: Rows
    content: Rows
    storage: Rows
    replaced: Rows
    freed: Mask
    on_cpu: Mask
    elements: Rows
    reads: Rows
    read: Rows
    argument: Rows
    part: Rows
    results: Rows
    made: Rows
    written: Rows
    reads_from: Rows
    results_from: Rows
    written_from: Rows

    def read_by(self, op: int) -> Rows:
        """Values that an op reads."""
        return self.read[self.reads_from[op] : self.reads_from[op + 1]]

    def arguments_of(self, op: int) -> Rows:
        """Positions of the inputs that an op reads, parallel to `read_by`."""
        return self.argument[self.reads_from[op] : self.reads_from[op + 1]]

    def made_by(self, op: int) -> Rows:
        """Values that an op makes or writes."""
        return self.made[self.results_from[op] : self.results_from[op + 1]]

    def overwritten_by(self, op: int) -> Rows:
        """Values in whose storages an op writes."""
        return self.written[self.written_from[op] : self.written_from[op + 1]]


def values_of(recorded: ExecutionTrace) -> tuple[Values, Mask, Rows]:
    """(the values, which ops are views, int64 (ops,) equal for ops that compute the same; -1 of what is no pure op)."""
    walk = _Walk(recorded)
    outermost = recorded.outermost()
    nested = np.flatnonzero(~recorded.outer & recorded.outer[outermost])
    inside: dict[int, list[int]] = {}
    for place in nested.tolist():
        inside.setdefault(int(outermost[place]), []).append(place)
    leaves = [name == _LEAF for name in recorded.names]
    for op, (name, outer) in enumerate(zip(recorded.name.tolist(), recorded.outer.tolist(), strict=True)):
        if outer:
            walk.add(op, inside.get(op, []))
        elif leaves[name]:
            walk.read(op)
    return walk.finished(), np.array(walk.view, bool), np.array(walk.key, np.int64)


@dataclass(slots=True)
class _Tensors:
    """Tensors of one op: storages that it reads, writes, and has as results."""

    read: list[tuple[int, int, int, int]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    results: dict[int, int] = field(default_factory=dict)
    on_cpu: set[int] = field(default_factory=set)


class _Walk:
    """The ops in order, and the value that each storage has at present. Contents that no op made are negative."""

    def __init__(self, recorded: ExecutionTrace) -> None:
        self.view, self.key = [False] * len(recorded), [-1] * len(recorded)
        self._bounds = recorded.tensors_of().tolist()
        columns = (recorded.access, recorded.position, recorded.storage, recorded.offset, recorded.elements)
        self._tensors = list(
            zip(*(column.tolist() for column in columns), recorded.on_cpu.tolist(), strict=True)
        )
        self._name, self._inputs = recorded.name.tolist(), recorded.inputs.tolist()
        self._random = recorded.random.tolist()
        self._rows = [op_row(name) for name in recorded.names]
        self._known = [name.startswith("aten::") for name in recorded.names]
        self._current: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}
        self._values: list[list[int]] = []
        self._reads: list[tuple[int, int, int, int, int]] = []
        self._results: list[tuple[int, int]] = []
        self._writes: list[tuple[int, int]] = []

    def add(self, op: int, nested: Iterable[int]) -> None:
        """The values that an op reads and makes.

        Args:
            nested: ops in it. What they make may last: autograd saves it for backward.
        """
        tensors, taken = self._of(op), self.read(op)
        inner = [self._of(place) for place in nested]
        held = {*tensors.held}
        written = [*tensors.written, *(place for each in inner for place in each.written if place in held)]
        new = [place for place in dict.fromkeys(tensors.results) if place not in held]
        self.view[op] = bool(tensors.results) and not new and not written
        for each in inner:
            for place in {*each.results, *each.written} - {*each.held} - held - {*new}:
                content = self._number(op, place, len(self._values))
                self._begin(op, place, content, on_cpu=place in each.on_cpu, freed=True)
        if self.view[op]:
            return
        row, known = self._rows[self._name[op]], self._known[self._name[op]]
        pure = known and row.deterministic and not any(self._random[place] for place in (op, *nested))
        # Host code may have changed what the host gave.
        pure &= not any(self._values[value][0] < 0 and self._values[value][5] for value, _ in taken)
        contents = tuple((self._values[value][1], offset) for value, offset in taken)
        number = self._number(self._name[op], self._inputs[op], contents) if pure else self._number(op)
        self.key[op] = number if pure else -1
        for which, place in enumerate(dict.fromkeys((*new, *written))):
            old = self._current.get(place)
            if place in held and old is not None:
                self._writes.append((op, old))
            content = self._number("result", number, which)
            made = self._begin(op, place, content, on_cpu=place in tensors.on_cpu, freed=place not in held)
            self._values[made][6] = tensors.results.get(place, 0)
            self._results.append((op, made))

    def read(self, op: int) -> list[tuple[int, int]]:
        """(value, offset) of each tensor that an op reads."""
        tensors = self._of(op)
        for place in tensors.held:
            if place not in self._current:
                self._begin(-1, place, -1 - len(self._values), on_cpu=place in tensors.on_cpu, freed=False)
        for place, offset, position, elements in tensors.read:
            self._reads.append((op, self._current[place], position, offset, elements))
        return [(self._current[place], offset) for place, offset, _, _ in tensors.read]

    def _of(self, op: int) -> _Tensors:
        row, tensors = self._rows[self._name[op]], _Tensors()
        for access, position, storage, offset, elements, on_cpu in self._tensors[
            self._bounds[op] : self._bounds[op + 1]
        ]:
            if not elements:
                continue
            if on_cpu:
                tensors.on_cpu.add(storage)
            if access == Access.RESULT:
                tensors.results[storage] = max(elements, tensors.results.get(storage, 0))
                continue
            tensors.held.append(storage)
            if access == Access.WRITTEN or position in row.writes:
                tensors.written.append(storage)
            if position not in row.unread:
                tensors.read.append((storage, offset, position, elements))
        return tensors

    def _number(self, *content: Any) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def _begin(self, producer: int, storage: int, content: int, *, on_cpu: bool, freed: bool) -> int:
        """A new value of a storage, which ends the one before."""
        old = self._current.get(storage)
        if old is not None:
            self._values[old][3:5] = producer, freed
        self._values.append([producer, content, storage, -1, False, on_cpu, 0])
        self._current[storage] = len(self._values) - 1
        return self._current[storage]

    def finished(self) -> Values:
        """All values."""
        ops = len(self.key)
        columns = np.array(self._values, np.int64).reshape(-1, 7).T
        producer, content, storage, replaced, freed, on_cpu, elements = columns
        read_op, read, argument, offset, read_elements = np.array(self._reads, np.int64).reshape(-1, 5).T
        result_op, made = np.array(self._results, np.int64).reshape(-1, 2).T
        write_op, written = np.array(self._writes, np.int64).reshape(-1, 2).T
        every = np.arange(ops + 1)
        return Values(
            producer=producer,
            content=content,
            storage=storage,
            replaced=np.where(replaced < 0, ops, replaced),
            freed=freed.astype(bool),
            on_cpu=on_cpu.astype(bool),
            reads=read_op,
            read=read,
            argument=argument,
            part=np.stack([offset, read_elements], axis=1),
            elements=elements,
            results=result_op,
            made=made,
            written=written,
            reads_from=np.searchsorted(read_op, every),
            results_from=np.searchsorted(result_op, every),
            written_from=np.searchsorted(write_op, every),
        )
