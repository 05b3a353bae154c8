"""Values of tensors in an execution trace: storages at a version.

Each write to a storage, and each new use of a freed one, begins a version. Ops compute the same if they are the same op
with the same numbers, and what they read has equal content. The content of a storage is that of its parts: a write
changes the part that it covers. Numbers that Python passes as tensors are not recorded, and are guessed to be equal.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.execution_trace import Access, ExecutionTrace, Layout
from traceanalyzer.tensors.ops.table import op_row

LEAF = "torch::autograd::AccumulateGrad"
UNKNOWN_ARGUMENT = -1  # position among its inputs of what an op reads in nested ops, as it wraps its tensors
# Ops that factorise their first tensor.
SOLVERS = frozenset({"aten::linalg_solve", "aten::linalg_solve_ex", "aten::_linalg_solve_ex"})
# Ops whose results later ops fill.
_LEAVES_OPEN = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_MOST_PARTS = 1024  # of one storage. More would make reading it slow


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values of an execution trace in order of their first use.

    Attributes:
        producer: int64 (values,), op that made it; -1 if no op of the trace did.
        storage: int64 (values,).
        replaced: int64 (values,), op that began the storage's next version; the number of ops if none did.
        freed: bool (values,), whether that op had the storage as a new one.
        on_cpu: bool (values,).
        elements: int64 (values,), of the tensor that the op made; 0 if it is not known.
        reads, read, argument: int64 (reads,), op, value and position among the op's inputs of each read, in order.
        part: int64 (reads, 3), offset, elements and layout of the tensor that is read.
        results, made: int64 (results,), op and value of each result or write, in order.
        written: int64 (writes,), values in whose storages ops write, in order of the ops.
        reads_from, results_from, written_from: int64 (ops + 1,), where those of each op begin.
    """

    producer: Rows
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


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """What each op computes; (ops,).

    Attributes:
        key, matrix: int64, equal for ops that compute the same, or solve for the same matrix; -1 of others.
        numbers: bool, whether it reads a number that Python passes as a tensor.
        restores: bool, whether it writes only what was there before.
    """

    key: Rows
    numbers: Mask
    restores: Mask
    matrix: Rows


def values_of(recorded: ExecutionTrace) -> tuple[Values, Mask, Keys]:
    """(the values, which ops are views, what the ops compute)."""
    walk = _Walk(recorded)
    outermost = recorded.outermost()
    nested = np.flatnonzero(~recorded.outer & recorded.outer[outermost])
    inside: dict[int, list[int]] = {}
    for place in nested.tolist():
        inside.setdefault(int(outermost[place]), []).append(place)
    leaves = [name == LEAF for name in recorded.names]
    for op, (name, outer) in enumerate(zip(recorded.name.tolist(), recorded.outer.tolist(), strict=True)):
        if outer:
            walk.add(op, inside.get(op, []))
        elif leaves[name]:
            walk.read(op)
    numbers, restores, view = (np.array(each, bool) for each in (walk.numbers, walk.restores, walk.view))
    key, matrix = (np.array(each, np.int64) for each in (walk.key, walk.matrix))
    return walk.finished(), view, Keys(key, numbers, restores, matrix)


class _Tensor(NamedTuple):
    access: int
    position: int
    storage: int
    offset: int
    elements: int
    layout: int
    on_cpu: bool


@dataclass(slots=True)
class _Tensors:
    """Tensors of one op: what it reads and writes, and storages of its inputs and of its results."""

    read: list[_Tensor] = field(default_factory=list)
    written: list[_Tensor] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    results: dict[int, int] = field(default_factory=dict)
    on_cpu: set[int] = field(default_factory=set)
    wrapped: bool = False  # storages of some are not recorded
    hidden: bool = False  # nor are they those of nested ops


# Offset and layout.
_Part = tuple[int, int]


@dataclass(slots=True)
class _Content:
    """What a storage holds, in numbers equal for equal content: `parts`, which do not overlap, and the `rest` of it."""

    rest: int
    parts: dict[_Part, int] = field(default_factory=dict)


