"""Ops right before layers that make their weights, by shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped, no_rows
from traceanalyzer.model.trace import ints, matching
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.rule.views import Calls
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

_LAYERS = r"^aten::(linear|conv(_transpose)?[123]d)$"
_PRODUCTS = ("aten::mm", "aten::matmul", "aten::linear")
_JOINS = ("aten::cat", "aten::stack")
_COPIES = re.compile(r"^aten::(_?to(_copy)?|copy_|clone|contiguous)$")
_PACKED = frozenset({"signed char", "unsigned char", "int", "short int"})
_NORMED = re.compile(r"^aten::_weight_norm(_interface)?$")
# Weight norm has two parameters: direction and length.
_PARAMETERS_OF_NORM = 2
_FRAMES = re.compile(
    r"torch/nn/utils/(parametrize\.py\(\d+\): forward|(weight|spectral)_norm\.py\(\d+\): compute_weight)$"
)
_UNKNOWN = -1


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


def chains_of(
    ops: Calls, number: Rows, signatures: list[Signature], min_calls_share: float, *, copies: bool = False
) -> list[Chain]:
    """What makes the weights of layers, where nearly all layers with a weight of that shape have it.

    Args:
        copies: what only casts or copies a weight makes it, too.
    """
    layers, (place, _) = np.flatnonzero(ops.name.matches(_LAYERS)), grouped([ops.thread, ops.step])
    makes = cache(lambda which, weight: _makes(signatures[which], weight))
    weight_of = cache(lambda which: _weight(signatures[which]))
    by_weight, counts = dict[Shape, list[Chain]](), dict[Shape, int]()
    for layer in layers.tolist():
        weight = weight_of(int(number[layer]))
        if weight is None:
            continue
        counts[weight] = counts.get(weight, 0) + 1
        chain = _makers_before(layer, weight, place, number, makes, copies=copies)
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
    *,
    copies: bool,
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
    return Chain(first, layer, weight, rank, packed) if computes or (copies and first < layer) else None


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


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Spans of ops that compute a weight for the second time in a step, or later.

    Attributes:
        first, last: int64 (spans,), positions in the ops.
        times: of all, how often a weight is computed in a step.
        weights: the most weights that there can be in a step.
    """

    first: Rows
    last: Rows
    times: int
    weights: int


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """What computes a weight each.

    Attributes:
        first, last: positions in the ops; `shape`: number of the weight's shape, -1 where that is not known.
        parameters: of each weight.
    """

    first: Rows
    last: Rows
    shape: Rows
    parameters: int = 1


def computed_again(
    ops: Calls,
    number: Rows,
    signatures: Sequence[Signature],
    chains: Sequence[Chain],
    leaves: Calls,
    leaf_shapes: Sequence[Shape],
    min_times: float,
) -> Computed | None:
    """Of the kind of evidence that has most spans: python frames, weight norm by its name, or shapes.

    A parameter gets one gradient in each backward pass, however often it is used. As many gradients as there are, so
    many weights may be different; of one shape where shapes are recorded.

    Args:
        ops: outermost ops in order, without views; `number` and `signatures` are theirs.
        chains: what makes the weights of layers, by shapes.
        leaves: what adds up the gradients of parameters, and the shape of each, empty where it is not known.
        min_times: fewer times per gradient may be several networks, or passes.
    """
    recorded = [shape for shape in leaf_shapes if shape]
    shapes = {
        shape: place
        for place, shape in enumerate(dict.fromkeys([*recorded, *(item.weight for item in chains)]))
    }
    if not recorded:
        shapes = dict.fromkeys(shapes, _UNKNOWN)
    kinds = (
        _in_frames(ops),
        _normalized_spans(ops, number, signatures, shapes),
        _chain_spans(chains, shapes),
    )
    of_leaves = (
        leaves.step,
        np.array([shapes[shape] if shape else _UNKNOWN for shape in leaf_shapes], np.int64),
    )
    candidates = (_repeated_spans(ops, spans, *of_leaves, min_times) for spans in kinds if len(spans.first))
    return max(
        (item for item in candidates if item is not None), key=lambda item: len(item.first), default=None
    )


