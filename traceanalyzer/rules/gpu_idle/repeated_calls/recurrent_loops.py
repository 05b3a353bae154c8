"""Recurrent layers that are called with one time step at a time, though all of their inputs are known before."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from traceanalyzer.roofline.results import made_of
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_inputs import Taken, taken_of
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats, part_of
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors
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
_MOST = 0.75  # of the repeats: the first and the last may differ; chosen


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
    return len(apart) == 1 and apart != {0} and not _written(loop, parts[0])


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


def _written(loop: Repeats, one: Taken) -> bool:
    """Whether an op of the loop writes into a tensor of that shape, or into a part of it."""
    _, signatures = signatures_of(loop.at.events.trace, loop.rows[:2].ravel())
    return any(tensors(op)[:1] in ([one.whole], [one.part]) for op in signatures if op.name.endswith("_"))
