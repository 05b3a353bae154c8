"""Along which dimension of a tensor an op works, and how far apart neighbors lie there in memory."""

import math
from dataclasses import replace

from traceanalyzer.tensors.ops.costs import typed_inputs
from traceanalyzer.tensors.ops.table import result_shape
from traceanalyzer.tensors.signatures import Shape, Signature

_ALONG = """sum mean amax amin argmax argmin prod norm linalg_vector_norm var std logsumexp all any max min cumsum
cumprod logcumsumexp _softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data sort
topk cummax cummin"""

_TURNS = frozenset(f"aten::{name}" for name in ("transpose", "swapaxes", "swapdims", "permute", "t", "numpy_T"))

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides of a tensor."""


def layout_of(op: Signature, position: int) -> Layout | None:
    """Shape and strides of an input, None if not recorded."""
    try:
        shape, steps = op.shape(position), op.stride(position)
    except LookupError:
        return None
    return None if steps is None else (shape, steps)


def adds_transposed(op: Signature) -> bool:
    """Whether a sum of no images reads rows whose neighbors are apart in memory; its result has these strides, too."""
    read = layout_of(op, 0) if op.name in ("aten::add", "aten::add_") else None
    return read is not None and len(read[0]) in (2, 3) and read[0][-1] > 1 < read[1][-1] and 1 in read[1]


def turns(name: str) -> bool:
    """Whether an op only changes the order of dimensions."""
    return name in _TURNS


def turned_layout(op: Signature) -> Layout | None:
    """Layout of what a transpose() or permute() makes; None of other ops, and if strides are not recorded."""
    read = layout_of(op, 0) if turns(op.name) else None
    if read is None:
        return None
    steps = replace(op, dims=(list(read[1]), *op.dims[1:]))
    shape, turned = result_shape(op), result_shape(steps)
    return (shape, turned) if shape is not None and turned is not None else None


def stride_reason(op: Signature) -> str:
    """How far apart neighbors lie along the dimension of an op's work, as a clause; empty where they are adjacent.

    Raises LookupError, TypeError or ValueError for damaged inputs.
    """
    shape, strides, dim = worked_along(op)
    if dim is not None and (step := strided_step(op)) > 1:
        return f"along dimension {dim} neighbours are {step:,} elements apart in memory"
    if strides and strides[-1] > 1 and shape[-1] > 1:
        return f"neighbours in a row of its input are {strides[-1]:,} elements apart"
    return ""


def is_strided(op: Signature) -> bool:
    """Whether the kernel reduces a dimension with neighbors apart in memory; False where unknown.

    A softmax copies its input so that the last dimension is contiguous, and then works along its own dimension.
    """
    try:
        if "softmax" not in op.name:
            return strided_step(op) > 1
        shape, _, dim = worked_along(op)
        return dim is not None and shape[dim] > 1 and math.prod(shape[dim + 1 :]) > 1
    except (LookupError, TypeError, ValueError):
        return False


def strided_step(op: Signature) -> int:
    """Elements from one number to the next along the dimension that an op reduces; 0 where unknown or of size 1."""
    shape, strides, dim = worked_along(op)
    if dim is None or shape[dim] <= 1:
        return 0
    return strides[dim] if strides else math.prod(shape[dim + 1 :])


def worked_along(op: Signature) -> tuple[Shape, tuple[int, ...] | None, int | None]:
    """Shape and strides of the largest input, and the dimension that the op reduces, as `_along_one`."""
    largest = max(typed_inputs(op), key=lambda i: math.prod(op.shape(i)))
    return op.shape(largest), op.stride(largest), _along_one(op, len(op.shape(largest)))


def _along_one(op: Signature, rank: int) -> int | None:
    """The one dimension that it reduces, scans or normalises; None of several, or none."""
    if op.name.removeprefix("aten::") not in _ALONG.split():
        return None
    position = 2 if op.name.endswith(("_backward_data", "vector_norm")) else 1
    along = op.scalar(position)
    dims = along if isinstance(along, list) else [along]
    return int(dims[0]) % rank if len(dims) == 1 and type(dims[0]) is int else None
