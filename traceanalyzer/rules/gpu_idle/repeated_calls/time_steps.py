"""Ops in a loop that work on one part of a tensor each time, and on nothing that the loop makes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, grouped
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.roofline.results import made_of, product_of
from traceanalyzer.rule.recorders import recorded_nodes
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats, part_of
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.names import VIEWING_OP

RECURRENT = re.compile(
    r"^aten::(lstm|gru|rnn_tanh|rnn_relu|_cudnn_rnn|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell)$"
)
CELLS = re.compile(r"_cell$")
_TAKES = re.compile(r"^aten::(select|slice|narrow)$")
_JOINS, _WIDENS = "aten::cat", "aten::expand"
_ON_THE_WAY = re.compile(  # what takes one tensor, and weights
    r"^aten::(linear|conv1d|layer_norm|rms_norm|relu_?|gelu|silu|tanh|dropout|mul|expand)$"
)
_WITHOUT_SHAPES = re.compile(  # more may be the layers that make the next input of the last output
    r"^aten::(embedding|_?(unsafe_)?view|reshape|flatten|unsqueeze|squeeze|transpose|t|permute|contiguous|to|_to_copy)$"
)
_LAYERS = re.compile(r"^aten::(linear|addmm|mm|matmul|conv\w*|embedding)$")
_ALONE = re.compile(  # what treats each item of a batch alone; a norm over the batch does not
    r"^aten::(layer_norm|group_norm|instance_norm|rms_norm|\w*pool\w*|\w*softmax|\w*relu\w*|gelu|silu_?|mish|elu_?"
    r"|hardswish_?|softplus|sigmoid_?|tanh_?|clamp\w*|dropout|add_?|sub_?|mul_?|div_?|pow|exp|log|r?sqrt|contiguous"
    r"|clone|to|_to_copy|upsample\w*)$"
)
_KEEPS = re.compile(
    r"^aten::(_?(unsafe_)?view|reshape|(un)?flatten|(un)?squeeze|transpose|permute|t|detach|movedim)$"
)
_AUTOGRAD = r"^autograd::engine"
_SUMS_UP = r"AccumulateGrad"
_AHEAD = 8  # ops between taking a part and its layer; chosen
_LONGEST = 200  # ops of a chain, views counted; chosen
_MOST = 0.75  # of the parts: the first and the last repeat may differ; chosen


def recurrent_layer(loop: Repeats) -> str:
    """Name of the recurrent layer that takes x[t] in repeat t of a loop; empty where there is none.

    With shapes another t is taken in each repeat, alone or beside other such parts, and what is taken is not written
    to in the loop; or a tensor is unbound before it into as many parts. Without shapes, the op that takes a part comes
    right before the layer, but for views and lookups.
    """
    at = next((place for place, name in enumerate(loop.names) if RECURRENT.search(name)), None)
    if at is None:
        return ""
    known = bool(loop.dims[at])
    if known and _takes_what_was_unbound(loop, at):
        return loop.names[at]
    way = [(at - back) % len(loop.names) if known else at - back for back in range(1, len(loop.names))]
    for place in way:
        if place < 0:
            break
        name = loop.names[place]
        if _TAKES.search(name):
            if not known or _takes_another(loop, place):
                return loop.names[at]
        elif name == _JOINS:
            if not (known and _joins_parts(loop, place)):
                break
        elif not (_WITHOUT_SHAPES.search(name) or (known and _ON_THE_WAY.search(name))):
            break
    return ""


def follows(loop: Repeats, layer: str) -> tuple[str, ...]:
    """Ops of a repeat that are no views, but for the layer."""
    return tuple(name for name in loop.names if name != layer and not VIEWING_OP.search(name))


def _takes_another(loop: Repeats, place: int) -> bool:
    """Whether an op takes the next part of one tensor in each repeat."""
    number, signatures = signatures_of(loop.at.events.trace, loop.rows[:, place])
    taken = [taken_of(signatures[which], 1) for which in number.tolist()]
    parts = [one for one in taken if one is not None]
    if len(parts) < _MOST * loop.count or len({(one.whole, one.dim) for one in parts}) > 1:
        return False
    apart = set(np.diff([one.index for one in parts]).tolist())
    return len(apart) == 1 and apart != {0} and not _writes_whole(loop, parts[0])


def _joins_parts(loop: Repeats, place: int) -> bool:
    """Whether all that is joined there is taken, or expanded, right before: nothing is of the repeat before."""
    own = range(place, -1, -1)
    number, signatures = signatures_of(loop.at.events.trace, loop.rows[1, [*own]])
    joined, *before = (signatures[which] for which in number.tolist())
    made: Counter[Shape | None] = Counter()
    for op in before:
        part = taken_of(op, 1)
        if part is None and op.name != _WIDENS:
            break
        made[made_of(op) if part is None else part.part] += 1
    given: Counter[Shape | None] = Counter(tensors(joined))
    return bool(given) and given <= made


def _takes_what_was_unbound(loop: Repeats, layer: int) -> bool:
    _, taking = signatures_of(loop.at.events.trace, loop.takers)
    number, signatures = signatures_of(loop.at.events.trace, loop.rows[:, layer])
    given = {tuple(tensors(signatures[which])[:1]) for which in number.tolist()}
    return any(given == {(part_of(op, loop.count),)} for op in taking)


def _writes_whole(loop: Repeats, one: Taken) -> bool:
    """Whether an op of the loop writes into a tensor of that shape, or into a part of it."""
    _, signatures = signatures_of(loop.at.events.trace, loop.rows[:2].ravel())
    return any(tensors(op)[:1] in ([one.whole], [one.part]) for op in signatures if op.name.endswith("_"))


@dataclass(frozen=True, slots=True, eq=False)
class LoopInputs:
    """What one loop within one step does for each part of a tensor.

    Attributes:
        at: the first op of each span, which is a chain or its backward.
        ends_ns: int64 (spans,), where each ends.
        group: int64 (spans,), 0 of the chains, 1 of backward.
        repeats: of the loop.
        names: the ops of one chain, without views.
        whole, part: shapes of the tensor, and of what each repeat takes of it.
    """

    at: Calls
    ends_ns: Rows
    group: Rows
    repeats: int
    names: tuple[str, ...]
    whole: Shape
    part: Shape


def loop_inputs_of(calls: Calls, outer: Calls, least: int) -> Iterator[LoopInputs]:
    """Of each step the chains that begin with a layer on `x[t]`, another t each time, and take no other tensor.

    What writes into such a tensor in the same step, or goes backward between the repeats, ends the search: the parts
    are then not known before the loop, or are apart on purpose.

    Args:
        outer: outermost ops.
        least: fewer repeats make no loop.
    """
    forward = outer[~outer.name.matches(_AUTOGRAD)]
    forward = forward[np.lexsort((forward.start_ns, forward.thread, forward.step))]
    number, signatures = signatures_of(calls.events.trace, forward.rows)
    taken = [taken_of(op) for op in signatures]
    takes = np.flatnonzero(np.array([one is not None for one in taken], bool)[number])
    if len(takes) < least:
        return
    own = [taken[which] for which in number[takes].tolist()]
    key = np.array([hash((one.whole, one.strides, one.dim)) for one in own if one is not None])
    index = np.array([one.index for one in own if one is not None])
    step = forward.step
    loop, _ = grouped([key, step[takes], forward.thread[takes]])
    again, _ = grouped([loop, rank_within(grouped([loop, index])[0])])
    backward = _Backward.of(calls, outer, forward)
    for which in np.flatnonzero(np.bincount(again) >= least).tolist():
        places = takes[again == which]
        one = taken[int(number[places[0]])]
        assert one is not None
        begin, end = np.searchsorted(step, [step[places[0]], step[places[0]] + 1])
        looped = np.unique(number[places[0] : places[-1]])
        if _written(one, np.unique(number[begin:end]), signatures) or _remade(one, looped, signatures):
            continue
        chain = _chain(
            one, [signatures[at] for at in number[places[1] + 1 : places[1] + 1 + _LONGEST].tolist()]
        )
        if chain is None:
            continue
        steps = np.arange(*chain) + 1
        places = places[places + chain[1] < len(number)]
        each = number[places[:, None] + steps]
        alike = (each == each[1]).all(axis=1)
        if alike.sum() < max(least, _MOST * len(places)):
            continue
        first, last = places[alike] + steps[0], places[alike] + steps[-1]
        starts, ends = forward.start_ns[first], forward.end_ns[last]
        if backward.runs_between(int(starts[0]), int(starts[-1])):
            continue
        back, back_ends = backward.of_chains(first, last)
        named = forward[first[0] : last[0] + 1]
        yield LoopInputs(
            at=forward.joined([forward[first], back]),
            ends_ns=np.append(ends, back_ends),
            group=np.repeat((0, 1), (len(starts), len(back))),
            repeats=len(starts),
            names=tuple(map(str, named[~named.name.meets(VIEWING_OP.search)].name.values())),
            whole=one.whole,
            part=one.part,
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """A part of a tensor: of one place, or of a few, along a dimension."""

    whole: Shape
    strides: Shape
    dim: int
    index: int
    part: Shape
    part_strides: Shape


def taken_of(op: Signature, least_dims: int = 2) -> Taken | None:
    """What select, or a slice of one place, takes; None of other ops, and of parts of fewer dimensions."""
    if op.name not in ("aten::select", "aten::slice", "aten::narrow"):
        return None
    try:
        whole, strides, dim = op.shape(0), op.stride(0) or (), int(op.scalar(1)) % len(op.shape(0))
        index = int(op.scalar(2))
        kept = op.name != "aten::select"
        if kept and int(op.scalar(3)) != (index + 1 if op.name == "aten::slice" else 1):
            return None
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
    part = (*whole[:dim], *((1,) if kept else ()), *whole[dim + 1 :])
    steps = (*strides[:dim], *(strides[dim : dim + 1] if kept else ()), *strides[dim + 1 :])
    return Taken(whole, strides, dim, index, part, steps) if len(part) >= least_dims else None


def _written(one: Taken, which: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether one of these ops writes into a tensor of that shape, or into a part of it."""
    writers = (op for op in (signatures[at] for at in which.tolist()) if op.name.endswith("_"))
    return any(tensors(op)[:1] in ([one.whole], [one.part]) for op in writers)


