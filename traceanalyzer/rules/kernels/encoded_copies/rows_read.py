"""Which ops read equal rows, and not another tensor of the same shape."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from traceanalyzer.roofline.results import PRODUCTS, product_of, result_of
from traceanalyzer.rules.kernels.encoded_copies.copies import Copied, read_by
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.names import VIEWING_OP

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
_PARTS = 3  # that a condition becomes at least: shift, scale and gate


@dataclass(frozen=True, slots=True)
class Ops:
    """Ops in order, by their signatures, with the shape and type of what each makes where that is known."""

    number: Sequence[int]
    signatures: Sequence[Signature]
    made: Sequence[Shape | None]
    types: Sequence[str | None]

    @staticmethod
    def of(number: Sequence[int], signatures: Sequence[Signature]) -> Ops:
        return Ops(number, signatures, [_made(op) for op in signatures], [_type(op) for op in signatures])

    def modulates(self, place: int) -> bool:
        """Whether an activation and a layer after it make shift, scale and gate of a condition, all at once."""
        both = [self.signatures[one] for one in self.number[place : place + 2]]
        wide, shape = product_of(both[-1]), next(iter(read_by(both[0])), ())
        if wide is None or tuple(read_by(both[-1])) != (shape,) or not _ACTIVATES.search(both[0].name):
            return False
        return wide[-1] % shape[-1] == 0 and wide[-1] >= _PARTS * shape[-1]


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
        read, viewing = read_by(op), bool(VIEWING_OP.search(op.name))
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
            self.product = op.name.removeprefix("aten::") in PRODUCTS
        return False


def types_read(op: Signature, shape: Shape) -> list[str]:
    """Types of the tensors of a shape that an op reads, lists apart."""
    return [kind for sizes, kind in zip(op.dims, op.types, strict=False) if sizes == list(shape)]


def _made(op: Signature) -> Shape | None:
    shapes = tensors(op)
    return shapes[0] if shapes and _KEEPS.search(op.name) else result_of(op)


def _type(op: Signature) -> str | None:
    """Type of what an op makes; None where autocast, or the op, may choose another than that of its tensors."""
    kinds = {
        kind for sizes, kind in zip(op.dims, op.types, strict=False) if isinstance(sizes, list) and sizes
    }
    if not _TYPED.search(op.name) or not kinds:
        return None
    return "float" if kinds in _WIDER else kinds.pop() if len(kinds) == 1 else None
