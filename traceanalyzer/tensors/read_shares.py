"""How much of the result of each op later ops read, in an execution trace."""

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.model.execution_trace import ExecutionTrace, Layout
from traceanalyzer.tensors.needed_values import as_step_before
from traceanalyzer.tensors.ops.table import Kind, OpRow, op_row
from traceanalyzer.tensors.values import Values

# Position of a layer's data; its other inputs are weights.
DATA = {"aten::embedding": 1, "aten::addmm": 1, "aten::baddbmm": 1}
_INDEX = "aten::index"
_LOOKUPS = frozenset({"aten::index_select", _INDEX})
_PICKS = frozenset({"aten::gather", "aten::take_along_dim"})
_JOINS = frozenset({"aten::cat", "aten::concat", "aten::stack"})
_BY_ELEMENT = (Kind.POINTWISE, Kind.COPY)
# Ops along the dimension that is their first number. Losses of classes have these in the second one.
_ALONG = {f"aten::{name}" for name in ("softmax", "log_softmax", "logsumexp", "sum", "mean", "gather")}
_CLASS_LOSSES = frozenset({"aten::cross_entropy_loss", "aten::nll_loss_nd"})
_MOST_PARTS = 64  # more parts than these are taken for all; chosen
Parts = Mapping[Hashable, Layout]
"""What is read of a value: key of a part, equal for equal parts, to its layout."""


class _Pick(NamedTuple):
    """Key of a part of rows that an index tensor picks one by one along a dimension, of this length, of a tensor."""

    rank: int
    dim: int
    length: int
    rows: int
    indices: tuple[int, ...]


class _OfAlternative(NamedTuple):
    """Key of the rows of a tensor that was joined with others, along the dimension of which rows are picked."""

    key: int


def read_shares(recorded: ExecutionTrace, values: Values, view: Mask, diagonal: Rows) -> tuple[Floats, Mask]:
    """(share of the result of each op on rows that later ops need, whether it is one of alternatives).

    It is 1 of other ops, of what may last, and of diagonals. An op on rows needs the rows of its data that others need
    of its result. Backward has no gradient for the others. Of alternatives, of which each row picks one, it is a mean.
    """
    rows = [op_row(name) for name in recorded.names]
    share, needs = np.ones(len(recorded)), dict[int, dict[Hashable, Layout]]()
    alternative = np.zeros(len(recorded), bool)
    lasts = _lasting(recorded, values, rows)
    for op in np.flatnonzero(recorded.outer & ~view)[::-1].tolist():
        row, made = rows[recorded.name[op]], values.made_by(op)
        parts: Parts = {}
        if len(made) == 1 and not lasts[made[0]] and not diagonal[op]:
            parts = needs.get(int(made[0]), {})
        size = int(values.elements[made[0]]) if parts else 0
        length = _independent(recorded, op, row, size, parts) if len(parts) <= _MOST_PARTS and parts else 0
        if length:
            by_element = 1 if row.kind is Kind.GEMM else length
            touched = sum(_touched(part, by_element) for part in parts.values())
            share[op] = min(touched * by_element / size, 1.0)
            alternative[op] = any(isinstance(key, _OfAlternative) for key in parts)
        if share[op] == 1 and recorded.names[recorded.name[op]] not in _JOINS:
            parts = {}
        for value, read in _reads(recorded, values, op, row, parts, length):
            maker = values.producer[value]
            # What lies outside of the part that forward reads has no gradient.
            if maker < 0 or recorded.backward[maker] or not recorded.backward[op]:
                needs.setdefault(value, {}).update(read)
    return as_step_before(recorded, share), as_step_before(recorded, alternative)


def _lasting(recorded: ExecutionTrace, values: Values, rows: list[OpRow]) -> Mask:
    """Values that something else than an op may read; not those that an op replaces whole, element by element."""
    in_place = np.zeros(len(values.producer), bool)
    for op in np.flatnonzero(np.diff(values.written_from) == 1).tolist():
        made, written = values.made_by(op), values.overwritten_by(op)
        if rows[recorded.name[op]].kind in _BY_ELEMENT and len(made) == 1:
            in_place[written] = values.elements[made] == values.elements[written]
    lasts = (values.replaced == len(recorded)) | values.on_cpu | (values.elements == 0)
    return np.asarray(lasts | ~(values.freed | in_place))


