"""Element types of an op's tensors."""

from __future__ import annotations

import math

from traceanalyzer.roofline.op_model import ITEM_BYTES, Signature

NARROWER = frozenset({"float", "c10::Half", "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float8_e5m2"})


def tensor_types(op: Signature) -> set[str]:
    """Types of the inputs that are tensors of more than one element: single numbers are Python's doubles."""
    pairs = zip(op.dims, op.types, strict=False)
    return {kind for shape, kind in pairs if isinstance(shape, list) and shape and _elements(shape) > 1}


def has_float64(op: Signature) -> bool:
    """Whether one of its tensors is of doubles."""
    return "double" in tensor_types(op)


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


def _elements(shape: list[object]) -> int:
    return math.prod(size for size in shape if isinstance(size, int))