class _Walk:
    """The ops in order, and the value and content that each storage has at present."""

    def __init__(self, recorded: ExecutionTrace) -> None:
        self.key, self.matrix = ([-1] * len(recorded) for _ in range(2))
        self.view, self.restores, self.numbers = ([False] * len(recorded) for _ in range(3))
        self._bounds = recorded.tensors_of().tolist()
        columns = (recorded.access, recorded.position, recorded.storage, recorded.offset, recorded.elements)
        rows = zip(*(column.tolist() for column in (*columns, recorded.layout, recorded.on_cpu)), strict=True)
        self._tensors = [_Tensor(*row) for row in rows]
        self._name, self._inputs = recorded.name.tolist(), recorded.inputs.tolist()
        self._random, self._innermost = recorded.random.tolist(), recorded.innermost.tolist()
        self._rows = [op_row(name) for name in recorded.names]
        self._known = [name.startswith("aten::") for name in recorded.names]
        self._leaves_open = [name.split("::")[-1].rstrip("_") in _LEAVES_OPEN for name in recorded.names]
        self._solves = [name in SOLVERS for name in recorded.names]
        self._layouts = recorded.layouts
        self._overlaps: dict[tuple[int, int, int], bool] = {}
        self._current: dict[int, int] = {}
        self._content: dict[int, _Content] = {}
        self._numbers: dict[Any, int] = {}
        self._open, self._of_python = self._number("open"), self._number("number")
        self._values: list[list[int]] = []
        self._reads: list[tuple[int, int, int, int, int, int]] = []
        self._results: list[tuple[int, int]] = []
        self._writes: list[tuple[int, int]] = []

    def add(self, op: int, nested: Iterable[int]) -> None:
        """The values that an op reads and makes; what `nested` ops make may last: autograd saves it for backward."""
        tensors, inner = self._of(op), [self._of(place) for place in nested]
        if tensors.wrapped:
            tensors = _unwrapped([tensors, *inner])
        contents = self.read(op, tensors)
        held = tensors.held
        written = [*tensors.written, *(one for each in inner for one in each.written if one.storage in held)]
        new = [place for place in tensors.results if place not in held]
        self.view[op] = bool(tensors.results) and not new and not written
        for each in inner:
            places = {*each.results, *(one.storage for one in each.written)} - each.held - held - {*new}
            for place in places:
                content = _Content(self._number(op, place, len(self._values)))
                self._begin(op, place, content, on_cpu=place in each.on_cpu, freed=True)
        if self.view[op]:
            return
        which = self._name[op]
        pure = self._known[which] and not tensors.hidden and not any(self._random[place] for place in (op, *nested))
        # The host fills what is made on the CPU.
        on_device = tensors.results.keys().isdisjoint(tensors.on_cpu)
        pure &= self._rows[which].deterministic or (self._leaves_open[which] and on_device)
        key = (which, self._inputs[op], *contents) if pure and None not in contents else (op,)
        number = self._number(*key)
        self.key[op] = number if len(key) > 1 else -1
        if self._solves[which] and contents and contents[0] is not None:
            self.matrix[op] = self._number("matrix", contents[0])
        for position, place in enumerate(new):
            stays_open = self._leaves_open[which] and on_device
            result = self._open if stays_open else self._number("result", number, position)
            made = self._begin(op, place, _Content(result), on_cpu=place in tensors.on_cpu, freed=True)
            self._values[made][5] = tensors.results[place]
            self._results.append((op, made))
        self._write(op, number, written, tensors)

    def _write(self, op: int, number: int, written: list[_Tensor], tensors: _Tensors) -> None:
        self.restores[op] = bool(written) and not tensors.results.keys() - tensors.held
        for position, one in enumerate(written):
            now = self._content[one.storage]
            result = self._number("result", number, position)
            self.restores[op] &= now.parts.get((one.offset, one.layout)) == result
            self._content[one.storage] = self._covered(now, one, result)
        for place in dict.fromkeys(one.storage for one in written):
            self._writes.append((op, self._current[place]))
            content = self._content[place]
            made = self._begin(op, place, content, on_cpu=place in tensors.on_cpu, freed=False)
            self._values[made][5] = tensors.results.get(place, 0)
            self._results.append((op, made))

    def read(self, op: int, tensors: _Tensors | None = None) -> list[tuple[int, int] | None]:
        """(content, offset in it) of each tensor that an op reads; None of one that is not known."""
        tensors = tensors or self._of(op)
        for one in tensors.read:
            # Else an op has made a tensor of one element there: what lay there is gone, and Python passes it.
            held = self._values[self._current[one.storage]] if one.storage in self._current else None
            if one.on_cpu and one.elements == 1 and not (held and held[0] >= 0 and held[5] == 1):
                self.numbers[op] = True
                self._begin(-1, one.storage, _Content(self._of_python), on_cpu=True, freed=False)
        for place in tensors.held:
            if place not in self._current:
                # Host code may have changed what the host gave.
                on_cpu = place in tensors.on_cpu
                number = -1 if on_cpu else self._number("given", len(self._values))
                self._begin(-1, place, _Content(number), on_cpu=on_cpu, freed=False)
        for one in tensors.read:
            part = one.offset, one.elements, one.layout
            self._reads.append((op, self._current[one.storage], one.position, *part))
        return [self._content_read(one) for one in tensors.read]

    def _content_read(self, one: _Tensor) -> tuple[int, int] | None:
        content = self._content[one.storage]
        part = content.parts.get((one.offset, one.layout))
        if part is not None:
            return part, 0
        parts = sorted(each for each in content.parts.items() if self._overlap(each[0], one))
        if content.rest < 0 or (content.rest == self._open and not parts):
            return None
        return (self._number(content.rest, *parts) if parts else content.rest), one.offset

    def _covered(self, now: _Content, one: _Tensor, content: int) -> _Content:
        """The content after a write to a part. Parts that it covers in part are no longer told from the rest."""
        written = one.offset, one.layout
        others = {part: number for part, number in now.parts.items() if part != written}
        over = {part: number for part, number in others.items() if self._overlap(part, one)}
        left = sorted(each for each in over.items() if not self._lies_in(each[0], one))
        if left or len(others) > _MOST_PARTS:
            number = -1 if now.rest < 0 else self._number(now.rest, *sorted(others.items()))
            return _Content(number, {written: content})
        kept = {part: number for part, number in others.items() if part not in over}
        return _Content(now.rest, {**kept, written: content})

    def _overlap(self, part: _Part, one: _Tensor) -> bool:
        """Whether a part and a tensor may have elements in common."""
        key = part[1], one.layout, one.offset - part[0]
        if key not in self._overlaps:
            self._overlaps[key] = _overlap(self._layouts[part[1]], self._layouts[one.layout], key[2])
        return self._overlaps[key]

    def _lies_in(self, part: _Part, one: _Tensor) -> bool:
        """Whether all elements of a part are those of a tensor without gaps."""
        end = part[0] + _extent(self._layouts[part[1]])
        whole = self._layouts[one.layout] in ((), ((one.elements, 1),))
        return whole and one.offset <= part[0] and end <= one.offset + one.elements

    def _of(self, op: int) -> _Tensors:
        row, tensors = self._rows[self._name[op]], _Tensors()
        for one in self._tensors[self._bounds[op] : self._bounds[op + 1]]:
            if one.elements <= 0:
                tensors.wrapped |= one.elements < 0
                continue
            if one.on_cpu:
                tensors.on_cpu.add(one.storage)
            if one.access == Access.RESULT:
                tensors.results[one.storage] = max(one.elements, tensors.results.get(one.storage, 0))
                continue
            tensors.held.add(one.storage)
            if one.access == Access.WRITTEN or one.position in row.writes:
                tensors.written.append(one)
            if one.position not in row.unread:
                tensors.read.append(one)
        tensors.hidden = tensors.wrapped and self._innermost[op]
        return tensors

    def _number(self, *content: Any) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def _begin(self, producer: int, storage: int, content: _Content, *, on_cpu: bool, freed: bool) -> int:
        """A new value of a storage, which ends the one before."""
        old = self._current.get(storage)
        if old is not None:
            self._values[old][2:4] = producer, freed
        self._values.append([producer, storage, -1, False, on_cpu, 0])
        self._current[storage] = len(self._values) - 1
        self._content[storage] = content
        return self._current[storage]

    def finished(self) -> Values:
        ops = len(self.key)
        producer, storage, replaced, freed, on_cpu, elements = np.array(self._values, np.int64).reshape(-1, 6).T
        read_op, read, argument, *part = np.array(self._reads, np.int64).reshape(-1, 6).T
        result_op, made = np.array(self._results, np.int64).reshape(-1, 2).T
        write_op, written = np.array(self._writes, np.int64).reshape(-1, 2).T
        every = np.arange(ops + 1)
        return Values(
            producer=producer,
            storage=storage,
            replaced=np.where(replaced < 0, ops, replaced),
            freed=freed.astype(bool),
            on_cpu=on_cpu.astype(bool),
            reads=read_op,
            read=read,
            argument=argument,
            part=np.stack(part, axis=1),
            elements=elements,
            results=result_op,
            made=made,
            written=written,
            reads_from=np.searchsorted(read_op, every),
            results_from=np.searchsorted(result_op, every),
            written_from=np.searchsorted(write_op, every),
        )


def _unwrapped(ops: Iterable[_Tensors]) -> _Tensors:
    """What ops in order read and write of what was there before, and all that they make."""
    whole, made, read = _Tensors(), set[int](), dict[_Tensor, None]()
    for each in ops:
        before = each.held - made
        read |= {one._replace(position=UNKNOWN_ARGUMENT): None for one in each.read if one.storage in before}
        whole.written += [one for one in each.written if one.storage in before]
        whole.held |= before
        made |= each.results.keys() - whole.held
        whole.results |= each.results
        whole.on_cpu |= each.on_cpu
        whole.hidden |= each.hidden
    whole.read = list(read)
    return whole


def _extent(layout: Layout) -> int:
    """Elements from the first to the last, both included."""
    return 1 + sum((size - 1) * step for size, step in layout)


def _overlap(first: Layout, second: Layout, distance: int) -> bool:
    """Whether tensors of these layouts may have an element in common, the second one so far behind the first."""
    if not -_extent(second) < distance < _extent(first):
        return False
    step = math.gcd(*(step for _, step in (*first, *second)))
    return step == 0 or distance % step == 0
