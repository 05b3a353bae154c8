"""Ops that take a part of a tensor, or a mean of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.roofline.images import Dims
from traceanalyzer.rules.kernels.partly_used.readers import Readers
from traceanalyzer.rules.kernels.partly_used.sources import is_diagonal, joined, pieces, taken
from traceanalyzer.tensors.signatures import Shape, tensors

FAR = 2_000  # no more ops than this are looked at, views counted


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
            found = taken(op) or joined(op)
            if found is None or found[1] > max_part:
                continue
            key = (op.name, str(op.dims), found[0])
        groups.setdefault(key, []).append(ops.places[which])
    for places in groups.values():
        yield np.sort(np.concatenate(places))


def cut_at(at: int, ops: Readers) -> Cut | None:
    """What an op takes of its input; of an index that is not recorded, by what the next op reads."""
    op = ops.op(at)
    if found := taken(op):
        return Cut(found[1], found[0], averaged=False, diagonal=is_diagonal(op))
    if found := joined(op):
        return Cut(found[1], found[0], averaged=True, diagonal=False)
    if found_pieces := pieces(op):
        return _read_pieces(at, ops, *found_pieces)
    if op.name != "aten::index":
        return None
    whole = op.shape(0)
    for later in range(at + 1, min(int(ops.last[at]), at + 1 + FAR)):
        if ops.views[later]:
            continue
        read = [_picked(shape, whole) for shape in tensors(ops.op(later))]
        if read:
            return next(filter(None, read), None) or _viewed_next(at, whole, ops)
    return _viewed_next(at, whole, ops)


def _viewed_next(at: int, whole: Shape, ops: Readers) -> Cut | None:
    """What an index takes if the very next op views its result."""
    later = at + 1
    if later >= ops.last[at] or not ops.views[later]:
        return None
    return next(filter(None, (_picked(shape, whole) for shape in tensors(ops.op(later)))), None)


def _picked(shape: Shape, whole: Shape) -> Cut | None:
    """An index of a tensor whose result has such a shape; None where it has another."""
    rest = next((n for n in range(1, len(whole)) if shape[-len(whole) + n :] == whole[n:]), 0)
    if not rest or math.prod(shape) >= math.prod(whole):
        return None
    return Cut(math.prod(shape) / math.prod(whole), Dims(range(rest)), averaged=False, diagonal=False)


def _read_pieces(at: int, ops: Readers, dim: int, piece: Shape, count: int) -> Cut | None:
    """At most as many of the pieces as ops read tensors of their shape; None where an op's inputs are not known."""
    end = ops.next_alike(at, at)
    low, high = np.searchsorted(ops.unknown, (at, end))
    if low < high or not piece:
        return None
    read = sum(len(places) * tensors(op).count(piece) for op, places in ops.between(at, end, piece))
    return Cut(read / count, Dims({dim}), averaged=False, diagonal=False) if 0 < read < count else None