def _repeated_spans(
    ops: Calls, spans: _Spans, leaf_step: Rows, leaf_shape: Rows, min_times: float
) -> Computed | None:
    step = ops.step[spans.first]
    group, _ = grouped([np.append(step, leaf_step), np.append(spans.shape, leaf_shape)])
    of_step, _ = grouped([np.append(step, leaf_step)])
    count = len(step)
    size = len(group) + 1
    of_shape = np.bincount(group[count:], minlength=size)[group[:count]]
    of_any = np.bincount(of_step[count:], minlength=size)[of_step[:count]] // spans.parameters
    weights = np.where(spans.shape == _UNKNOWN, of_any, of_shape)
    kind = np.where(spans.shape == _UNKNOWN, size + of_step[:count], group[:count])
    _, kind, times = np.unique(kind, return_inverse=True, return_counts=True)
    frequent = (weights > 0) & (times[kind] >= min_times * weights)
    again = frequent & (rank_within(kind) >= weights)
    if not again.any():
        return None
    steps = len(np.unique(step[frequent]))
    _, first = np.unique(kind[frequent], return_index=True)
    return Computed(
        spans.first[again],
        spans.last[again],
        round(int(frequent.sum()) / steps),
        round(int(weights[frequent][first].sum()) / steps),
    )


def _in_frames(ops: Calls) -> _Spans:
    """Ops that run in a frame of a parametrization."""
    trace = ops.events.trace
    python = trace.lanes.python
    rows = np.flatnonzero(matching(python, "name", _FRAMES.search))
    starts, dur, tid = (ints(python, column)[rows] for column in ("start_ns", "dur_ns", "tid"))
    each = [
        _ops_in_frames(ops, starts[tid == thread], (starts + dur)[tid == thread], thread)
        for thread in np.unique(tid).tolist()
    ]
    first, last = (np.concatenate([no_rows(), *(pair[place] for pair in each)]) for place in (0, 1))
    return _Spans(first, last, np.full(len(first), _UNKNOWN))


def _ops_in_frames(ops: Calls, starts: Rows, ends: Rows, tid: int) -> tuple[Rows, Rows]:
    """First and last op within each frame of one thread, of the outer frames that hold any."""
    starts, ends = starts[order := np.lexsort((-ends, starts))], ends[order]
    outer = np.append(True, ends[1:] > np.maximum.accumulate(ends)[:-1]) if len(ends) else ends.astype(bool)
    starts, ends = starts[outer], ends[outer]
    members = np.flatnonzero(_is_on_thread(ops, tid))
    first = np.searchsorted(ops.start_ns[members], starts)
    last = np.searchsorted(ops.start_ns[members], ends) - 1
    there = last >= first
    return members[first[there]], members[last[there]]


def _is_on_thread(ops: Calls, tid: int) -> Mask:
    return np.asarray(ints(ops.events.trace.lanes.cpu, "tid")[ops.rows] == tid)


def _normalized_spans(
    ops: Calls, number: Rows, signatures: Sequence[Signature], shapes: dict[Shape, int]
) -> _Spans:
    place = np.flatnonzero(ops.name.meets(_NORMED.search))
    first_shapes = [next(iter(tensors(signatures[which])), ()) for which in number[place].tolist()]
    return _Spans(
        place,
        place,
        np.array([shapes.get(shape, _UNKNOWN) for shape in first_shapes], np.int64),
        _PARAMETERS_OF_NORM,
    )


def _chain_spans(chains: Sequence[Chain], shapes: dict[Shape, int]) -> _Spans:
    ordered = sorted(chains, key=lambda chain: chain.first)
    first, last = (
        np.array(part, np.int64)
        for part in ([chain.first for chain in ordered], [chain.layer - 1 for chain in ordered])
    )
    return _Spans(first, last, np.array([shapes[chain.weight] for chain in ordered], np.int64))
