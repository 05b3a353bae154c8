"""Gates of a mixture of experts: which experts topk keeps for each row, and the products that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from traceanalyzer.model.arrays import Mask
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline.calls_and_work import Work


class Gate(NamedTuple):
    """topk of `kept` out of `experts` scores for each of `rows` rows."""

    rows: int
    experts: int
    kept: int


def gates_of(signatures: Iterable[Signature], max_kept: float, min_rows: int) -> list[Gate]:
    """The gates among some ops, ordered.

    Args:
        max_kept: maximum share of the experts that is kept.
    """
    found = {gate for op in signatures if (gate := _gate(op)) is not None}
    return sorted(
        gate for gate in found if 0 < gate.kept <= max_kept * gate.experts and gate.rows >= min_rows
    )


def is_product(op: Signature) -> bool:
    """Whether it is a matrix product of known shapes."""
    needed = bound_of(op) if op.dims else None
    return needed is not None and needed.kind == "matmul"


def summed_dimension(op: Signature) -> int | None:
    """The size that a product of two matrices, or of batches of them, sums over; None for other ops."""
    first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}.get(op.name)
    try:
        return None if first is None else op.shape(first)[-1]
    except LookupError:
        return None


def in_forward(work: Work) -> Mask:
    """Which work no node of the autograd engine launched."""
    return ~work.outer_op.name.matches(r"^autograd::engine|Backward\d*$") & work.outer_op.there


def _gate(op: Signature) -> Gate | None:
    if op.name != "aten::topk":
        return None
    try:
        shape, kept = op.shape(0), int(op.scalar(1))
    except (LookupError, TypeError, ValueError):
        return None
    return Gate(math.prod(shape[:-1]), shape[-1] if shape else 0, kept)
