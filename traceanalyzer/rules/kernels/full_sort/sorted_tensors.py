"""What a sort makes of its inputs, and how much of that other ops read, by the inputs that were recorded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.rule.views import Calls
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature

SORTS = ("aten::sort", "aten::argsort", "aten::msort")
WHOLE = 2**62
"""More elements than any tensor has: an op that reads all of it, or what cannot be told."""

_INDEX = "long int"
_NUMBER = re.compile(r"-?\d{1,18}$")
# They read nothing: views of the same memory that an op around them explains, and what fills new memory.
_READS_NOTHING = re.compile(
    r"^aten::(as_strided|alias|detach_?|narrow|(empty|zeros|ones|full|rand|randn)_like|new_\w+|zero_|fill_)$"
)
# They read or write their first tensor where indices say, which is done to what was not sorted: the indices are.
_INDEXES = re.compile(r"^aten::(gather|take_along_dim|index_select|scatter(_(add|reduce))?_?)$")
_ABSURD = 2**62  # elements: damaged files have such shapes


@dataclass(frozen=True, slots=True)
class Sorted:
    """The results of one sort: tensors of its input's shape, of indices and, of most sorts, of values.

    Attributes:
        shape: of the input and the results.
        dim: along which it sorts, 0 the first.
        kind: type of the input's elements.
        types: of the results that the caller gets.
    """

    shape: tuple[int, ...]
    dim: int
    kind: str
    types: frozenset[str]

    @classmethod
    def of(cls, op: Signature) -> Self | None:
        """None for ops that are no sort, and where shape, type or dimension were not recorded."""
        try:
            shape, kind = op.shape(0), op.types[0]
            numbers = [int(text) for text in op.scalars if _NUMBER.match(text)]
            dim = 0 if op.name == "aten::msort" else numbers[0] % len(shape)
        except (LookupError, ArithmeticError):
            return None
        if op.name not in SORTS or kind not in ITEM_BYTES or dim >= len(shape):
            return None
        if min(shape) <= 0 or math.prod(shape) >= _ABSURD:
            return None
        types = {"aten::argsort": {_INDEX}, "aten::msort": {kind}}.get(op.name, {_INDEX, kind})
        return cls(shape, dim, kind, frozenset(types))

    @property
    def length(self) -> int:
        """Elements that are sorted with each other."""
        return self.shape[self.dim]

    @property
    def rows(self) -> int:
        """How many times so many are."""
        return math.prod(self.shape) // self.length

    @property
    def bytes(self) -> int:
        """Of the input."""
        return math.prod(self.shape) * ITEM_BYTES[self.kind]

    def read_by(self, op: Signature) -> int:
        """How many of the sorted elements an op may read: k for the first k, -k for the last k, 0 for none of them.

        Tensors are known by shape and type alone: whatever takes one of the results' may take the result.
        """
        shape = list(self.shape)
        tensors = list(zip(op.dims, op.types, strict=False))
        mine = [i for i, (dims, kind) in enumerate(tensors) if dims == shape and kind in self.types]
        listed = any(isinstance(dims, list) and shape in dims for dims, _ in tensors)
        if not mine and not listed:
            return 0
        if _READS_NOTHING.match(op.name) or self._is_of_the_input(op, mine):
            return 0
        return self._part(op) if mine == [0] else WHOLE

    def _is_of_the_input(self, op: Signature, mine: list[int]) -> bool:
        values_only = mine == [0] and op.types[0] != _INDEX
        return values_only and (op.name in SORTS or _INDEXES.match(op.name) is not None)

    def _part(self, op: Signature) -> int:
        try:
            dim, first, last = self._bounds(op)
        except (LookupError, TypeError):
            return WHOLE
        if first == 0 and last == self.shape[dim]:
            return 0  # x[:]: what takes the view has the same shape
        if dim != self.dim or (first > 0 and last < self.length):
            return WHOLE
        return last if first == 0 else first - self.length

    def _bounds(self, op: Signature) -> tuple[int, int, int]:
        """(dimension, positions along it [first, last)) that a view holds; LookupError for other ops."""
        if op.name not in ("aten::slice", "aten::select"):
            raise LookupError(op.name)
        dim = int(op.scalar(1)) % len(self.shape)
        first = self._position(op, 2, dim, 0)
        last = first + 1 if op.name == "aten::select" else self._position(op, 3, dim, self.shape[dim])
        return dim, first, last

    def _position(self, op: Signature, position: int, dim: int, default: int) -> int:
        size, at = self.shape[dim], int(op.scalar(position)) if op.scalars[position] else default
        return min(max(at + size if at < 0 else at, 0), size)


@dataclass(frozen=True, slots=True)
class Readers:
    """Ops by the shapes of what they take.

    Attributes:
        ops: all of them.
        signatures: their distinct names and inputs.
        of_shape: shape -> positions in `signatures` of those that take a tensor of it.
        order: int64 (ops,), the ops sorted by signature.
        begin: int64 (signatures + 1,), where those of each begin in `order`.
    """

    ops: Calls
    signatures: Sequence[Signature]
    of_shape: Mapping[tuple[int, ...], list[int]]
    order: Rows
    begin: Rows

    @classmethod
    def of(cls, ops: Calls, number: Rows, signatures: Sequence[Signature]) -> Self:
        """`number` says which signature each op has."""
        of_shape: dict[tuple[int, ...], list[int]] = {}
        for which, op in enumerate(signatures):
            for shape in {tuple(one) for dims in op.dims for one in _tensors(dims)}:
                of_shape.setdefault(shape, []).append(which)
        order = np.argsort(number, kind="stable")
        return cls(
            ops, signatures, of_shape, order, np.searchsorted(number[order], np.arange(len(signatures) + 1))
        )

    def reading(self, result: Sorted) -> tuple[Calls, Rows]:
        """(ops that may read some of the result, how much of it as `Sorted.read_by` says), in order of event_id."""
        reads = [
            (which, result.read_by(self.signatures[which])) for which in self.of_shape.get(result.shape, ())
        ]
        parts = [
            (self.order[self.begin[which] : self.begin[which + 1]], read) for which, read in reads if read
        ]
        users = np.concatenate([np.empty(0, np.int64), *(part for part, _ in parts)])
        amount = np.repeat([0, *(read for _, read in parts)], [0, *(len(part) for part, _ in parts)])
        order = np.argsort(users)
        return self.ops[users[order]], np.asarray(amount, np.int64)[order]


def _tensors(dims: object) -> list[list[int]]:
    """The shapes in what was recorded of one input: a tensor, or a list of them."""
    if not isinstance(dims, list):
        return []
    shapes = [one for one in dims if isinstance(one, list)] or [dims]
    return [one for one in shapes if all(isinstance(size, int) for size in one)]


def most_read(result: Sorted, sorts: Calls, readers: Readers) -> Rows:
    """How many elements at one end what follows each sort reads, WHOLE for both ends; int64 (sorts,).

    Args:
        result: of all these sorts, which have the same inputs.
    """
    users, reads = readers.reading(result)
    first, last = np.zeros(len(sorts), np.int64), np.zeros(len(sorts), np.int64)
    for thread in distinct(sorts.thread).tolist():
        those, own = np.flatnonzero(users.thread == thread), np.flatnonzero(sorts.thread == thread)
        own = own[np.argsort(sorts.start_ns[own], kind="stable")]
        at, follows = _sorts_before(sorts[own], users[those])
        np.maximum.at(first, own[at[follows]], reads[those[follows]])
        np.maximum.at(last, own[at[follows]], -reads[those[follows]])
    return np.where((first > 0) & (last > 0), WHOLE, np.maximum(first, last))


def _sorts_before(sorts: Calls, users: Calls) -> tuple[Rows, Mask]:
    """(the last of these sorts that began before each user, whether the user may have what it made), on one thread.

    What is made in a step is used in that step, unless nothing is sorted later: then all later steps may use it.
    """
    of = np.searchsorted(sorts.start_ns, users.start_ns) - 1  # a sort may read what the one before it made
    at = np.maximum(of, 0)
    kept = (of == len(sorts) - 1) | (users.step == sorts.step[at])
    return at, (of >= 0) & kept & (users.start_ns >= sorts.end_ns[at])
