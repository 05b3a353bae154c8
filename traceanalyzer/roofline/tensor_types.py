"""Element types and shapes of an op's tensors."""

from __future__ import annotations

import math
from typing import Any

from traceanalyzer.roofline.signatures import ITEM_BYTES, Signature

Shape = tuple[int, ...]

_DOUBLES = frozenset({"double", "c10::complex<double>"})
NARROWER = frozenset({"float", "c10::Half", "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float8_e5m2"})


def tensor_types(op: Signature) -> set[str]:
    """Types of the inputs that are tensors of more than one element: single numbers are Python's doubles."""
    pairs = zip(op.dims, op.types, strict=False)
    return {kind for shape, kind in pairs if isinstance(shape, list) and shape and _elements(shape) > 1}


def has_float64(op: Signature) -> bool:
    """Whether one of its tensors is of doubles, or of complex numbers of doubles."""
    return not _DOUBLES.isdisjoint(tensor_types(op))


def mixes_float64(op: Signature) -> bool:
    """Whether it takes doubles together with another floating type."""
    kinds = tensor_types(op)
    return "double" in kinds and bool(kinds & NARROWER)


def widens_to_float64(op: Signature) -> bool:
    """A conversion from another floating type to float64: `copy_` into doubles."""
    return op.name == "aten::copy_" and op.types[:1] == ("double",) and mixes_float64(op)


def converts(op: Signature) -> bool | None:
    """Whether a copy changes the floating type, float64 apart; None where it is no copy, or types are unknown."""
    kinds = {kind for kind in op.types[:2] if kind in ITEM_BYTES}
    if op.name != "aten::copy_" or not kinds:
        return None
    return len(kinds) > 1 and kinds <= NARROWER


def number_bytes(op: Signature) -> int:
    """Bytes of a number of an op's first input; of float32 where types are not recorded."""
    return ITEM_BYTES.get(op.types[0] if op.types else "", 4)


def tensors(signature: Signature) -> list[Shape]:
    """Shapes of all tensors among an op's inputs, those in lists as well; single numbers have none."""
    return _shapes(signature.dims)


def _elements(shape: list[object]) -> int:
    return math.prod(size for size in shape if isinstance(size, int))


def _shapes(dims: Any) -> list[Shape]:
    each = [shape for shape in dims if isinstance(shape, list) and shape]
    plain = [tuple(shape) for shape in each if all(isinstance(size, int) for size in shape)]
    return plain + [s for shape in each if isinstance(shape[0], list) for s in _shapes(shape)]
