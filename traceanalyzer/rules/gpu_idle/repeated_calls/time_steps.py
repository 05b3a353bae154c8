"""Loops over time steps whose inputs x[t] are known before the loop."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, grouped, rank_within
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.rule import Calls, Hits
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import Batching, lines_of, list_ops, short_name
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import LoopNodes, Recorded, Repeats, part_of
from traceanalyzer.tensors.ops.table import is_view, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors

RECURRENT = regex(
    r"^aten::(lstm|gru|rnn_tanh|rnn_relu|_cudnn_rnn|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell)$"
)
CELLS = regex(r"_cell$")
_TAKES = regex(r"^aten::(select|slice|narrow)$")
_JOINS, _WIDENS = "aten::cat", "aten::expand"
_ON_THE_WAY = regex(  # what takes one tensor, and weights
    r"^aten::(linear|conv1d|layer_norm|rms_norm|relu_?|gelu|silu|tanh|dropout|mul|expand)$"
)
_WITHOUT_SHAPES = regex(  # more may be the layers that make the next input of the last output
    r"^aten::(embedding|_?(unsafe_)?view|reshape|flatten|unsqueeze|squeeze|transpose|t|permute|contiguous|to|_to_copy)$"
)
_LAYERS = regex(r"^aten::(linear|addmm|mm|matmul|conv\w*|embedding)$")
_ITEM_WISE = regex(  # what treats each item of a batch alone; a norm over the batch does not
    r"^aten::(layer_norm|group_norm|instance_norm|rms_norm|\w*pool\w*|\w*softmax|\w*relu\w*|gelu|silu_?|mish|elu_?"
    r"|hardswish_?|softplus|sigmoid_?|tanh_?|clamp\w*|dropout|add_?|sub_?|mul_?|div_?|pow|exp|log|r?sqrt|contiguous"
    r"|clone|to|_to_copy|upsample\w*)$"
)
_VIEWS = regex(
    r"^aten::(_?(unsafe_)?view|reshape|(un)?flatten|(un)?squeeze|transpose|permute|t|detach|movedim)$"
)
_AUTOGRAD = r"^autograd::engine"
# Ops between the part and its layer; chosen.
_MAX_OPS_BEFORE_LAYER = 8
# Ops of a chain with views; chosen.
_MAX_CHAIN = 200
# At least this share of the chains is equal: the first and the last repeat may differ; chosen.
_MIN_EQUAL_SHARE = 0.75


def recurrent_layer(loop: Repeats) -> str:
    """Name of the recurrent layer that takes x[t] in repeat t of a loop; empty if there is none.

    With shapes, each repeat takes another t, possibly with other such parts, and the loop does not write into x. Or x
    is unbound before the loop. Without shapes, the op that takes the part comes right before the layer; views and
    lookups may lie between.
    """
    layer = next((place for place, name in enumerate(loop.names) if RECURRENT.search(name)), None)
    if layer is None:
        return ""
    has_shapes = bool(loop.dims[layer])
    if has_shapes and _takes_what_was_unbound(loop, layer):
        return loop.names[layer]
    way = [
        (layer - back) % len(loop.names) if has_shapes else layer - back for back in range(1, len(loop.names))
    ]
    for place in way:
        if place < 0:
            break
        name = loop.names[place]
        if _TAKES.search(name):
            if not has_shapes or _takes_another(loop, place):
                return loop.names[layer]
        elif name == _JOINS:
            if not (has_shapes and _joins_parts(loop, place)):
                break
        elif not (_WITHOUT_SHAPES.search(name) or (has_shapes and _ON_THE_WAY.search(name))):
            break
    return ""


def following_ops(loop: Repeats, layer: str) -> tuple[str, ...]:
    """Ops of a repeat without views and without the layer."""
    return tuple(name for name in loop.names if name != layer and not is_view(name))


def _takes_another(loop: Repeats, place: int) -> bool:
    """True if an op takes the next part of one tensor in each repeat."""
    number, signatures = signatures_of(loop.first_ops.events.trace, loop.rows[:, place])
    takes = [part_taken(signatures[which], 1) for which in number.tolist()]
    parts = [part for part in takes if part is not None]
    if len(parts) < _MIN_EQUAL_SHARE * loop.count or len({(part.whole, part.dim) for part in parts}) > 1:
        return False
    distances = set(np.diff([part.index for part in parts]).tolist())
    _, ops = signatures_of(loop.first_ops.events.trace, loop.rows[:2].ravel())
    return len(distances) == 1 and distances != {0} and not writes_part(parts[0], ops)


def _joins_parts(loop: Repeats, place: int) -> bool:
    """True if a cat joins only parts that were taken or expanded right before."""
    backwards = range(place, -1, -1)
    number, signatures = signatures_of(loop.first_ops.events.trace, loop.rows[1, [*backwards]])
    join, *before = (signatures[which] for which in number.tolist())
    available: Counter[Shape | None] = Counter()
    for op in before:
        part = part_taken(op, 1)
        if part is None and op.name != _WIDENS:
            break
        available[result_shape(op) if part is None else part.part] += 1
    joined_shapes: Counter[Shape | None] = Counter(tensors(join))
    return bool(joined_shapes) and joined_shapes <= available


def _takes_what_was_unbound(loop: Repeats, layer: int) -> bool:
    _, taking = signatures_of(loop.first_ops.events.trace, loop.splitting_ops)
    number, signatures = signatures_of(loop.first_ops.events.trace, loop.rows[:, layer])
    layer_inputs = {tuple(tensors(signatures[which])[:1]) for which in number.tolist()}
    return any(layer_inputs == {(part_of(op, loop.count),)} for op in taking)


@dataclass(frozen=True, slots=True, eq=False)
class LoopInputs:
    """The chains of ops that one loop within one step runs for each part of a tensor.

    Attributes:
        first_ops: the first op of each span, which is a chain or its backward.
        ends_ns: int64 (spans,), end of each.
        group: int64 (spans,), 0 for chains, 1 for backward.
        repeats: number of repeats of the loop.
        names: the ops of one chain, without views.
        whole, part: shapes of the tensor and of its part.
    """

    first_ops: Calls
    ends_ns: Rows
    group: Rows
    repeats: int
    names: tuple[str, ...]
    whole: Shape
    part: Shape


def loop_inputs_of(outer: Calls, recorded: Recorded, min_repeats: int) -> Iterator[LoopInputs]:
    """The chains of each step that begin with a layer on `x[t]`, another t each time, and take no other tensor.

    An op that writes into such a tensor in the same step, or backward between the repeats, ends the search: the parts
    are then not known before the loop, or are separate on purpose.

    Args:
        outer: outermost ops.
        recorded: nodes of backward.
        min_repeats: fewer repeats make no loop.
    """
    forward = outer[~outer.name.matches(_AUTOGRAD)]
    forward = forward[np.lexsort((forward.start_ns, forward.thread, forward.step))]
    number, signatures = signatures_of(forward.events.trace, forward.rows)
    parts = [part_taken(op) for op in signatures]
    takes = np.flatnonzero(np.array([part is not None for part in parts], bool)[number])
    if len(takes) < min_repeats:
        return
    each = [part for which in number[takes].tolist() if (part := parts[which])]
    key = np.array([hash((part.whole, part.strides, part.dim)) for part in each])
    loop, _ = grouped([key, forward.step[takes], forward.thread[takes]])
    again, _ = grouped([loop, rank_within(grouped([loop, np.array([part.index for part in each])])[0])])
    for which in np.flatnonzero(np.bincount(again) >= min_repeats).tolist():
        places = takes[again == which]
        part = parts[int(number[places[0]])]
        assert part is not None
        begin, end = np.searchsorted(forward.step, forward.step[places[0]] + np.arange(2))
        step, looped = (
            [signatures[op] for op in distinct(some).tolist()]
            for some in (number[begin:end], number[places[0] : places[-1]])
        )
        if writes_part(part, step) or makes_whole(part, looped):
            continue
        following = number[places[1] + 1 : places[1] + 1 + _MAX_CHAIN].tolist()
        chain = item_wise_chain(part, [signatures[op] for op in following])
        if chain is None:
            continue
        first, last = _equal_chains(number, places, *chain)
        if len(first) < max(min_repeats, _MIN_EQUAL_SHARE * len(places)):
            continue
        starts, ends = forward.start_ns[first], forward.end_ns[last]
        if recorded.runs_between(starts):
            continue
        back, back_ends = recorded.of_chains(starts, ends)
        chain_names = forward[first[0] : last[0] + 1].name
        yield LoopInputs(
            first_ops=forward.joined([forward[first], back]),
            ends_ns=np.append(ends, back_ends),
            group=np.repeat((0, 1), (len(starts), len(back))),
            repeats=len(starts),
            names=tuple(map(str, chain_names[~chain_names.meets(is_view)].values())),
            whole=part.whole,
            part=part.part,
        )


def _equal_chains(number: Rows, places: Rows, begin: int, end: int) -> tuple[Rows, Rows]:
    """Positions of the first and last op of the chains that equal the second one, which is surely whole."""
    steps = np.arange(begin, end) + 1
    places = places[places + end < len(number)]
    each = number[places[:, None] + steps]
    places = places[(each == each[1]).all(axis=1)]
    return places + steps[0], places + steps[-1]


@dataclass(frozen=True, slots=True)
class Taken:
    """A part of a tensor: one position, or a few, along a dimension."""

    whole: Shape
    strides: Shape
    dim: int
    index: int
    part: Shape
    part_strides: Shape


def part_taken(op: Signature, least_dims: int = 2) -> Taken | None:
    """The part that select, or a slice of one position, takes; None for other ops."""
    if op.name not in ("aten::select", "aten::slice", "aten::narrow"):
        return None
    try:
        whole, strides, dim = op.shape(0), op.stride(0) or (), int(op.scalar(1)) % len(op.shape(0))
        index = int(op.scalar(2))
        keeps_dim = op.name != "aten::select"
        if keeps_dim and int(op.scalar(3)) != (index + 1 if op.name == "aten::slice" else 1):
            return None
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
    part = (*whole[:dim], *((1,) if keeps_dim else ()), *whole[dim + 1 :])
    steps = (*strides[:dim], *(strides[dim : dim + 1] if keeps_dim else ()), *strides[dim + 1 :])
    return Taken(whole, strides, dim, index, part, steps) if len(part) >= least_dims else None


def writes_part(part: Taken, ops: Sequence[Signature]) -> bool:
    """True if one of these ops writes into a tensor of this shape, or into a part of it."""
    return any(tensors(op)[:1] in ([part.whole], [part.part]) for op in ops if op.name.endswith("_"))


def makes_whole(part: Taken, ops: Sequence[Signature]) -> bool:
    """True if the result of one of these ops has the shape of the whole."""
    return any(part.whole == result_shape(op) for op in ops if not is_view(op.name))


def item_wise_chain(part: Taken, following: Sequence[Signature]) -> tuple[int, int] | None:
    """(first, last + 1) of the ops that need only the part, from a layer on; None without a layer."""
    begin = next(
        (place for place, op in enumerate(following[:_MAX_OPS_BEFORE_LAYER]) if part.part in tensors(op)),
        None,
    )
    if begin is None or not reads_part(following[begin], part):
        return None
    result, ends, result_shapes = _Result(part.part), [begin], list[Shape | None]()
    for op in following[begin:]:
        view = is_view(op.name)
        data = (
            next(iter(tensors(op)), None) if _VIEWS.search(op.name) else None if view else item_wise_input(op)
        )
        if data is None or not result.fits(data):
            break
        result = _Result.of(op, data)
        ends.append(ends[-1] + 1)
        result_shapes.append(result.shape)
    next_inputs = tensors(following[ends[-1]]) if ends[-1] < len(following) else []
    if (
        len(next_inputs) > 1 and result.shape in result_shapes[:-1] and result.shape in next_inputs
    ):  # one of them may be of the loop
        ends = ends[: result_shapes.index(result.shape) + 2]
    layers = any(_LAYERS.search(op.name) for op in following[begin : ends[-1]])
    return (begin, ends[-1]) if layers else None


@dataclass(frozen=True, slots=True)
class _Result:
    """An op's result: its shape, the first sizes, or the number of elements."""

    shape: Shape | None
    first: Shape = ()
    elements: int = 0

    @classmethod
    def of(cls, op: Signature, data: Shape) -> _Result:
        shape = result_shape(op)
        if shape is None and is_view(op.name):
            return cls(None, elements=math.prod(data))
        if shape is None and "conv" in op.name:
            weight = next(iter(tensors(op)[1:]), ())  # of no shape where the recording has none
            return cls(None, (data[0], *weight["transpose" in op.name :][:1]))
        if shape is None and re.search("pool|upsample", op.name):
            return cls(None, data[:2])
        if op.name == "aten::embedding":
            return cls((*data, *tensors(op)[0][-1:]))
        return cls(shape or data)

    def fits(self, data: Shape) -> bool:
        """True if a tensor of this shape can be the result."""
        if self.shape is not None:
            return data == self.shape
        return math.prod(data) == self.elements if self.elements else data[: len(self.first)] == self.first


