"""How much of the result of each op later ops read, in an execution trace."""

import json
import math
from collections.abc import Hashable, Iterator, Mapping

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.model.execution_trace import ExecutionTrace, Layout
from traceanalyzer.tensors.needed_values import as_step_before
from traceanalyzer.tensors.ops.table import Kind, OpRow, op_row
from traceanalyzer.tensors.values import Values

# Position of a layer's data; its other inputs are weights.
DATA = {"aten::embedding": 1, "aten::addmm": 1, "aten::baddbmm": 1}
_LOOKUPS = frozenset({"aten::index_select", "aten::index"})
_BY_ELEMENT = (Kind.POINTWISE, Kind.COPY)
# Ops along the dimension that is their first number. Losses of classes have these in the second one.
_ALONG = {f"aten::{name}" for name in ("softmax", "log_softmax", "logsumexp", "sum", "mean", "gather")}
_CLASS_LOSSES = frozenset({"aten::cross_entropy_loss", "aten::nll_loss_nd"})
# More parts than these are taken for all. Chosen.
_MOST_PARTS = 64
Parts = Mapping[Hashable, Layout]
"""What is read of a value: key of a part, equal for equal parts, to its layout."""


def read_shares(recorded: ExecutionTrace, values: Values, view: Mask, diagonal: Rows) -> Floats:
    """Share of the result of each op on rows that later ops need; 1 of other ops, of what may last, and of diagonals.

    An op on rows needs the rows of its data that others need of its result. Backward has no gradient for the others.
    """
    rows = [op_row(name) for name in recorded.names]
    share, needs = np.ones(len(recorded)), dict[int, dict[Hashable, Layout]]()
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
        if share[op] == 1:
            parts = {}
        for value, read in _reads(recorded, values, op, row, parts, length):
            maker = values.producer[value]
            # What lies outside of the part that forward reads has no gradient.
            if maker < 0 or recorded.backward[maker] or not recorded.backward[op]:
                needs.setdefault(value, {}).update(read)
    return as_step_before(recorded, share)


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
        numbers = json.loads(recorded.number_texts[recorded.inputs[op]])
        along = next(iter(numbers), None)
        along = next(iter(along), None) if type(along) is list else along
        dim = along % len(shape) if type(along) is int and shape else 0
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
    for place in range(begin, end):
        value, argument = int(values.read[place]), int(values.argument[place])
        offset, elements, number = values.part[place].tolist()
        layout, whole = recorded.layouts[number], int(values.elements[value])
        by_element = row.kind in _BY_ELEMENT
        is_data = bool(parts) and (size == elements if by_element else argument == DATA.get(name, 0))
        runs = [part[-1][0] if part and part[-1][1] == 1 else 1 for part in (layout, *parts.values())]
        unit = math.gcd(*runs) if by_element else length
        width = elements * unit // size if is_data else 0
        if is_data and by_element and elements == whole:
            yield value, parts
        elif is_data and (elements == whole or not runs[0] % width):
            rows = min(sum(_touched(part, unit) for part in parts.values()), size // unit)
            # Equal parts of a result need equal rows. A step of the whole size: these may lie anywhere.
            yield value, {hash(("rows", offset, number, *parts)): ((rows, whole), (width, 1))}
        elif argument == 0 and name in _LOOKUPS and len(made) == 1:
            index, indices = (
                tuple(values.read[place + 1 : end].tolist()),
                int(values.part[place + 1 : end, 1].sum()),
            )
            yield (
                value,
                {(offset, number, index): _looked_up(layout, _shapes(recorded, op)[0], size, indices)},
            )
        else:
            yield value, {(offset, number): layout}


def _looked_up(layout: Layout, shape: list[int], size: int, indices: int) -> Layout:
    """The part of a tensor that a result of this size has by so many indices along a dimension; all of it if unclear.

    Of several dimensions that fit it is the last: its elements lie in most rows. A mask has more than it takes.
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
