"""Ops right before layers that make their weights, by shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule.views import Calls
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

_LAYERS = r"^aten::(linear|conv(_transpose)?[123]d)$"
_PRODUCTS = ("aten::mm", "aten::matmul", "aten::linear")
_JOINS = ("aten::cat", "aten::stack")
_COPIES = re.compile(r"^aten::(_?to(_copy)?|copy_|clone|contiguous)$")
_PACKED = frozenset({"signed char", "unsigned char", "int", "short int"})


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops right before a layer that make its weight.

    Attributes:
        first, layer: positions of the first op of it, and of the layer.
        weight: its shape.
        rank: inner size of a product among them; 0 of none.
        packed: whether it unpacks integers.
    """

    first: int
    layer: int
    weight: Shape
    rank: int
    packed: bool


def chains_of(ops: Calls, number: Rows, signatures: list[Signature], min_calls_share: float) -> list[Chain]:
    """What makes the weights of layers, where nearly all layers with a weight of that shape have it."""
    layers, (place, _) = np.flatnonzero(ops.name.matches(_LAYERS)), grouped([ops.thread, ops.step])
    makes = cache(lambda which, weight: _makes(signatures[which], weight))
    weight_of = cache(lambda which: _weight(signatures[which]))
    by_weight, counts = dict[Shape, list[Chain]](), dict[Shape, int]()
    for layer in layers.tolist():
        weight = weight_of(int(number[layer]))
        if weight is None:
            continue
        counts[weight] = counts.get(weight, 0) + 1
        chain = _makers_before(layer, weight, place, number, makes)
        if chain is not None:
            by_weight.setdefault(weight, []).append(chain)
    frequent = {
        weight for weight, members in by_weight.items() if len(members) >= min_calls_share * counts[weight]
    }
    return [member for weight in frequent for member in by_weight[weight]]


@dataclass(frozen=True, slots=True)
class _Making:
    """What an op does for a weight of some shape.

    Attributes:
        fits: it takes nothing but tensors of that shape, or that fit it.
        whole: it makes all of the weight; `inner`: as a product of that inner size.
        packed: of integers; `computes`: it is more than a copy.
    """

    fits: bool
    whole: bool
    inner: int
    packed: bool
    computes: bool


def _makes(op: Signature, weight: Shape) -> _Making:
    inner = _inner(op, weight)
    broadcasts = _broadcast(op, weight) and not re.match(_LAYERS, op.name)
    whole = inner > 0 or _joins(op, weight) or (broadcasts and _is_whole(op, weight))
    return _Making(broadcasts, whole, inner, bool(_PACKED & set(op.types)), not _COPIES.search(op.name))


def _makers_before(
    layer: int,
    weight: Shape,
    place: Rows,
    number: Rows,
    makes: Callable[[int, Shape], _Making],
) -> Chain | None:
    """The ops from the first that makes the weight up to the layer; None where nothing is computed.

    Args:
        place: equal for ops of one thread and step.
    """
    first, rank, packed, computes = layer, 0, False, False
    position = layer - 1
    while position >= 0 and place[position] == place[layer]:
        op = makes(int(number[position]), weight)
        if not op.whole and (position == layer - 1 or not op.fits):
            break
        if op.whole:
            first, rank = position, max(rank, op.inner)
            packed |= op.packed
            computes |= op.computes
        position -= 1
    return Chain(first, layer, weight, rank, packed) if computes else None


def _weight(op: Signature) -> Shape | None:
    """Shape of a layer's weight; None where it is not known, or the input has it, too."""
    try:
        data, weight = op.shape(0), op.shape(1)
    except LookupError:
        return None
    alike = _has_same_elements(data, weight) or math.prod(data) == math.prod(weight)
    return None if alike or len(weight) < 2 else weight


def _has_same_elements(shape: Shape, weight: Shape) -> bool:
    """As many elements, and as many rows or columns."""
    return math.prod(shape) == math.prod(weight) and (shape[:1] == weight[:1] or shape == weight[::-1])


def _joins(op: Signature, weight: Shape) -> bool:
    return op.name in _JOINS and _parts(tensors(op), weight)


def _is_whole(op: Signature, weight: Shape) -> bool:
    return any(_has_same_elements(shape, weight) for shape in tensors(op))


def _broadcast(op: Signature, weight: Shape) -> bool:
    """All of its tensors have the weight's shape, or some dimensions of it left out or of one."""
    return all(_has_same_elements(shape, weight) or _fits(shape, weight) for shape in tensors(op)) and bool(
        op.dims
    )


def _fits(shape: Shape, weight: Shape) -> bool:
    # One number per row.
    if math.prod(shape) == shape[0] == weight[0]:
        return True
    pairs = zip(shape[::-1], weight[::-1], strict=False)
    return len(shape) <= len(weight) and all(size in (1, whole) for size, whole in pairs)


def _parts(shapes: list[Shape], weight: Shape) -> bool:
    """Tensors that fill the weight together, and differ from it in one dimension."""
    parts = [shape for shape in shapes if len(shape) == len(weight)]
    fills = sum(map(math.prod, parts)) == math.prod(weight) and len(parts) == len(shapes) > 1
    return fills and all(sum(a != b for a, b in zip(part, weight, strict=True)) == 1 for part in parts)


def _inner(op: Signature, weight: Shape) -> int:
    """Inner size of a product of two matrices that has the weight's shape, either way round; 0 of others."""
    shapes = tensors(op) if op.name in _PRODUCTS else []
    if len(shapes) != 2 or any(len(shape) != 2 for shape in shapes) or len(weight) != 2:
        return 0
    (rows, inner), (other, columns) = shapes
    if op.name == "aten::linear":
        other, columns = columns, other
    return inner if inner == other and {(rows, columns), (columns, rows)} & {weight} else 0


def matrix(weight: Shape) -> tuple[int, int]:
    return weight[0], math.prod(weight[1:])
