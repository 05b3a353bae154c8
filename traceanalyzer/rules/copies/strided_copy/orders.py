"""The order in which tensors lie in memory, by their strides: what cat joins as it is, what additions hand on."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.signatures import Signature

_NORMS = r"(layer|rms|Layer|RMS|Rms)_?[nN]orm"
_ADDITIONS = ("aten::add", "aten::add_")


def joined_as_they_lie(copies: Work, inputs: WorkInputs) -> Mask:
    """Which copies cat makes of parts that lie in the same order, but not each in one piece; bool (copies,)."""
    alike = np.array([op.name == "aten::cat" and len(_orders(op)) == 1 for op in inputs.signatures], bool)
    return np.asarray(alike[inputs.number[copies.entries]])


def keeps_an_order(copies: Work, inputs: WorkInputs, least_share: float) -> bool:
    """Whether norms copy, again and again, what additions hand on in the order of their first input.

    Args:
        least_share: of the copies' time, that norms must make up.
    """
    by_norms = copies[copies.outer_op.name.matches(_NORMS)]
    if not len(by_norms) or by_norms.total_ns < least_share * copies.total_ns:
        return False
    read = {_tensor(inputs.signatures[one], 1) for one in np.unique(inputs.number[by_norms.entries]).tolist()}
    added = {_tensor(op, 0) for op in inputs.signatures if op.name in _ADDITIONS}
    return bool((read & added) - {None})


def _orders(op: Signature) -> set[tuple[int, ...]]:
    """Orders of the tensors of a list, dimensions from the largest stride to the smallest; empty if unknown."""
    shapes, strides = (one[0] if one and isinstance(one[0], list) else [] for one in (op.dims, op.strides))
    pairs = list(zip(shapes, strides, strict=False))
    if len(shapes) != len(strides) or any(not _parallel(*pair) for pair in pairs):
        return set()
    return {_order(shape, steps) for shape, steps in pairs}


def _order(shape: list[int], steps: list[int]) -> tuple[int, ...]:
    """Its dimensions of more than one element, the one with the largest stride first."""
    return tuple(sorted((at for at, size in enumerate(shape) if size > 1), key=lambda at: -steps[at]))


def _parallel(shape: object, steps: object) -> bool:
    both = isinstance(shape, list) and isinstance(steps, list) and len(shape) == len(steps)
    return both and all(type(one) is int for one in (*shape, *steps))  # type: ignore[misc]


def _tensor(op: Signature, position: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides of one input; None where they are not recorded."""
    try:
        shape, steps = op.shape(position), op.stride(position)
    except LookupError:
        return None
    return None if steps is None else (shape, steps)