def reads_part(op: Signature, part: Taken) -> bool:
    """True if an op reads that part, by strides if they are recorded."""
    strides = next(
        (op.stride(position) for position, dims in enumerate(op.dims) if dims == list(part.part)), None
    )
    return not strides or not part.part_strides or strides == part.part_strides


def item_wise_input(op: Signature) -> Shape | None:
    """Shape of the one tensor that an op treats item by item, None for other ops."""
    shapes = tensors(op)
    if _LAYERS.search(op.name):
        position = 1 if op.name in ("aten::addmm", "aten::embedding") else 0
        weights = [shape for place, shape in enumerate(shapes) if place != position]
        plain = (
            len(shapes) > position
            and len(shapes[position]) > 1
            and all(len(shape) <= 2 or "conv" in op.name for shape in weights)
        )
        return shapes[position] if plain else None
    if (
        not _ITEM_WISE.search(op.name)
        or not shapes
        or len(shapes[0]) < 2
        or any(len(shape) > 1 for shape in shapes[1:])
    ):
        return None
    return shapes[0]


def recurrent_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    layer: str,
    batching: Batching,
) -> Hits:
    """Hits for loops that call a recurrent layer with one time step at a time."""
    ops = loops[0].first_ops.joined([loop.first_ops for loop in loops])
    lost, fix = batching.loops(loops, backward)
    largest = max(loops, key=lambda loop: loop.launches)
    lines = lines_of(ops, np.concatenate([loop.ends_ns for loop in loops]) - ops.start_ns)
    following = following_ops(largest, layer)
    call = (
        "Use nn.LSTM or nn.GRU with the weights of the cell" if layer.endswith("_cell") else "Call the layer"
    )
    return Hits(
        occurrences=ops,
        cause="recurrent-steps",
        named_by=next(iter(lines), None) or layer,
        lost=lost,
        fix=fix,
        confidence=Confidence.MEDIUM,
        message="{layer} runs {times_a_step}, each time on one time step x[t], and x is known before the loop"
        + ("; {follows} run with it" if following else "")
        + (", at {lines}" if lines else "")
        + "; each repeat launches {launches} kernels or copies, and adds {nodes} autograd nodes to backward",
        advice=f"{call} once on the whole sequence, as in out, state = lstm(x, state)"
        + (", and then what follows (head, loss) once on all of out" if following else "")
        + ". A loop is needed only where the model's own output is the next input, as in sampling.",
        evidence={
            "layer": layer,
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "nodes": round(sum(len(recorded.nodes) for recorded in backward) / len(ops), 1),
            "follows": list_ops(following),
            "lines": lines,
        },
    )


