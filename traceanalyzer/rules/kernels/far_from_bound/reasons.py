"""Why a call is far from what its inputs need, as far as grid, strides, sizes and indices show."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.roofline.convolutions import nth
from traceanalyzer.roofline.op_bounds import CONTENDED
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature

_FEW = 0.5  # of the multiprocessors: fewer blocks leave half of the device empty
_SHORT = 256  # elements of a row: a block of torch's norms has that many threads
_ALONG_ONE = """sum mean amax amin argmax argmin prod norm linalg_vector_norm var std logsumexp all any max min cumsum
cumprod logcumsumexp _softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data sort
topk cummax cummin"""
_ALONG = frozenset(_ALONG_ONE.split())
_SORTS = dict.fromkeys(
    ("indexed sum", "indexed row sum"), "it sorts the indices, and adds equal ones one after the other"
)
_ADDS_ROWS = {"index_add_": 2, "index_add": 2, "index_copy_": 2, "scatter_add_": 2, "scatter_add": 2}


def reason(op: Signature, kind: str, blocks: Rows, sms: int | None) -> str:
    """The end of a sentence; empty where the trace does not show it.

    Args:
        kind: of its bound.
        blocks: blocks of its kernels' grids, those of one call or of all.
    """
    if reduces_nothing(op):
        return ": the dimension that it reduces has one element, so that its input is only copied"
    try:
        told = _contention(op, kind) or _SORTS.get(kind) or _few_blocks(blocks, sms) or _stride(op)
        told = told or _short_rows(op, kind)
        told = _phases(op) if kind == "resampling conv" else told
        told = _taps(op) if kind == "separable conv" else told
    except (LookupError, TypeError, ValueError):
        told = _few_blocks(blocks, sms)
    return f": {told}" if told else ""


def _phases(op: Signature) -> str:
    """Of a convolution that changes a sampling rate: how few of its taps count."""
    weight = op.shape(1)
    old = nth(op.scalar(3), len(weight) - 3)
    return (
        f"it changes a sampling rate with {weight[0]:,} kernels of {weight[-1]:,} taps, of which {weight[-1] - old:,} "
        f"count: {weight[0]:,} and {old:,} have no common divisor"
    )


def _taps(op: Signature) -> str:
    """Of a filter that passes in each direction could replace: its taps, and theirs."""
    taps = op.shape(2 if op.name.endswith("_backward") else 1)[2:]
    return f"one pass multiplies {math.prod(taps):,} taps, one pass in each direction {sum(taps):,}"


def reduces_nothing(op: Signature) -> bool:
    """Whether the dimension that it reduces has one element: such a call only copies its input."""
    try:
        tensors = [i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]]
        shape = op.shape(tensors[0])
        dim = _dimension(op, len(shape))
    except (LookupError, TypeError, ValueError):
        return False
    return dim is not None and shape[dim] == 1


def _contention(op: Signature, kind: str) -> str:
    """Additions that meet in few places."""
    name = op.name.removeprefix("aten::")
    if name == "embedding_dense_backward":
        added, places = math.prod(op.shape(1)), int(op.scalar(2))
    elif name in _ADDS_ROWS:
        dim = int(op.scalar(1))
        along = op.shape(_ADDS_ROWS[name])
        added, places = along[dim] if len(along) > 1 else math.prod(along), op.shape(0)[dim]
    elif name == "_index_put_impl_" and "sum" in kind:
        added, places = math.prod(op.shape(2)) // max(math.prod(op.shape(0)[1:]), 1), op.shape(0)[0]
    else:
        return ""
    if added < CONTENDED * max(places, 1):
        return ""
    return f"each of {places:,} rows takes about {added // max(places, 1):,} additions, one after the other"


def _few_blocks(blocks: Rows, sms: int | None) -> str:
    most = int(np.median(blocks)) if len(blocks) else 0
    if not sms or not 0 < most < _FEW * sms:
        return ""
    return f"{most} blocks leave most of {sms} multiprocessors empty"


def _stride(op: Signature) -> str:
    """Along which dimension it works, and how far apart neighbours lie there."""
    tensors = [i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]]
    largest = max(tensors, key=lambda i: math.prod(op.shape(i)))
    shape, strides = op.shape(largest), op.stride(largest)
    dim = _dimension(op, len(shape))
    if dim is not None:
        apart = strides[dim] if strides else math.prod(shape[dim + 1 :])
        if apart > 1 and shape[dim] > 1:
            return f"along dimension {dim} neighbours are {apart:,} elements apart in memory"
    if strides and strides[-1] > 1 and shape[-1] > 1:
        return f"neighbours in a row of its input are {strides[-1]:,} elements apart"
    return ""


def _dimension(op: Signature, rank: int) -> int | None:
    """The one dimension that it reduces, scans or normalises; None of several, or none."""
    if op.name.removeprefix("aten::") not in _ALONG:
        return None
    at = 2 if op.name.endswith(("_backward_data", "vector_norm")) else 1
    given = op.scalar(at)
    dims = given if isinstance(given, list) else [given]
    return int(dims[0]) % rank if len(dims) == 1 and type(dims[0]) is int else None


def _short_rows(op: Signature, kind: str) -> str:
    if not kind.startswith("norm"):
        return ""
    width = op.shape(1 if kind == "norm backward" else 0)[-1]
    return f"rows of {width:,} do not fill a block" if width < _SHORT else ""
