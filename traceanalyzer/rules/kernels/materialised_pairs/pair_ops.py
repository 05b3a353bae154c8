"""What ops do with numbers for each pair: make them, select among them, weigh them."""

from __future__ import annotations

import math
import re

from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.tensors.signatures import Signature, tensors

Shape = tuple[int, ...]
_PICKS = re.compile(r"^aten::(min|max|amin|amax)$")
_PRODUCTS = re.compile(r"^aten::(mm|bmm|baddbmm)$")
_FLOATS = ("float", "double", "c10::Half", "c10::BFloat16")


def product_size(op: Signature) -> tuple[int, int]:
    """How many numbers a product of matrices, or distances of rows, make, and how many each sums up; 0 of other ops."""
    left, right = (1, 2) if op.name == "aten::baddbmm" else (0, 1)
    try:
        if op.name == "aten::_cdist_forward":
            return math.prod(op.shape(0)[:-1]) * op.shape(1)[-2], op.shape(0)[-1]
        made = math.prod(op.shape(left)[:-1]) * op.shape(right)[-1] if _PRODUCTS.search(op.name) else 0
        return made, op.shape(left)[-1]
    except LookupError:
        return 0, 0


def picked(op: Signature) -> int:
    """How many numbers a selection along one dimension leaves."""
    shape = op.shape(0)
    try:
        along = op.scalar(1)
        return math.prod(shape) // int(shape[along[0] if isinstance(along, list) else along])
    except (LookupError, TypeError):
        return math.prod(shape) // max(shape)


def selects(op: Signature) -> bool:
    """Whether it leaves the least or largest along a dimension."""
    return bool(_PICKS.search(op.name)) and len(op.dims) > 1 and len(tensors(op)) == 1


def passes(op: Signature) -> bool:
    """Whether it selects, or makes of each number another one: then backward needs the selected ones alone."""
    needed = bound_of(op) if op.dims else None
    return selects(op) or (needed is not None and needed.kind == "elementwise")


def weighs(op: Signature, shape: Shape) -> bool:
    """Whether it makes floating numbers of a mask of that shape, with which products or sums then work."""
    return (
        op.name == "aten::copy_"
        and op.types[:1] != ()
        and op.types[0] in _FLOATS
        and op.types[1:2] == ("bool",)
        and shape in shapes_in(op)
    )


def shapes_in(op: Signature) -> set[Shape]:
    """Shapes of its tensors."""
    return {
        tuple(one) for one in op.dims if isinstance(one, list) and one and all(type(n) is int for n in one)
    }