def inputs_hits(loops: list[LoopInputs], batching: Batching) -> Hits:
    """Hits for layers in a loop that take x[t] and no state."""
    ops = loops[0].first_ops.joined([loop.first_ops for loop in loops])
    ends = np.concatenate([loop.ends_ns for loop in loops])
    group = np.concatenate([loop.group + 2 * place for place, loop in enumerate(loops)])
    first, lines = loops[0], lines_of(ops, ops.dur_ns)
    return Hits(
        occurrences=ops,
        cause="loop-inputs",
        named_by=next(iter(lines), None) or short_name(first.names),
        lost=batching.lost(ops.start_ns, ends),
        fix=batching.edits(ops.start_ns, ends, group),
        confidence=Confidence.MEDIUM,
        message="{ops} run {repeats} times a step in a loop, each time on another part of one tensor, {part} of "
        "{whole}, and on nothing that the loop makes" + (", at {lines}" if lines else ""),
        advice="Run these layers once before the loop, on the whole tensor, and take each repeat's part of the result: "
        "e = encoder(x.flatten(0, 1)).unflatten(0, x.shape[:2]), then e[t]. Layers with different weights in each "
        "repeat need stacked weights and bmm.",
        evidence={
            "ops": list_ops(first.names),
            "members": len(first.names),
            "repeats": first.repeats,
            "part": "x".join(map(str, first.part)),
            "whole": "x".join(map(str, first.whole)),
            "lines": lines,
        },
    )