def _independent(recorded: ExecutionTrace, op: int, row: OpRow, size: int, parts: Parts) -> int:
    """Elements of the result's rows that the op computes independently of each other; 0 of none."""
    if row.kind in _BY_ELEMENT:
        return 1
    if any(isinstance(key, _Pick) for key in parts):
        # A layer makes all elements of a row at once.
        return 0
    count = math.prod(_items(recorded, op, row))
    length, rest = divmod(size, count) if count else (0, 1)
    scattered = [part[-1][0] for part in parts.values() if part and part[0][1] == size]
    # Rows of another length are columns: a transposed view is between.
    aligned = all(not max(each, length) % max(min(each, length), 1) for each in scattered)
    return length if not rest and aligned else 0


def _items(recorded: ExecutionTrace, op: int, row: OpRow) -> list[int]:
    """The first dimensions of an op's data, along which it works on each item by itself; none if unknown."""
    name, shapes = recorded.names[recorded.name[op]], _shapes(recorded, op)
    data = DATA.get(name, 0)
    if data >= len(shapes):
        return []
    shape, last = shapes[data], len(shapes[data]) - 1
    dim = last if row.row_wise else 0
    if name in _ALONG:
        along = _first_number(recorded, op)
        dim = along % len(shape) if along is not None and shape else 0
    # Of a batch, items alone follow each other in memory in every memory format.
    first = dim > 0 or name in _CLASS_LOSSES or (row.batch_dims and row.kind is not Kind.ATTENTION)
    items = shape[: last if dim == last else int(first)]
    return items if name != "aten::gather" or shapes[-1][: len(items)] == items else []


def _shapes(recorded: ExecutionTrace, op: int) -> list[list[int]]:
    shapes: list[list[int]] = json.loads(recorded.shape_texts[recorded.shapes[op]])
    return shapes


