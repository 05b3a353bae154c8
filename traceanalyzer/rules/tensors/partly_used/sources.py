"""Where a part of what an op makes comes from: the input of which the same part is enough."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.tensors.ops.shapes import UNREADABLE, remaining_dims
from traceanalyzer.tensors.ops.table import Kind, op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

Dims = frozenset[int]
"""Dimensions of which a part is enough."""

_BATCH = Dims({0})
_RESHAPES = ("flatten", "unflatten", "squeeze", "detach", "alias", "view_as", "reshape_as")
_DIAGONALS = ("diagonal", "diag", "trace")
_IMAGE_OPS = (Kind.CONVOLUTION, Kind.NORM, Kind.POOL, Kind.RESAMPLING)
_Sources = list[tuple[Shape, Dims]] | None
# At most this many ops are inspected, views included.
FAR = 2_000


def sources(op: Signature, whole: Shape, part: Dims) -> _Sources:
    """(input of which the same part is enough, its dimensions); None where more is needed.

    Several inputs are given only where the part is of a batch, the first dimension of all of them; else none.

    Args:
        part: dimensions of the whole that the op makes, of which a part is used.
    """
    try:
        return _sources(op, _name(op), whole, part)
    except UNREADABLE:
        return None


def _sources(op: Signature, name: str, whole: Shape, part: Dims) -> _Sources:
    last, row = len(whole) - 1, op_row(op.name)
    if row.kind in (Kind.POINTWISE, Kind.COPY):
        same = tensors(op).count(whole)
        return [(whole, part)] * same if same == 1 or part == _BATCH else []
    if name in ("cat", "stack", "randperm") or (name == "embedding" and last not in part):
        by_item = name == "cat" and part == _BATCH and int(op.scalar(1)) % len(whole) > 0
        return [(shape, part) for shape in tensors(op)] if by_item else []
    if row.kind is Kind.ATTENTION:
        return _sources_of_attention(op, part, last)
    if row.kind is Kind.REDUCTION and len(tensors(op)) == 1:
        remaining = remaining_dims(op, 2 if name.endswith("norm") else 1)
        before = Dims(dim for dim in (remaining[dim] for dim in part) if dim is not None)
        return [(op.shape(0), before)] if before else None
    if (free := _unmixed(op, name, len(whole))) is not None:
        return [(op.shape(0), part)] if part <= free else None
    if row.kind in _IMAGE_OPS:
        if name == "batch_norm" and op.scalar(5):
            return None
        free = Dims(range(row.batch_dims))
        channels = part == {1} and name.startswith("conv")
        return [(op.shape(0), part)] if part <= free else [] if channels else None
    return _factors(op, part, last) if row.kind is Kind.GEMM and result_shape(op) == whole else None


def _sources_of_attention(op: Signature, part: Dims, last: int) -> _Sources:
    """Query, key and value for a part of the batch; the query alone for some of its positions."""
    if part == _BATCH:
        return [(op.shape(position), part) for position in range(3)]
    if part == {last - 1}:
        return [(op.shape(0), part)]
    return None if last in part else []


def _unmixed(op: Signature, name: str, rank: int) -> Dims | None:
    """Dimensions along which a softmax, scan, flip, norm or pad mixes nothing; None for other ops."""
    every, row = Dims(range(rank)), op_row(op.name)
    if row.kind in (Kind.SOFTMAX, Kind.SCAN) or name == "flip":
        along = op.scalar(1)
        return every - {int(dim) % rank for dim in (along if isinstance(along, list) else [along])}
    if (row.kind is Kind.NORM and row.row_wise) or name == "pad":
        return Dims(range(rank - len(op.scalar(1)) // (2 if name == "pad" else 1)))
    return None


def _factors(op: Signature, part: Dims, last: int) -> _Sources:
    """The left factor where rows are taken of a product, both of a batch, none for columns; None for pairs of both."""
    if last in part and len(part) > 1:
        return None
    first = 1 if _name(op) in ("addmm", "baddbmm") else 0
    left, right = op.shape(first), op.shape(first + 1)
    batched = not op.name.endswith("linear") and len(left) > 2
    if batched and part == _BATCH:
        return [(left, part), (right, part)] if left[0] == right[0] else None
    return [] if last in part or (batched and part != {last - 1}) else [(left, part)]


def viewed(op: Signature, whole: Shape, part: Dims) -> tuple[Shape, Dims, float] | None:
    """(what an op views, the dimensions there, the part of them in this view); None where the view is another."""
    name = _name(op)
    try:
        shape = op.shape(0)
        if name in ("select", "unbind", "slice", "narrow"):
            return _cut_before(op, whole, part)
        if math.prod(shape) != math.prod(whole):
            return None
        if order := _order(op, name, len(shape)):
            fits = tuple(shape[dim] for dim in order) == whole
            return (shape, Dims(order[dim] for dim in part), 1.0) if fits else None
        exact = name in ("view", "reshape", "_unsafe_view", "unsqueeze")
        if (exact and result_shape(op) == whole) or name in _RESHAPES:
            return shape, _regrouped(whole, shape, part), 1.0
    except UNREADABLE:
        pass
    return None


def taken(op: Signature) -> tuple[Dims, float] | None:
    """(dimensions that a select, slice or index takes a part of, that part); None for other ops, and where unknown."""
    name = _name(op)
    try:
        whole = op.shape(0)
        if name == "index":
            chosen = [dim for dim, shape in enumerate(op.dims[1]) if shape]
            if not chosen or any(len(op.dims[1][dim]) > 1 for dim in chosen) or len(chosen) == len(whole):
                return None
            most = max(int(op.dims[1][dim][0]) for dim in chosen)
            return Dims(chosen), most / math.prod(whole[dim] for dim in chosen)
        if name in _DIAGONALS:
            first, two = (int(op.scalar(dim)) for dim in (2, 3)) if name == "diagonal" else (0, 1)
            sizes = whole[first], whole[two]
            return Dims({first % len(whole), two % len(whole)}), min(sizes) / math.prod(sizes)
        if name not in ("select", "slice", "narrow", "index_select", "gather"):
            return None
        dim = int(op.scalar(1)) % len(whole)
        if name == "gather":
            return None if dim == len(whole) - 1 else (Dims({dim}), math.prod(op.shape(2)) / math.prod(whole))
        return Dims({dim}), _count_taken(op, whole[dim]) / whole[dim]
    except UNREADABLE:
        return None


def is_diagonal(op: Signature) -> bool:
    """Whether an op takes a matrix's diagonal, or sums it."""
    return _name(op) in _DIAGONALS


