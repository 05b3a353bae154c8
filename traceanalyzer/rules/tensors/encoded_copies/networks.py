"""Networks that run on copies of the same items, each of which is a part of a batch."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.records import dataclass
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
# Ops that compute the same for equal rows.
BY_ROW = re.compile(
    r"^aten::(linear|addmm|mm|layer_norm|native_layer_norm|rms_norm|\w*relu\w*|gelu|silu_?|mish|elu|hardswish_?"
    r"|softplus|sigmoid_?|tanh_?|clamp\w*|add_?|sub_?|mul_?|div_?|pow|exp|log|r?sqrt|sin|cos|abs|neg|contiguous|clone"
    r"|to|_to_copy|reshape|flatten|cat)$"
)
# Ops that mix the elements of a row.
_MIXES = re.compile(r"^aten::(linear|addmm|mm|\w*_norm)$")
_ARITHMETIC = re.compile(r"^aten::(add|sub|mul|div|lerp)_?$")
_ACTIVATES = re.compile(r"^aten::(relu|gelu|silu|mish)$")
_TYPED = re.compile(
    r"^aten::(add|sub|mul|div|\w*relu\w*|gelu|silu|mish|elu|sigmoid|tanh|clone|contiguous)_?$"
)
_WIDER = {"float", "c10::BFloat16"}, {"float", "c10::Half"}
# A condition becomes at least three parts: shift, scale and gate.
_ROW_PARTS = 3
LAYERS = re.compile(r"^aten::(linear|addmm|mm|conv\w*|cudnn_convolution\w*|embedding|lstm|gru|\w*_norm)$")
LOOK_UP = "aten::embedding"
# Ops between the copies and the network, and between two ops of a network; chosen.
AHEAD, FAR = 8, 200


def networks(
    ops: Calls, number: list[int], signatures: Sequence[Signature], min_times: float
) -> Iterator[tuple[str, Copied, list[int]]]:
    """(op that makes copies, what it makes, positions of the ops that work on each of them)."""
    by_ops: dict[tuple[int, ...], Copied | None] = {}
    edges, done = step_edges(ops), -1
    for position in np.flatnonzero(ops.name.matches(_COPIES)).tolist():
        key = tuple(number[position : position + AHEAD + 1])
        if key not in by_ops:
            by_ops[key] = _copies_of([signatures[which] for which in key], min_times)
        copied = by_ops[key]
        if copied is None or position < done:
            continue
        last, maker = position + copied.begin, signatures[number[position]]
        neighbors = [
            signatures[which]
            for which in number[max(position - AHEAD, 0) : position] + number[position + 1 : last]
        ]
        positions = copied.items == 1 and any(op.name == "aten::arange" for op in neighbors)
        if positions and signatures[number[last]].name == LOOK_UP:
            # The lookup may be of tokens.
            continue
        end, members = edges[bisect_right(edges, position)], []
        for place in _members(number, signatures, last, end, copied, (maker, *neighbors)):
            members.append(place)
            done = place
        if members:
            yield maker.name, copied, members


def _copies_of(ops: Sequence[Signature], min_times: float) -> Copied | None:
    """What the first op copies, if one of the next ones works on separate copies."""
    source, moved = next(iter(tensors(ops[0])), ()), False
    for begin, op in enumerate(ops[1:], 1):
        for shape in data_shapes(op):
            items = _items(source, shape) if len(shape) > 1 and not is_view(op.name) else 0
            if items and shape[0] >= min_times * items and _may_look_up(op, ops[0], moved):
                return Copied(begin, shape[0], items, shape)
        other = op.name == ops[0].name and _IN_ORDER.search(op.name)
        if not (is_view(op.name) or _BETWEEN.search(op.name) or other):
            return None
        moved = moved or bool(_BETWEEN.search(op.name))
    return None


def _may_look_up(op: Signature, maker: Signature, moved: bool) -> bool:
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
    for place in range(len(source)):
        if wanted > 1 and math.prod(source[place:]) == wanted and source[place] > 1:
            return math.prod(source[:place])
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
    network, last = _Network(copied, makers), begin
    for place in range(begin, end):
        op = signatures[number[place]]
        random = _RANDOM.search(op.name) and "False" not in op.scalars
        if random or _WRITES.search(op.name) or place - last > FAR:
            return
        network.see_unknown_result(op)
        inputs = network.inputs_of(op)
        if not inputs:
            network.pass_by(op)
            continue
        if not network.takes_only(op, inputs) or not network.follow(op, inputs):
            return
        last = place
        if not is_view(op.name):
            yield place


class _Network:
    """Shapes of the tensors that hold the copies, by how many tensors have each; and of others of as many entries."""

    def __init__(self, copied: Copied, makers: Sequence[Signature]) -> None:
        self.copied = copied
        self.shapes: dict[Shape, int] = {copied.shape: 1}
        self.others = Others(copied.copies)
        self.maker, *around = makers
        # results of the last op, if their shape is not known
        self.unknown = 0
        # tensors that are copied
        self.tables = makers.count(self.maker)
        # several ops that gather may gather other items each
        gathered = self.tables > 1 and not _IN_ORDER.search(self.maker.name)
        self.enough = math.inf if gathered else 2
        for op in around:
            self._copies_too(op)

    def inputs_of(self, op: Signature) -> list[Shape]:
        """Shapes of the copies that an op reads."""
        return [shape for shape in data_shapes(op) if shape in self.shapes]

    def see_unknown_result(self, op: Signature) -> None:
        """What an op reads after one of unknown result, and has as many entries, is that result."""
        first = next(iter(tensors(op)), ())
        if self.unknown and first[:1] == (self.copied.copies,):
            self.shapes[first] = self.shapes.get(first, 0) + self.unknown

    def pass_by(self, op: Signature) -> None:
        """Note an op that reads no copies."""
        self.unknown = 0 if tensors(op) else self.unknown
        if not self._copies_too(op):
            self.others.see(op, data_shapes(op))

    def takes_only(self, op: Signature, inputs: list[Shape]) -> bool:
        """Whether all that an op reads of so many entries are copies of this network."""
        entries = (self.copied.copies,)
        if any(shape not in self.shapes and shape[:1] == entries for shape in data_shapes(op)):
            return False
        self.tables -= op.name == LOOK_UP
        if self.others.may_be(inputs) or self.tables < 0:
            return False
        several = len(inputs) > 1 and not LAYERS.search(op.name)
        return not several or max(self.shapes[shape] for shape in inputs) >= self.enough

    def follow(self, op: Signature, inputs: list[Shape]) -> bool:
        """Add what an op makes of copies; False where it may mix them."""
        viewing = is_view(op.name)
        if not (viewing or LAYERS.search(op.name) or _PER_ITEM.search(op.name)):
            return False
        result = result_shape(op)
        if _REGROUPS.search(op.name) and (result is None or result[0] % self.copied.copies):
            return False
        self.unknown = 0 if result is not None else 2 if _PARTS.search(op.name) else 1
        if result is not None:
            count = self.shapes.get(result, 0)
            self.shapes[result] = max(count, self.shapes[inputs[0]]) if viewing else count + 1
        return True

    def _copies_too(self, op: Signature) -> bool:
        """Other tensors of the same items that are copied in the same way, such as masks, belong to the copies."""
        if op.name != self.maker.name or not _IN_ORDER.search(op.name):
            return False
        result, source = result_shape(op), next(iter(tensors(op)), ())
        if not result or result[1:] != source[1:]:
            return False
        if (result[0], source[0]) != (self.copied.copies, self.copied.items):
            return False
        self.shapes[result] = self.shapes.get(result, 0) + 1
        return True


@dataclass(frozen=True, slots=True)
class Ops:
    """Ops in order, by their signatures, with the shape and type of what each makes where that is known."""

    number: Sequence[int]
    signatures: Sequence[Signature]
    results: Sequence[Shape | None]
    types: Sequence[str | None]

    @staticmethod
    def of(number: Sequence[int], signatures: Sequence[Signature]) -> Ops:
        return Ops(
            number, signatures, [result_shape(op) for op in signatures], [_type(op) for op in signatures]
        )

    def modulates(self, place: int) -> bool:
        """Whether an activation and a layer after it make shift, scale and gate of a condition, all at once."""
        both = [self.signatures[which] for which in self.number[place : place + 2]]
        wide, shape = result_shape(both[-1]), next(iter(data_shapes(both[0])), ())
        if op_row(both[-1].name).kind is not Kind.GEMM or wide is None:
            return False
        if tuple(data_shapes(both[-1])) != (shape,) or not _ACTIVATES.search(both[0].name):
            return False
        return wide[-1] % shape[-1] == 0 and wide[-1] >= _ROW_PARTS * shape[-1]


def rows_read(ops: Ops, position: int, begin: int, end: int, copied: Copied) -> list[int]:
    """Positions of ops that work on equal rows.

    Args:
        at: what makes the rows, or the first that reads them.
        begin, end: what to look at, within the thread's step.
    """
    rows, places = _EqualRows(ops, copied, range(begin, position)), []
    for place in range(position + copied.begin, end):
        its = rows.computes_rows(place, first=place == position)
        if its is None:
            break
        if its:
            places.append(place)
    return places


class _EqualRows:
    """Shapes of the tensors that consist of equal rows, and of others that are as large.

    An op reads what the one before it has made. Of other tensors it reads the equal rows if no other tensor has their
    shape, or if those that have it have another type than what it reads.
    """

    def __init__(self, ops: Ops, copied: Copied, before: range) -> None:
        self.ops = ops
        self.copied = copied
        self.equal: dict[Shape, int] = {copied.shape: 1}
        # Types of the tensors of each shape, None if not known.
        self.others: dict[Shape, list[str | None]] = {}
        # Ops before the rows that are not yet inspected.
        self.before: range | None = before
        # Shape of the last result, whether its rows are equal, and its type.
        self.last: tuple[Shape, bool, str | None] = (
            copied.shape,
            True,
            None,
        )
        # Whether the last result is of a layer: it mostly has one reader.
        self.product = False
        # Equal rows that no op has read.
        self.unread: Shape | None = None

    def computes_rows(self, place: int, *, first: bool) -> bool | None:
        """Whether an op computes equal rows of equal rows; None where that, or what it makes, is not known."""
        which = self.ops.number[place]
        op, result = self.ops.signatures[which], self.ops.results[which]
        read, viewing = data_shapes(op), is_view(op.name)
        rows = {shape for shape in read if shape in self.equal}
        equal = {self._is_equal(op, shape, place) for shape in rows}
        if None in equal:
            return None
        if True not in equal:
            return self._note_other(which, viewing)
        foreign = any(shape not in rows and math.prod(shape[:-1]) > 1 for shape in read)
        only_rows = equal == {True} and all(read.count(shape) <= self.equal[shape] for shape in rows)
        if not first and (foreign or not only_rows):
            return self._note_other(which, viewing) if foreign and result not in self.equal else None
        if result is None or not self._makes_rows(op, rows, result, viewing):
            return None
        count = self.equal.get(result, 0)
        self.equal[result] = max(count, 1) if viewing else count + 1
        self.last, self.product, self.unread = (result, True, None), False, result
        return not viewing

    def _makes_rows(self, op: Signature, rows: set[Shape], result: Shape, viewing: bool) -> bool:
        """Whether what an op makes of equal rows has a row, or a number, for each of them."""
        copies = self.copied.copies
        if copies not in (math.prod(result[:-1]), math.prod(result)):
            return False
        flat = any(math.prod(shape[:-1]) != copies for shape in rows)
        return viewing or bool(BY_ROW.search(op.name) and not (flat and _MIXES.search(op.name)))

    def _is_equal(self, op: Signature, shape: Shape, place: int) -> bool | None:
        """Whether the tensor of this shape that an op reads consists of equal rows; None where that is not known."""
        types = types_read(op, shape)
        last, equal, kind = self.last
        if (last == shape and equal) or (self.unread == shape and self.ops.modulates(place)):
            return True
        if last == shape and (kind is None or kind in types or not types):
            return False
        other_types = self._all_others(shape)
        distinct_type = len(types) == 1 and None not in other_types and types[0] not in other_types
        return True if not other_types or distinct_type else None

    def _all_others(self, shape: Shape) -> list[str | None]:
        """Types of other tensors of a shape, those before the rows among them."""
        for place in self.before or ():
            which = self.ops.number[place]
            op = self.ops.signatures[which]
            for sizes, kind in zip(op.dims, op.types, strict=False):
                if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
                    self.others.setdefault(tuple(sizes), []).append(kind)
            if result := self.ops.results[which]:
                self.others.setdefault(result, []).append(self.ops.types[which])
        self.before = None
        return self.others.get(shape, [])

    def _note_other(self, which: int, viewing: bool) -> bool | None:
        """False, unless an op may make a tensor that looks like the rows and is not known to."""
        op, result = self.ops.signatures[which], self.ops.results[which]
        if result is None:
            return False if viewing or not tensors(op) else None
        shape = self.last[0]
        if self.product and _ARITHMETIC.search(op.name) and shape in data_shapes(op):
            self.others[shape].remove(None)
        if not viewing or result in self.equal:
            self.others.setdefault(result, []).append(self.ops.types[which])
            self.last = (result, False, self.ops.types[which])
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


def data_shapes(op: Signature) -> Sequence[Shape]:
    """Shapes of what it works on: of a layer its input, not its weight; of a look-up the indices."""
    if not LAYERS.search(op.name):
        return tensors(op)
    # The first input is the bias or the table.
    first = op.name in ("aten::addmm", LOOK_UP)
    return tensors(op)[first : first + 1]


class Others:
    """Tensors of as many entries as there are copies that come from elsewhere: what takes them is no copy's own."""

    def __init__(self, copies: int) -> None:
        self._copies, self._shapes, self._unknown = copies, set[Shape](), False

    def see(self, op: Signature, read: Sequence[Shape]) -> None:
        """An op that takes nothing of the network."""
        as_many = any(shape[:1] == (self._copies,) for shape in read)
        self._shapes.update(shape for shape in read if shape[:1] == (self._copies,))
        self._unknown = False if as_many else self._unknown
        result = result_shape(op)
        if result is not None and result[:1] == (self._copies,):
            self._shapes.add(result)
        elif as_many and result is None:
            self._unknown = True

    def may_be(self, read: Sequence[Shape]) -> bool:
        """Whether one of several tensors may come from elsewhere."""
        return len(read) > 1 and (self._unknown or any(shape in self._shapes for shape in read))