def _touched(part: Layout, length: int) -> int:
    """How many rows of this length a part has elements of, at most."""
    return math.prod(size if step >= length else max(-(-size * step // length), 1) for size, step in part)


def _reads(
    recorded: ExecutionTrace, values: Values, op: int, row: OpRow, parts: Parts, length: int
) -> Iterator[tuple[int, Parts]]:
    """(value, its parts) that an op reads to compute these parts of its result, or all of it."""
    name, made = recorded.names[recorded.name[op]], values.made_by(op)
    begin, end = values.reads_from[op : op + 2].tolist()
    size = int(values.elements[made[0]]) if len(made) else 0
    if name in _JOINS:
        # Alternatives are whole and of one size: of others nobody knows how often each is picked.
        sizes = {*values.part[begin:end, 1].tolist(), *values.elements[values.read[begin:end]].tolist()}
        parts = _picks_along(recorded, op, end - begin, parts) if len(sizes) == 1 else {}
    for place in range(begin, end):
        value, argument = int(values.read[place]), int(values.argument[place])
        offset, elements, number = values.part[place].tolist()
        layout, whole = recorded.layouts[number], int(values.elements[value])
        by_element = row.kind in _BY_ELEMENT
        is_data = bool(parts) and (size == elements if by_element else argument == DATA.get(name, 0))
        runs = [part[-1][0] if part and part[-1][1] == 1 else 1 for part in (layout, *parts.values())]
        unit = math.gcd(*runs) if by_element else length
        width = elements * unit // size if is_data else 0
        if name in _JOINS and parts and elements == whole:
            rows = sum(-(-key.rows * elements // size) for key in parts if isinstance(key, _Pick))
            width = next(iter(parts.values()))[-1][0]
            yield value, {_OfAlternative(hash((place, *parts))): ((rows, whole), (width, 1))}
        elif is_data and by_element and elements == whole:
            yield value, parts
        elif is_data and (elements == whole or not runs[0] % width):
            rows = min(sum(_touched(part, unit) for part in parts.values()), size // unit)
            # Equal parts of a result need equal rows. A step of the whole size: these may lie anywhere.
            key: Hashable = hash(("rows", offset, number, *parts))
            if any(isinstance(each, _OfAlternative) for each in parts):
                key = _OfAlternative(hash(key))
            yield value, {key: ((rows, whole), (width, 1))}
        elif argument == 0 and layout == ((whole, 1),) and (pick := _picked(recorded, values, op, place, size)):
            yield value, {pick: ((pick.rows, whole), (size // pick.rows, 1))}
        elif argument == 0 and name in _LOOKUPS and len(made) == 1:
            index, indices = (tuple(values.read[place + 1 : end].tolist()), int(values.part[place + 1 : end, 1].sum()))
            yield (value, {(offset, number, index): _looked_up(layout, _shapes(recorded, op)[0], size, indices)})
        else:
            yield value, {(offset, number): layout}


def _picked(recorded: ExecutionTrace, values: Values, op: int, place: int, size: int) -> _Pick | None:
    """Which rows an op takes by an index for each: a gather's along all later dimensions or x[rows, index]; or None."""
    name, end = recorded.names[recorded.name[op]], int(values.reads_from[op + 1])
    if name not in _PICKS and name != _INDEX:
        return None
    shape, *others = _shapes(recorded, op)
    indices = tuple(values.read[place + 1 : end].tolist())
    rows = [
        math.prod(length for length, step in recorded.layouts[number] if step)
        for number in values.part[place + 1 : end, 2].tolist()
    ]
    dim: int | None = len(rows) - 1
    if name in _PICKS and len(rows) == 1 and [len(each) for each in others] == [len(shape)]:
        dim = _first_number(recorded, op)
    elif name != _INDEX or len(rows) < 2 or len({*rows}) > 1:
        return None
    dim = dim % len(shape) if dim is not None else len(shape)
    inner = math.prod(shape[dim + 1 :])
    taken = dim < len(shape) and rows[0] * inner == size < math.prod(shape)
    return _Pick(len(shape), dim, shape[dim], rows[0], indices) if taken else None


def _picks_along(recorded: ExecutionTrace, op: int, count: int, parts: Parts) -> Parts:
    """The parts, if each picks rows along the dimension along which an op joins so many tensors; else none."""
    dim, stacked = _first_number(recorded, op), recorded.names[recorded.name[op]] == "aten::stack"
    along = (
        isinstance(key, _Pick)
        and dim is not None
        and dim % key.rank == key.dim
        and (key.length == count if stacked else key.length % count == 0)
        for key in parts
    )
    return parts if all(along) else {}


def _first_number(recorded: ExecutionTrace, op: int) -> int | None:
    number = next(iter(json.loads(recorded.number_texts[recorded.inputs[op]])), None)
    number = next(iter(number), None) if type(number) is list else number
    return number if type(number) is int else None


def _looked_up(layout: Layout, shape: list[int], size: int, indices: int) -> Layout:
    """The part of a tensor that a result of this size has by so many indices along a dimension; all of it if unclear.

    Of several dimensions it is the last: its elements lie in most rows. A mask has more than it takes.
    """
    dims = _split(layout, shape)
    for place in range(len(dims) - 1, -1, -1):
        length, step = dims[place]
        count, rest = divmod(size * length, math.prod(shape))
        if not rest and 0 < count < length and indices in (count, length):
            return (*dims[:place], (count, step), *dims[place + 1 :])
    return layout


def _split(layout: Layout, shape: list[int]) -> Layout:
    """The layout with the dimensions of the shape, of which those that follow each other in memory are one in it."""
    merged, dims = [list(dim) for dim in layout], list[tuple[int, int]]()
    for length in reversed([length for length in shape if length != 1]):
        if not merged or merged[-1][0] % length:
            return layout
        dims.insert(0, (length, merged[-1][1]))
        merged[-1] = [merged[-1][0] // length, merged[-1][1] * length]
        if merged[-1][0] == 1:
            merged.pop()
    return tuple(dims)
