"""Networks that run on copies of the same items, each of which is a part of a batch."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceanalyzer.rule import Calls
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.loops import step_edges

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
BY_ROW = re.compile(  # the same for equal rows
    r"^aten::(linear|addmm|mm|layer_norm|native_layer_norm|rms_norm|\w*relu\w*|gelu|silu_?|mish|elu|hardswish_?"
    r"|softplus|sigmoid_?|tanh_?|clamp\w*|add_?|sub_?|mul_?|div_?|pow|exp|log|r?sqrt|sin|cos|abs|neg|contiguous|clone"
    r"|to|_to_copy|reshape|flatten|cat)$"
)
_MIXES = re.compile(r"^aten::(linear|addmm|mm|\w*_norm)$")  # the numbers of a row
_KEEPS = re.compile(r"^aten::(\w*_norm|\w*relu\w*|gelu|silu|mish|elu|hardswish|softplus)_?$")
_ARITHMETIC = re.compile(r"^aten::(add|sub|mul|div|lerp)_?$")
_ACTIVATES = re.compile(r"^aten::(relu|gelu|silu|mish)$")
_TYPED = re.compile(
    r"^aten::(add|sub|mul|div|\w*relu\w*|gelu|silu|mish|elu|sigmoid|tanh|clone|contiguous)_?$"
)
_WIDER = {"float", "c10::BFloat16"}, {"float", "c10::Half"}
_ROW_PARTS = 3  # that a condition becomes at least: shift, scale and gate
LAYERS = re.compile(r"^aten::(linear|addmm|mm|conv\w*|cudnn_convolution\w*|embedding|lstm|gru|\w*_norm)$")
LOOK_UP = "aten::embedding"
AHEAD, FAR = 8, 200  # ops between the copies and the network, and between two ops of a network; chosen


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
            items = _items(source, shape) if len(shape) > 1 and not is_view(op.name) else 0
            if items and shape[0] >= min_times * items and _looked_up(op, ops[0], moved):
                return Copied(begin, shape[0], items, shape)
        other = op.name == ops[0].name and _IN_ORDER.search(op.name)
        if not (is_view(op.name) or _BETWEEN.search(op.name) or other):
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
        viewing = is_view(op.name)
        tables -= op.name == LOOK_UP
        if (
            foreign
            or tables < 0
            or (len(mine) > 1 and not LAYERS.search(op.name) and max(made[one] for one in mine) < enough)
        ):
            return
        if not (viewing or LAYERS.search(op.name) or _PER_ITEM.search(op.name)):
            return
        result = result_shape(op)
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
    result, source = result_shape(op), next(iter(tensors(op)), ())
    if not result or result[1:] != source[1:] or (result[0], source[0]) != (copied.copies, copied.items):
        return False
    made[result] = made.get(result, 0) + 1
    return True


@dataclass(frozen=True, slots=True)
class Ops:
    """Ops in order, by their signatures, with the shape and type of what each makes where that is known."""

    number: Sequence[int]
    signatures: Sequence[Signature]
    made: Sequence[Shape | None]
    types: Sequence[str | None]

    @staticmethod
    def of(number: Sequence[int], signatures: Sequence[Signature]) -> Ops:
        return Ops(
            number, signatures, [result_shape(op) for op in signatures], [_type(op) for op in signatures]
        )

    def modulates(self, place: int) -> bool:
        """Whether an activation and a layer after it make shift, scale and gate of a condition, all at once."""
        both = [self.signatures[one] for one in self.number[place : place + 2]]
        wide, shape = result_shape(both[-1]), next(iter(read_by(both[0])), ())
        if op_row(both[-1].name).kind is not Kind.GEMM or wide is None:
            return False
        if tuple(read_by(both[-1])) != (shape,) or not _ACTIVATES.search(both[0].name):
            return False
        return wide[-1] % shape[-1] == 0 and wide[-1] >= _ROW_PARTS * shape[-1]


def rows_read(ops: Ops, at: int, begin: int, end: int, copied: Copied) -> list[int]:
    """Positions of ops that work on equal rows.

    Args:
        at: what makes the rows, or the first that reads them.
        begin, end: what to look at, within the thread's step.
    """
    rows, found = _Known(ops, copied, range(begin, at)), []
    for place in range(at + copied.begin, end):
        its = rows.taken_by(place, first=place == at)
        if its is None:
            break
        if its:
            found.append(place)
    return found


class _Known:
    """Shapes of the tensors that consist of equal rows, and of others that are as large.

    An op reads what the one before it has made. Of other tensors it reads the equal rows if no other tensor has their
    shape, or if those that have it have another type than what it reads.
    """

    def __init__(self, ops: Ops, copied: Copied, before: range) -> None:
        self.ops = ops
        self.copied = copied
        self.equal: dict[Shape, int] = {copied.shape: 1}
        self.others: dict[Shape, list[str | None]] = {}  # their types; None: not known
        self.before: range | None = before  # not yet looked at
        self.last: tuple[Shape, bool, str | None] = (
            copied.shape,
            True,
            None,
        )  # made last, equal rows or not, type
        self.product = False  # whether that is what a layer makes, which has one reader mostly
        self.unread: Shape | None = None  # rows that nothing has read

    def taken_by(self, place: int, *, first: bool) -> bool | None:
        """Whether an op computes equal rows of equal rows; None where that, or what it makes, is not known."""
        which = self.ops.number[place]
        op, made = self.ops.signatures[which], self.ops.made[which]
        read, viewing = read_by(op), is_view(op.name)
        mine = {one for one in read if one in self.equal}
        ours = {self._is_equal(op, one, place) for one in mine}
        if None in ours:
            return None
        if True not in ours:
            return self._other(which, viewing)
        others = any(one not in mine and math.prod(one[:-1]) > 1 for one in read)
        alone = ours == {True} and all(read.count(one) <= self.equal[one] for one in mine)
        if not first and (others or not alone):
            return self._other(which, viewing) if others and made not in self.equal else None
        if made is None or self.copied.copies not in (math.prod(made[:-1]), math.prod(made)):
            return None
        flat = any(math.prod(one[:-1]) != self.copied.copies for one in mine)
        if not viewing and (not BY_ROW.search(op.name) or (flat and _MIXES.search(op.name))):
            return None
        times = self.equal.get(made, 0)
        self.equal[made] = max(times, 1) if viewing else times + 1
        self.last, self.product, self.unread = (made, True, None), False, made
        return not viewing

    def _is_equal(self, op: Signature, shape: Shape, place: int) -> bool | None:
        """Whether the tensor of this shape that an op reads consists of equal rows; None where that is not known."""
        own = types_read(op, shape)
        last, equal, kind = self.last
        if (last == shape and equal) or (self.unread == shape and self.ops.modulates(place)):
            return True
        if last == shape and (kind is None or kind in own or not own):
            return False
        others = self._all_others(shape)
        apart = len(own) == 1 and None not in others and own[0] not in others
        return True if not others or apart else None

    def _all_others(self, shape: Shape) -> list[str | None]:
        """Types of other tensors of a shape, those before the rows among them."""
        for place in self.before or ():
            which = self.ops.number[place]
            op = self.ops.signatures[which]
            for sizes, kind in zip(op.dims, op.types, strict=False):
                if isinstance(sizes, list) and sizes and all(isinstance(one, int) for one in sizes):
                    self.others.setdefault(tuple(sizes), []).append(kind)
            if made := self.ops.made[which]:
                self.others.setdefault(made, []).append(self.ops.types[which])
        self.before = None
        return self.others.get(shape, [])

    def _other(self, which: int, viewing: bool) -> bool | None:
        """False, unless an op may make a tensor that looks like the rows and is not known to."""
        op, made = self.ops.signatures[which], self.ops.made[which]
        if made is None:
            return False if viewing or not tensors(op) else None
        shape = self.last[0]
        if self.product and _ARITHMETIC.search(op.name) and shape in read_by(op):
            self.others[shape].remove(None)
        if not viewing or made in self.equal:
            self.others.setdefault(made, []).append(self.ops.types[which])
            self.last = (made, False, self.ops.types[which])
            self.product = op_row(op.name).kind is Kind.GEMM
        return False


def types_read(op: Signature, shape: Shape) -> list[str]:
    """Types of the tensors of a shape that an op reads, lists apart."""
    return [kind for sizes, kind in zip(op.dims, op.types, strict=False) if sizes == list(shape)]


def _type(op: Signature) -> str | None:
    """Type of what an op makes; None where autocast, or the op, may choose another than that of its tensors."""
    kinds = {
        kind for sizes, kind in zip(op.dims, op.types, strict=False) if isinstance(sizes, list) and sizes
    }
    if not _TYPED.search(op.name) or not kinds:
        return None
    return "float" if kinds in _WIDER else kinds.pop() if len(kinds) == 1 else None


class Copied(NamedTuple):
    """Where a network begins, and on how many copies of how many items."""

    begin: int
    copies: int
    items: int
    shape: Shape


def read_by(op: Signature) -> Sequence[Shape]:
    """Shapes of what it works on: of a layer its input, not its weight; of a look-up the indices."""
    if not LAYERS.search(op.name):
        return tensors(op)
    first = op.name in ("aten::addmm", LOOK_UP)  # behind the bias, or the table
    return tensors(op)[first : first + 1]


class Others:
    """Tensors of as many entries as there are copies that come from elsewhere: what takes them is no copy's own."""

    def __init__(self, copies: int) -> None:
        self._copies, self._shapes, self._unknown = copies, set[Shape](), False

    def see(self, op: Signature, read: Sequence[Shape]) -> None:
        """An op that takes nothing of the network."""
        mine = any(one[:1] == (self._copies,) for one in read)
        self._shapes.update(one for one in read if one[:1] == (self._copies,))
        self._unknown = False if mine else self._unknown
        made = result_shape(op)
        if made is not None and made[:1] == (self._copies,):
            self._shapes.add(made)
        elif mine and made is None:
            self._unknown = True

    def may_be(self, read: Sequence[Shape]) -> bool:
        """Whether one of several tensors may come from elsewhere."""
        return len(read) > 1 and (self._unknown or any(one in self._shapes for one in read))
