"""What ops may have written, by their recorded inputs: whether a tensor can have changed between two steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.results import made_of, made_of_nothing, product_of
from traceanalyzer.roofline.signatures import Signature
from traceanalyzer.roofline.tensor_types import tensors

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
    )
)


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


def sizes_written(op: Signature) -> set[int] | None:
    """Elements of the tensors that an op may have written; None where that is not known."""
    name, shapes = op.name.removeprefix("aten::"), tensors(op)
    try:
        if name == "embedding_dense_backward":
            return {int(op.scalar(2)) * shapes[0][-1]}
        if name == "embedding":
            return {math.prod(op.shape(1)) * op.shape(0)[-1]}
        if name in ("gather", "scatter", "scatter_add"):
            return set(map(math.prod, shapes))
    except (LookupError, TypeError, ValueError):
        return None
    if re.match(REDUCES, op.name) or name in ("topk", "argmax", "argmin"):
        return set()
    made = made_of(op) or product_of(op) or made_of_nothing(op)
    if made is not None:
        return {math.prod(made)}
    return set(map(math.prod, shapes)) if shapes and _is_as_large(op) else None


def _is_as_large(op: Signature) -> bool:
    """Whether it writes nothing but tensors as large as its inputs."""
    needed = bound_of(op) if op.dims else None
    in_place = op.name.startswith("aten::") and bool(_IN_PLACE.search(op.name))
    return in_place or (needed is not None and needed.kind in _AS_INPUTS)
