"""Small parts that are written into a fresh tensor of full size, and what then happens to the whole tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule import Calls
from traceanalyzer.tensors.signatures import Shape, Signature, number_bytes, signatures_of, tensors
from traceanalyzer.timeline.names import ALLOCATING_OP, VIEWING_OP

_FILL = re.compile(r"^aten::(fill|zero)_$")
_CUT = re.compile(r"^aten::(slice|select|narrow|as_strided|diagonal|unfold)$")
_WRITE_PART = re.compile(r"^aten::(copy|fill|zero|add|sub|mul|div|index_put|masked_fill)_$")
_WRITE_AT = re.compile(r"^aten::(_?index_put(_impl)?|index_(add|copy|fill)|scatter(_add|_reduce)?)_$")
_VALUES_INPUT = {
    "index_put": 2,
    "_index_put_impl": 2,
    "slice_scatter": 1,
    "select_scatter": 1,
}  # of all others 3
_WRITE_COPY = re.compile(r"^aten::(index_(add|copy|fill|put)|scatter(_add|_reduce)?|(slice|select)_scatter)$")
_SUM = re.compile(r"^aten::(add|sub|rsub|logical_or|bitwise_or)_?$")
_MASKED = re.compile(r"^aten::mul_?$")  # by ones: what is left of a mask changes the part alone
_PRODUCT = re.compile(r"^aten::(mm|bmm|addmm|baddbmm)$")
_WRAPPER = re.compile(
    r"^aten::(to|_to_copy|clone|contiguous|type_as|zeros_like|new_zeros|full_like|new_full)$"
)


@dataclass(slots=True)
class Update:
    """A part that was written into a tensor of full size, which was then passed over.

    Attributes:
        whole: shape of the tensor.
        part: elements written, as far as known at most all of them.
        part_shape: of the largest write.
        item_bytes: of one element.
        made: rows of `trace.cpu` of the ops that filled or copied the whole tensor.
        added: rows of the ops that added the whole tensor to another; none of a copy.
        copied: whether the tensor began as a copy of another, not as a fill.
        ones: whether it was filled with ones.
        diagonal: whether the part is its diagonal.
        multiplied: shapes of the product that the whole tensor is a factor of; none of other updates.
    """

    whole: Shape
    copied: bool
    made: list[int]
    item_bytes: int = 4
    part: int = 0
    part_shape: Shape = ()
    added: list[int] = field(default_factory=list)
    viewed: bool = False
    ones: bool = False
    diagonal: bool = False
    multiplied: list[Shape] = field(default_factory=list)

    @property
    def row(self) -> int:
        """Of the op that finishes it: the sum, else the copy; -1 before it is made."""
        return (self.added or self.made or [-1])[-1]

    def write(self, shape: Shape) -> None:
        """Note that so many more elements have been written."""
        self.part += math.prod(shape)
        self.viewed = False
        if math.prod(shape) > math.prod(self.part_shape or (0,)):
            self.part_shape = shape


def updates_of(calls: Calls, wholes: set[Shape]) -> Iterator[Update]:
    """Updates of tensors of the given shapes, thread by thread, in order of time."""
    ops = calls[calls.is_op & calls.name.matches(r"^aten::")]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    useful = np.array([_concerns(one, wholes) for one in signatures], bool)[number]
    ops, number = ops[useful], number[useful]
    for thread in np.unique(ops.thread).tolist():
        own = np.flatnonzero(ops.thread == thread)
        own = own[np.lexsort((-ops.end_ns[own], ops.start_ns[own]))]
        yield from _of_thread(ops[own], number[own], signatures, wholes)


def _concerns(op: Signature, wholes: set[Shape]) -> bool:
    """Whether it reads a tensor of one of these shapes, or may write a part of one."""
    if ALLOCATING_OP.search(op.name) or _WRAPPER.match(op.name):
        return False
    return bool(_WRITE_PART.match(op.name)) or not wholes.isdisjoint(tensors(op))


def _of_thread(
    ops: Calls, number: Rows, signatures: Sequence[Signature], wholes: set[Shape]
) -> Iterator[Update]:
    pending: dict[Shape, Update] = {}
    written_until = 0
    for row, which, start, end in zip(
        ops.rows.tolist(), number.tolist(), ops.start_ns.tolist(), ops.end_ns.tolist(), strict=True
    ):
        op = signatures[which]
        shapes = tensors(op)
        first = shapes[0] if shapes else ()
        if _WRITE_PART.match(op.name) and start >= written_until:
            parts = [
                one for one in pending.values() if one.viewed and math.prod(first) < math.prod(one.whole)
            ]
            for update in parts:
                update.write(first)
                written_until = end  # the ops within this one write the same
        for whole in wholes.intersection(shapes):
            before = pending.pop(whole, None)
            after = _followed(before, op, row, whole, shapes)
            if after is not None:
                pending[whole] = after
            if before is not None and after is not before and before.part:
                yield before
    yield from (one for one in pending.values() if one.part)


def _followed(
    before: Update | None, op: Signature, row: int, whole: Shape, shapes: list[Shape]
) -> Update | None:
    """What is pending after an op on the whole tensor: the same update, a new one, or none."""
    if _WRITE_COPY.match(op.name) and shapes[0] == whole:
        return Update(whole, True, [], number_bytes(op), math.prod(_values(op)), _values(op))
    if _FILL.match(op.name):
        if before is not None and not (before.copied or before.part or before.viewed):
            before.made.append(row)  # zero_ around fill_
            return before
        return Update(whole, False, [row], number_bytes(op), ones=op.scalars[1:2] in (("1",), ("1.",)))
    if op.name == "aten::copy_" and shapes[:2] == [whole, whole]:
        if before is not None and before.part and not before.copied:
            before.added.append(row)  # a conversion on the way to the sum
            return before
        if before is not None and before.copied and not before.made:
            before.made.append(row)
            return before
        return Update(whole, True, [row], number_bytes(op)) if len(set(op.types[:2])) == 1 else None
    if before is None:
        return None
    if _WRITE_AT.match(op.name) and shapes[0] == whole:
        before.part = max(before.part, math.prod(_values(op)))
        before.part_shape = before.part_shape or _values(op)
        return before
    if VIEWING_OP.search(op.name):
        before.viewed |= bool(_CUT.match(op.name))
        before.diagonal |= op.name == "aten::diagonal"
        return before
    if not before.copied and _takes_all(before, op, shapes):
        before.added.append(row)
        before.multiplied = shapes[-2:] if _PRODUCT.match(op.name) else []
    elif op.name == "aten::matmul" and before.diagonal:
        return before  # a product is within it
    return None


def _takes_all(update: Update, op: Signature, shapes: list[Shape]) -> bool:
    """Whether an op passes over the whole tensor though only the part of it matters."""
    if update.diagonal and len(update.whole) > 1 and _PRODUCT.match(op.name):
        return True
    if op.name == "aten::where":
        return shapes.count(update.whole) > 1
    pointwise = _SUM.match(op.name) or (update.ones and _MASKED.match(op.name))
    return bool(pointwise) and shapes[:2] == [update.whole, update.whole]


def _values(op: Signature) -> Shape:
    """Shape of what an indexed write writes; of a single number that of its index."""
    at = _VALUES_INPUT.get(op.name.removeprefix("aten::").removesuffix("_"), 3)
    try:
        return op.shape(at) or op.shape(at - 1)
    except LookupError:
        return tensors(op)[-1]
