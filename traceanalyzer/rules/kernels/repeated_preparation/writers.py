"""What ops may have written, by their recorded inputs: whether a tensor can have changed between two steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

import numpy as np

from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.op_model import op_cost_of
from traceanalyzer.roofline.results import made_of, made_of_nothing, product_of
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

REDUCES = r"^aten::(linalg_vector_norm|norm|sum|mean|amax|amin|aminmax|var|std|var_mean|std_mean|logsumexp)$"
SMALLER = r"^aten::(topk|argmax|argmin|max|min|index_select|gather|embedding|nll_loss\w*)$"
_IN_PLACE = re.compile(r"_$|^aten::_(foreach|fused)_|^(?!aten::)")
_PARTS = re.compile(r"::(slice|select|narrow|unbind|split\w*|chunk|tensor_split|diagonal|as_strided)$")
_AS_INPUTS = frozenset(
    (
        "elementwise",
        "scan",
        "softmax",
        "norm",
        "norm backward",
        "batch norm",
        "transposition",
        "attention",
        "lists",
        "sort",
        "pool backward",
    )
)
_SMALLER = ("select", "pool")  # kinds whose results have fewer elements than their largest input


def sizes_changed(signatures: Iterable[Signature]) -> set[int]:
    """Elements of the tensors that ops in place, or of a library, may change: whole, or a part that a view takes."""
    known = list(signatures)
    changed = {shape for op in known if _IN_PLACE.search(op.name) for shape in tensors(op)}
    sizes = set(map(math.prod, changed))
    for op in known:
        if _PARTS.search(op.name):
            part = made_of(op)
            if part is None or part in changed:
                sizes |= set(map(math.prod, tensors(op)))
    return sizes


def may_write(op: Signature, elements: int) -> bool | None:
    """Whether an op may have written a tensor of that many elements; None where that is not known."""
    sizes = _sizes_written(op)
    if sizes is not None:
        return elements in sizes
    needed, most = bound_of(op) if op.dims else None, max(map(math.prod, tensors(op)), default=0)
    if re.match(REDUCES, op.name) or (needed is not None and needed.kind == "reduction"):
        return most >= elements and most % elements == 0
    smaller = needed is not None and needed.kind in _SMALLER
    return False if smaller and most < elements else None


def _sizes_written(op: Signature) -> set[int] | None:
    """Elements of the tensors that an op writes, and maybe of others; None where that is not known."""
    name, shapes = op.name.removeprefix("aten::"), tensors(op)
    made = made_of(op) or product_of(op) or made_of_nothing(op)
    if made is not None:
        return {math.prod(made)}
    try:
        if name in _OTHERS:
            return _OTHERS[name](op)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
    if not shapes or not _is_as_large(op):
        return None
    return {*map(math.prod, shapes), *_broadcast(shapes)}


def _broadcast(shapes: list[Shape]) -> list[int]:
    try:
        return [math.prod(np.broadcast_shapes(*shapes))]
    except ValueError:
        return []


def _convolved(op: Signature) -> set[int]:
    """Each number of a convolution takes two operations for each of a filter's."""
    cost = op_cost_of(op)
    if cost is None or cost.flops is None:
        raise LookupError(op.name)
    return {cost.flops // (2 * math.prod(op.shape(1)[1:]))}


def _selected(op: Signature) -> set[int]:
    shape = op.shape(0)
    return {math.prod(shape) // shape[int(op.scalar(1))] * math.prod(op.shape(2))}


_OTHERS: dict[str, Callable[[Signature], set[int]]] = {
    "embedding": lambda op: {math.prod(op.shape(1)) * op.shape(0)[-1]},
    "index_select": _selected,
    "embedding_dense_backward": lambda op: {int(op.scalar(2)) * op.shape(0)[-1]},
    "convolution_backward": lambda op: set(map(math.prod, tensors(op))),
    **dict.fromkeys(("gather", "scatter", "scatter_add"), lambda op: set(map(math.prod, tensors(op)))),
    **dict.fromkeys(("cudnn_convolution", "cudnn_convolution_relu", "miopen_convolution"), _convolved),
}


def _is_as_large(op: Signature) -> bool:
    """Whether it writes nothing but tensors as large as its inputs, or as these broadcast."""
    needed = bound_of(op) if op.dims else None
    in_place = op.name.startswith("aten::") and bool(_IN_PLACE.search(op.name))
    return in_place or (needed is not None and needed.kind in _AS_INPUTS)