def _remade(one: Taken, which: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether one of these ops makes a tensor of the shape of the whole."""
    makers = (op for op in (signatures[at] for at in which.tolist()) if not VIEWING_OP.search(op.name))
    return any(one.whole in (product_of(op), made_of(op)) for op in makers)


def _chain(one: Taken, following: Sequence[Signature]) -> tuple[int, int] | None:
    """(first, behind the last) of the ops that work on a part alone, from a layer on; None where no layer does."""
    begin = next((at for at, op in enumerate(following[:_AHEAD]) if one.part in tensors(op)), None)
    if begin is None or not _is_of(following[begin], one):
        return None
    result, ends, made = _Result(one.part), [begin], list[Shape | None]()
    for op in following[begin:]:
        view = VIEWING_OP.search(op.name)
        data = next(iter(tensors(op)), None) if _KEEPS.search(op.name) else None if view else _data(op)
        if data is None or not result.fits(data):
            break
        result = _Result.of(op, data)
        ends.append(ends[-1] + 1)
        made.append(result.shape)
    taken = tensors(following[ends[-1]]) if ends[-1] < len(following) else []
    if (
        len(taken) > 1 and result.shape in made[:-1] and result.shape in taken
    ):  # one of them may be of the loop
        ends = ends[: made.index(result.shape) + 2]
    layers = any(_LAYERS.search(op.name) for op in following[begin : ends[-1]])
    return (begin, ends[-1]) if layers else None


@dataclass(frozen=True, slots=True)
class _Result:
    """What is known of what an op makes: its shape, or how it begins, or how many elements it has."""

    shape: Shape | None
    first: Shape = ()
    elements: int = 0

    @classmethod
    def of(cls, op: Signature, data: Shape) -> _Result:
        shape = product_of(op) or made_of(op)
        if shape is None and VIEWING_OP.search(op.name):
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
        """Whether a tensor of that shape can be it."""
        if self.shape is not None:
            return data == self.shape
        return math.prod(data) == self.elements if self.elements else data[: len(self.first)] == self.first


def _is_of(op: Signature, one: Taken) -> bool:
    """Whether what an op reads is that part, as far as strides are recorded."""
    given = next((op.stride(at) for at, dims in enumerate(op.dims) if dims == list(one.part)), None)
    return not given or not one.part_strides or given == one.part_strides


def _data(op: Signature) -> Shape | None:
    """Shape of the one tensor that an op works on item by item; None where it takes others, but for weights."""
    shapes = tensors(op)
    if _LAYERS.search(op.name):
        at = 1 if op.name in ("aten::addmm", "aten::embedding") else 0
        weights = [one for place, one in enumerate(shapes) if place != at]
        plain = (
            len(shapes) > at
            and len(shapes[at]) > 1
            and all(len(one) <= 2 or "conv" in op.name for one in weights)
        )
        return shapes[at] if plain else None
    if (
        not _ALONE.search(op.name)
        or not shapes
        or len(shapes[0]) < 2
        or any(len(one) > 1 for one in shapes[1:])
    ):
        return None
    return shapes[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Backward:
    """Nodes of backward by the op that recorded them.

    Attributes:
        nodes: outermost ops; `recorder`: positions of the ops that recorded them, in order.
        engine: outermost ops of all nodes, but for those that add up the gradients of weights, in time.
    """

    nodes: Calls
    recorder: Rows
    engine: Calls

    @classmethod
    def of(cls, calls: Calls, outer: Calls, forward: Calls) -> _Backward:
        nodes, recorder = recorded_nodes(calls, forward)
        order = np.argsort(recorder, kind="stable")
        engine = outer[outer.name.matches(_AUTOGRAD) & ~outer.name.matches(_SUMS_UP)]
        return cls(nodes[order].outer_op, recorder[order], engine[np.argsort(engine.start_ns, kind="stable")])

    def runs_between(self, start_ns: int, end_ns: int) -> bool:
        low, high = np.searchsorted(self.engine.start_ns, [start_ns, end_ns])
        return bool(low < high)

    def of_chains(self, first: Rows, last: Rows) -> tuple[Calls, Rows]:
        """(first op, end) of the backward of each chain; none where many other nodes run in between."""
        low, high = np.searchsorted(self.recorder, [first[0], last[-1] + 1])
        at, chain = self.nodes[low:high], np.searchsorted(first, self.recorder[low:high], side="right") - 1
        inside = self.recorder[low:high] <= last[chain]
        at, chain = at[inside], chain[inside]
        order = np.lexsort((at.start_ns, chain))
        at, chain = at[order], chain[order]
        begins, closes = np.flatnonzero(np.diff(chain, prepend=-1)), np.flatnonzero(np.diff(chain, append=-1))
        in_time = np.argsort(at.start_ns[begins], kind="stable")
        begins, ends = begins[in_time], at.end_ns[closes][in_time]
        starts, nodes = at.start_ns[begins], self.engine.start_ns
        foreign = (
            np.searchsorted(nodes, ends).sum() - np.searchsorted(nodes, starts).sum() - len(distinct(at.rows))
        )
        plain = foreign <= len(starts) and (ends[:-1] <= starts[1:]).all()
        return (at[begins], ends) if plain else (at[:0], ends[:0])
