"""Shape of what an op makes, whichever op it is: products, images, norms, reductions, views, arithmetic."""

from __future__ import annotations

import re

from traceanalyzer.roofline.images import image, mixes_no
from traceanalyzer.roofline.results import made_of, product_of
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

UNREADABLE = LookupError, TypeError, ValueError, ZeroDivisionError  # what damaged inputs raise

ALONE = re.compile(
    r"^(dropout|relu6?|silu|gelu|mish|elu|selu|leaky_relu|softplus|hard\w+|logsigmoid|erf|nan_to_num)_?$"
)
ALONG = re.compile(r"^(_?(log_)?softmax|cumsum|cumprod)$")
NORM = re.compile(r"^(layer|rms)_norm$")
ATTENTION = "scaled_dot_product_attention"
REDUCTIONS = {  # -> position of the dimensions that they join
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "logsumexp"), 1
    ),
    **dict.fromkeys(("linalg_vector_norm", "norm"), 2),
}


def made(op: Signature) -> Shape | None:
    """Shape of what an op makes; None where that is not known."""
    name = op.name.removeprefix("aten::")
    try:
        if mixes_no(name) is not None:
            return image(op, name)
        if name == "unfold":
            return _sliding(op.shape(0), *(int(op.scalar(at)) for at in (1, 2, 3)))
        if name == "embedding":
            return (*op.shape(1), op.shape(0)[-1])
        if name == "randperm":
            return (int(op.scalar(0)),)
        if name == "stack":
            first, at = tensors(op)[0], int(op.scalar(1)) % (len(tensors(op)[0]) + 1)
            return (*first[:at], len(tensors(op)), *first[at:])
        if name == ATTENTION:
            return (*op.shape(0)[:-1], op.shape(2)[-1])
        if ALONE.match(name) or ALONG.match(name) or NORM.match(name):
            return op.shape(0)
        if name in REDUCTIONS and len(tensors(op)) == 1:
            return tuple(1 if at is None else op.shape(0)[at] for at in left_over(op, name))
        return product_of(op) or made_of(op)
    except UNREADABLE:
        return None


def left_over(op: Signature, name: str) -> list[int | None]:
    """For each dimension of what a reduction makes that of its input; None where it joined that one and keeps it."""
    at = REDUCTIONS[name]
    rank, over = len(op.shape(0)), op.scalar(at)
    joins = {int(one) % rank for one in (over if isinstance(over, list) else [over])} or set(range(rank))
    keeps = len(op.scalars) > at + 1 and op.scalars[at + 1] == "True"
    return [None if one in joins else one for one in range(rank) if keeps or one not in joins]


def _sliding(shape: Shape, at: int, size: int, step: int) -> Shape:
    """Windows that slide along a dimension; each is the last dimension of the result."""
    at %= len(shape)
    return (*shape[:at], (shape[at] - size) // step + 1, *shape[at + 1 :], size)
