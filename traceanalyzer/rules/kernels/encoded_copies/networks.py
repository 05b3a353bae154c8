"""Networks that run on copies of the same items, each of which is a part of a batch."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.roofline.results import result_of
from traceanalyzer.rule import Calls
from traceanalyzer.rule.loops import step_edges
from traceanalyzer.rules.kernels.encoded_copies.copies import (
    AHEAD,
    FAR,
    LAYERS,
    LOOK_UP,
    Copied,
    read_by,
)
from traceanalyzer.rules.kernels.encoded_copies.others import Others
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.names import VIEWING_OP

_COPIES = r"^aten::(unfold|as_strided|expand|expand_as|broadcast_to|index|index_select|repeat|repeat_interleave|tile)$"
_VIEWS_COPIES = re.compile(r"^aten::(expand|expand_as|broadcast_to|unfold|as_strided)$")
_IN_ORDER = re.compile(r"^aten::(repeat|repeat_interleave)$")
_BETWEEN = re.compile(r"^aten::(contiguous|clone|reshape|flatten|to|_to_copy|copy_|empty\w*)$")
_REGROUPS = re.compile(r"^aten::(view|reshape|_unsafe_view|unflatten)$")
_PARTS = re.compile(r"^aten::(unbind|chunk|\w*split\w*)$")
_WRITES = re.compile(
    r"^aten::(index_put|index_copy|index_add|masked_scatter|scatter|copy|fill|zero|slice_s)\w*$"
)
_RANDOM = re.compile(r"rand|normal_|bernoulli|uniform|multinomial|exponential_|dropout|rrelu")
_PER_ITEM = re.compile(
    r"^aten::(matmul|bmm|baddbmm|\w*pool\w*|\w*softmax|scaled_dot_product_attention|\w*relu\w*|gelu|silu_?|mish|elu"
    r"|hardswish_?|hardsigmoid|hardtanh_?|softplus|sigmoid_?|tanh_?|clamp\w*|dropout|add_?|sub_?|mul_?|div_?|pow|exp|log"
    r"|r?sqrt|abs|neg|mean|sum|amax|amin|max|var|linalg_vector_norm|norm|contiguous|clone|to|_to_copy|reshape|flatten"
    r"|cat|upsample\w*|pad|constant_pad_nd|square|masked_fill|chunk|split\w*|unbind|select|slice|detach|type_as"
    r"|eq|ne|lt|le|gt|ge|(logical|bitwise)_(not|and|or))$"
)


def networks(
    ops: Calls, number: list[int], signatures: Sequence[Signature], min_times: float
) -> Iterator[tuple[str, Copied, list[int]]]:
    """(op that makes copies, what it makes, positions of the ops that work on each of them)."""
    known: dict[tuple[int, ...], Copied | None] = {}
    edges, done = step_edges(ops), -1
    for at in np.flatnonzero(ops.name.matches(_COPIES)).tolist():
        key = tuple(number[at : at + AHEAD + 1])
        if key not in known:
            known[key] = _copied([signatures[one] for one in key], min_times)
        copied = known[key]
        if copied is None or at < done:
            continue
        last, maker = at + copied.begin, signatures[number[at]]
        beside = [signatures[one] for one in number[max(at - AHEAD, 0) : at] + number[at + 1 : last]]
        positions = copied.items == 1 and any(op.name == "aten::arange" for op in beside)
        if positions and signatures[number[last]].name == LOOK_UP:
            continue  # what is looked up may be tokens
        end, members = edges[bisect_right(edges, at)], []
        for place in _members(number, signatures, last, end, copied, (maker, *beside)):
            members.append(place)
            done = place
        if members:
            yield maker.name, copied, members


def _copied(ops: Sequence[Signature], min_times: float) -> Copied | None:
    """What the first op copies, if one of the next ones works on separate copies."""
    source, moved = next(iter(tensors(ops[0])), ()), False
    for begin, op in enumerate(ops[1:], 1):
        for shape in read_by(op):
            items = _items(source, shape) if len(shape) > 1 and not VIEWING_OP.search(op.name) else 0
            if items and shape[0] >= min_times * items and _looked_up(op, ops[0], moved):
                return Copied(begin, shape[0], items, shape)
        other = op.name == ops[0].name and _IN_ORDER.search(op.name)
        if not (VIEWING_OP.search(op.name) or _BETWEEN.search(op.name) or other):
            return None
        moved = moved or bool(_BETWEEN.search(op.name))
    return None


def _looked_up(op: Signature, maker: Signature, moved: bool) -> bool:
    """Whether an op may read what the maker has made, where it is a look-up: most programs have some of one shape.

    Args:
        moved: whether the copies are written to memory, so that strides no longer tell.
    """
    if op.name != LOOK_UP:
        return True
    if op.types[1:2] != maker.types[:1]:
        return False
    return moved or not _VIEWS_COPIES.search(maker.name) or 0 in (op.stride(1) or ())


def _items(source: Shape, shape: Shape) -> int:
    """How many items of the sizes of each of `shape` a source has; 0 where it has none."""
    wanted = math.prod(shape[1:])
    for at in range(len(source)):
        if wanted > 1 and math.prod(source[at:]) == wanted and source[at] > 1:
            return math.prod(source[:at])
    return 0


def _members(
    number: Sequence[int],
    signatures: Sequence[Signature],
    begin: int,
    end: int,
    copied: Copied,
    makers: Sequence[Signature],
) -> Iterator[int]:
    """Positions of ops that work on each copy alone, until one takes other tensors of as many entries.

    Args:
        makers: the op that makes the copies, and those around it, up to the network.
    """
    made, others = {copied.shape: 1}, Others(copied.copies)
    maker, *around = makers
    for op in around:
        _copy_too(op, maker, copied, made)
    tables = makers.count(maker)  # tensors that are copied
    enough = math.inf if tables > 1 and not _IN_ORDER.search(maker.name) else 2  # others gather other items
    unknown, last = 0, begin
    for place in range(begin, end):
        op = signatures[number[place]]
        shapes = tensors(op)
        if (
            (_RANDOM.search(op.name) and "False" not in op.scalars)
            or _WRITES.search(op.name)
            or place - last > FAR
        ):
            return
        if unknown and shapes and shapes[0][:1] == (copied.copies,):
            made[shapes[0]] = made.get(shapes[0], 0) + unknown
        read = read_by(op)
        mine = [one for one in read if one in made]
        if not mine:
            unknown = 0 if shapes else unknown
            if not _copy_too(op, maker, copied, made):
                others.see(op, read)
            continue
        foreign = any(one not in made and one[:1] == (copied.copies,) for one in read) or others.may_be(mine)
        viewing = VIEWING_OP.search(op.name)
        tables -= op.name == LOOK_UP
        if (
            foreign
            or tables < 0
            or (len(mine) > 1 and not LAYERS.search(op.name) and max(made[one] for one in mine) < enough)
        ):
            return
        if not (viewing or LAYERS.search(op.name) or _PER_ITEM.search(op.name)):
            return
        result = result_of(op)
        if _REGROUPS.search(op.name) and (result is None or result[0] % copied.copies):
            return
        several = _PARTS.search(op.name)
        unknown, last = (2 if several else 1) if result is None else 0, place
        if result is not None:
            times = made.get(result, 0)
            made[result] = max(times, made[mine[0]]) if viewing else times + 1
        if not viewing:
            yield place


def _copy_too(op: Signature, maker: Signature, copied: Copied, made: dict[Shape, int]) -> bool:
    """Other tensors of the same items that are copied in the same way, such as masks, belong to the copies."""
    if op.name != maker.name or not _IN_ORDER.search(op.name):
        return False
    result, source = result_of(op), next(iter(tensors(op)), ())
    if not result or result[1:] != source[1:] or (result[0], source[0]) != (copied.copies, copied.items):
        return False
    made[result] = made.get(result, 0) + 1
    return True