def pieces(op: Signature) -> tuple[int, Shape, int] | None:
    """(dimension, shape of a piece, how many) that a chunk, split or unbind cuts into equal pieces; None of others."""
    if (name := _name(op)) not in ("chunk", "split", "unbind"):
        return None
    try:
        whole, dim = op.shape(0), int(op.scalar(1 if name == "unbind" else 2)) % len(op.shape(0))
        # For unbind this is the dimension, which may be 0.
        asked = int(op.scalar(1))
        size = 1 if name == "unbind" else asked if name == "split" else whole[dim] // asked
        piece = () if name == "unbind" else (size,)
        return (
            None
            if whole[dim] % size
            else (dim, (*whole[:dim], *piece, *whole[dim + 1 :]), whole[dim] // size)
        )
    except UNREADABLE:
        return None


def joined(op: Signature) -> tuple[Dims, float] | None:
    """(dimensions that a mean or sum joins, one over their size); None for other ops, and where it joins columns."""
    if _name(op) not in ("mean", "sum"):
        return None
    try:
        whole, over = op.shape(0), op.scalar(1)
        part = Dims(int(dim) % len(whole) for dim in (over if isinstance(over, list) else [over]))
        return (
            None if not part or len(whole) - 1 in part else (part, 1 / math.prod(whole[dim] for dim in part))
        )
    except UNREADABLE:
        return None


def _count_taken(op: Signature, size: int) -> int:
    """How many of so many a select, slice, narrow or index_select takes of a dimension."""
    name = _name(op)
    if name == "select":
        return 1
    if name == "index_select":
        return math.prod(op.shape(2))
    begin, end = (int(op.scalar(i)) if op.scalars[i] else None for i in (2, 3))
    if name == "narrow":
        return size if end is None else end
    return len(range(*slice(begin, end, int(op.scalar(4) or 1)).indices(size)))


def _cut_before(op: Signature, whole: Shape, part: Dims) -> tuple[Shape, Dims, float] | None:
    shape, dim = op.shape(0), int(op.scalar(1)) % len(op.shape(0))
    if _name(op) in ("select", "unbind"):
        fits = (*shape[:dim], *shape[dim + 1 :]) == whole
        return (shape, Dims(later_dim + (later_dim >= dim) for later_dim in part), 1.0) if fits else None
    remaining = _count_taken(op, shape[dim])
    fits = (*shape[:dim], remaining, *shape[dim + 1 :]) == whole
    return (shape, part, remaining / shape[dim] if dim in part else 1.0) if fits else None


def _order(op: Signature, name: str, rank: int) -> list[int] | None:
    """Which dimension of its input each of a view's is; None where the view is no permutation."""
    if name == "permute":
        return [int(dim) % rank for dim in op.scalar(1)]
    order = list(range(rank))
    if name in ("transpose", "swapaxes", "swapdims"):
        first, two = int(op.scalar(1)) % rank, int(op.scalar(2)) % rank
        order[first], order[two] = two, first
        return order
    return order[::-1] if name in ("t", "numpy_T") else None


def _regrouped(whole: Shape, shape: Shape, part: Dims) -> Dims:
    """The fewest dimensions of the same numbers in another shape that hold the given ones.

    Raises:
        ValueError: the given ones do not follow each other.
    """
    wide = sorted(dim for dim in part if whole[dim] > 1)
    if not wide or any(whole[dim] > 1 and dim not in part for dim in range(wide[0], wide[-1])):
        raise ValueError("apart")
    before, through = math.prod(whole[: wide[0]]), math.prod(whole[: wide[-1] + 1])
    ends = [math.prod(shape[:dim]) for dim in range(len(shape) + 1)]
    low = max(dim for dim, end in enumerate(ends) if before % end == 0 and end <= before)
    high = min(dim for dim, end in enumerate(ends) if end % through == 0 and end >= through)
    return Dims(dim for dim in range(low, high) if shape[dim] > 1)


def _name(op: Signature) -> str:
    return op.name.removeprefix("aten::")


@dataclass(frozen=True, slots=True)
class Readers:
    """Ops in order of thread and time, and which of them read a tensor of some size.

    Attributes:
        number, signatures: of each op, and what the numbers stand for.
        views: whether an op only views.
        last: position after the last op of its thread.
        places: positions of the ops of each signature.
        by_size: signatures by columns and elements of an input.
        unknown: positions of ops whose inputs are not recorded.
        results: shapes of what ops make, by signature, as far as they were asked for.
    """

    number: Rows
    signatures: Sequence[Signature]
    views: Mask
    last: Rows
    places: Sequence[Rows]
    by_size: Mapping[tuple[int, int], set[int]]
    unknown: Rows
    results: dict[int, Shape] = field(default_factory=dict)

    @classmethod
    def of(cls, number: Rows, signatures: Sequence[Signature], views: Mask, thread: Rows) -> Self:
        """Of all ops; those of a thread follow each other."""
        ends = np.cumsum(np.bincount(number, minlength=len(signatures)))
        by_size: dict[tuple[int, int], set[int]] = {}
        for which, op in enumerate(signatures):
            for shape in tensors(op):
                by_size.setdefault(_size(shape), set()).add(which)
        places = np.split(np.argsort(number, kind="stable"), ends[:-1])
        unknown = np.flatnonzero(np.array([not op.dims for op in signatures], bool)[number])
        last = np.searchsorted(thread, thread, side="right")
        return cls(number, signatures, views, last, places, by_size, unknown)

    def op(self, place: int) -> Signature:
        """The op at a position, with its inputs."""
        return self.signatures[int(self.number[place])]

    def result(self, place: int) -> Shape:
        """Shape of what the op at a position makes; empty where that is not known."""
        which = int(self.number[place])
        if which not in self.results:
            self.results[which] = result_shape(self.signatures[which]) or ()
        return self.results[which]

    def next_alike(self, place: int, after: int) -> int:
        """Position of the next op on the thread, after another one, with the same inputs; or after its last op."""
        alike = self.places[self.number[place]]
        following = alike[np.searchsorted(alike, after, side="right") :][:1]
        return (
            int(following[0]) if len(following) and following[0] < self.last[place] else int(self.last[place])
        )

    def between(self, place: int, end: int, whole: Shape) -> Iterator[tuple[Signature, Rows]]:
        """Ops after one position and before another that read so many rows and columns, with their positions."""
        for which in sorted(self.by_size.get(_size(whole), ())):
            places = self.places[which]
            low, high = np.searchsorted(places, (place + 1, end))
            if high > low:
                yield self.signatures[which], places[low:high]

    def reads(self, place: int, whole: Shape) -> bool:
        """Whether an op takes a tensor of so many rows and columns, or its inputs are not known."""
        return int(self.number[place]) in self.by_size.get(_size(whole), ()) or not self.op(place).dims


def _size(shape: Shape) -> tuple[int, int]:
    return shape[-1], math.prod(shape)


@dataclass(frozen=True, slots=True)
class Cut:
    """What an op takes of a tensor.

    Attributes:
        part: share that is taken, or one over the number of rows that are joined.
        dims: dimensions that it is a part of.
        averaged: whether it is a mean or sum over them.
        diagonal: whether it is a diagonal.
    """

    part: float
    dims: Dims
    averaged: bool
    diagonal: bool


def cuts_alike(ops: Readers, max_part: float) -> Iterator[Rows]:
    """Positions of what takes a small part, or a mean, of tensors of the same shape."""
    groups: dict[object, list[Rows]] = {}
    for which, op in enumerate(ops.signatures):
        if pieces(op) or (op.name == "aten::index" and op.dims[1:] == ([],) and len(tensors(op)) == 1):
            key: object = (op.name, str(op.dims), op.scalars)
        else:
            cut = taken(op) or joined(op)
            if cut is None or cut[1] > max_part:
                continue
            key = (op.name, str(op.dims), cut[0])
        groups.setdefault(key, []).append(ops.places[which])
    for places in groups.values():
        yield np.sort(np.concatenate(places))


def cut_at(place: int, ops: Readers) -> Cut | None:
    """What an op takes of its input; of an index that is not recorded, by what the next op reads."""
    op = ops.op(place)
    if part := taken(op):
        return Cut(part[1], part[0], averaged=False, diagonal=is_diagonal(op))
    if part := joined(op):
        return Cut(part[1], part[0], averaged=True, diagonal=False)
    if found_pieces := pieces(op):
        return _read_pieces(place, ops, *found_pieces)
    if op.name != "aten::index":
        return None
    whole = op.shape(0)
    for later in range(place + 1, min(int(ops.last[place]), place + 1 + FAR)):
        if ops.views[later]:
            continue
        read = [_cut_by_index(shape, whole) for shape in tensors(ops.op(later))]
        if read:
            return next(filter(None, read), None) or _viewed_next(place, whole, ops)
    return _viewed_next(place, whole, ops)


def _viewed_next(place: int, whole: Shape, ops: Readers) -> Cut | None:
    """What an index takes if the very next op views its result."""
    later = place + 1
    if later >= ops.last[place] or not ops.views[later]:
        return None
    return next(filter(None, (_cut_by_index(shape, whole) for shape in tensors(ops.op(later)))), None)


def _cut_by_index(shape: Shape, whole: Shape) -> Cut | None:
    """An index of a tensor whose result has such a shape; None where it has another."""
    rest = next((n for n in range(1, len(whole)) if shape[-len(whole) + n :] == whole[n:]), 0)
    if not rest or math.prod(shape) >= math.prod(whole):
        return None
    return Cut(math.prod(shape) / math.prod(whole), Dims(range(rest)), averaged=False, diagonal=False)


def _read_pieces(place: int, ops: Readers, dim: int, piece: Shape, count: int) -> Cut | None:
    """At most as many of the pieces as ops read tensors of their shape; None where an op's inputs are not known."""
    end = ops.next_alike(place, place)
    low, high = np.searchsorted(ops.unknown, (place, end))
    if low < high or not piece:
        return None
    read = sum(len(places) * tensors(op).count(piece) for op, places in ops.between(place, end, piece))
    return Cut(read / count, Dims({dim}), averaged=False, diagonal=False) if 0 < read < count else None
