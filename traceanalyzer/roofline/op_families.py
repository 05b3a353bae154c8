"""What calls of less common ops need at least: losses, recurrent layers, resampling, distances, counting, lists.

Bytes are those of inputs and results, once each, as in `op_model`. What has no model anywhere reads its inputs once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from traceanalyzer.roofline.op_model import ARITHMETIC, OpCost
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature

_LONG = 8  # bytes of an index
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # of cuDNN's modes: RNN with relu and tanh, LSTM, GRU
# Look at a part of their inputs, or at none: their shapes say nothing of what they read.
_PARTLY = re.compile(
    r"^aten::(_?index|take|select|slice|narrow|diagonal|gather|resize|as_strided|empty|set_|_coalesce|sparse|_sparse|item"
    r"|_local_scalar|randperm|arange|masked_scatter|embedding)"
)


def _tensors(op: Signature) -> list[int]:
    """Positions of the inputs that are tensors of known shape and type."""
    return [i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and i < len(op.dims) and op.dims[i]]


def inputs_once(op: Signature) -> OpCost | None:
    """Reads its tensors once, whatever it does with them; None where it may look at a part only, or has none."""
    tensors = [] if _PARTLY.search(op.name) or not op.name.startswith("aten::") else _tensors(op)
    try:
        moved = sum(op.bytes(i) for i in tensors)
    except LookupError:
        return None
    return OpCost("inputs", None, moved, ARITHMETIC.get(op.types[tensors[0]])) if moved else None


def _reads(kind: str, *, writes: int | None = None) -> Callable[[Signature], OpCost]:
    """Reads all tensors, and writes one as large as that at `writes`."""

    def model(op: Signature) -> OpCost:
        tensors = _tensors(op)
        written = 0 if writes is None else op.bytes(tensors[writes])
        return OpCost(kind, None, sum(op.bytes(i) for i in tensors) + written)

    return model


def _dropout(op: Signature) -> OpCost:
    """Reads, writes as much and a mask of bytes."""
    return OpCost("elementwise", None, 2 * op.bytes(0) + math.prod(op.shape(0)))


def _nll_forward(op: Signature) -> OpCost:
    """One number of each row, by its class."""
    return OpCost("gather", None, math.prod(op.shape(1)) * (_LONG + op.item_bytes(0)))


def _nll_backward(op: Signature) -> OpCost:
    """Zeros as large as the input, and one number of each row."""
    return OpCost("elementwise", None, op.bytes(1) + op.bytes(2))


def _rnn(first: int, passes: int) -> Callable[[Signature], OpCost]:
    """A cuDNN layer whose mode is input `first`; `passes` times as many operations as forward."""

    def model(op: Signature) -> OpCost:
        steps, width, types = op.shape(0), op.shape(0)[-1], op.types[0]
        mode, hidden, layers = (int(op.scalar(first + i)) for i in (0, 1, 3))
        ways = 2 if op.scalars[first + 7] == "True" else 1
        wide = [width] + [hidden * ways] * (layers - 1)
        weights = sum(ways * _GATES[mode] * hidden * (one + hidden) for one in wide)
        moved = (math.prod(steps) + weights + math.prod(steps[:-1]) * hidden * ways) * ITEM_BYTES[types]
        flops = 2 * passes * math.prod(steps[:-1]) * weights
        return OpCost("recurrent", flops, passes * moved, ARITHMETIC.get(types))

    return model


def _distances(op: Signature) -> OpCost:
    """All pairs of rows: three operations for each of their numbers."""
    left, right = op.shape(0), op.shape(1)
    pairs = math.prod(left[:-1]) * right[-2]
    moved = (math.prod(left) + math.prod(right) + pairs) * op.item_bytes(0)
    return OpCost("distances", 3 * pairs * left[-1], moved, "fp32" if op.types[0] == "float" else None)


def _resampled(op: Signature) -> OpCost:
    """grid_sampler(input, grid): reads both, writes all channels at each place."""
    image, grid = op.shape(0), op.shape(1)
    written = image[0] * image[1] * math.prod(grid[1:-1])
    return OpCost("resampling", None, op.bytes(0) + op.bytes(1) + written * op.item_bytes(0))


def _resized(op: Signature) -> OpCost:
    """upsample(input, output size): reads one, writes the other."""
    size: Any = op.scalar(1)
    written = math.prod(op.shape(0)[:2]) * math.prod(size)
    return OpCost("resampling", None, op.bytes(0) + written * op.item_bytes(0))


def _bags(op: Signature) -> OpCost:
    """_embedding_bag(table, indices, offsets): a row for each index, a sum for each bag."""
    width = op.shape(0)[-1] * op.item_bytes(0)
    picked = math.prod(op.shape(1))
    return OpCost("gather", None, picked * (width + _LONG) + math.prod(op.shape(2)) * width)


def _searched(op: Signature) -> OpCost:
    """searchsorted(sorted, values), bucketize(values, sorted): reads both, writes a place for each value."""
    values = 0 if op.name.endswith("bucketize") else 1
    return OpCost("search", None, op.bytes(0) + op.bytes(1) + math.prod(op.shape(values)) * _LONG)


def _drawn(op: Signature) -> OpCost:
    """multinomial(weights, n): a copy of all weights is scaled and cumulated, of a row that is expanded as well."""
    return OpCost("count", None, math.prod(op.shape(0)) * op.item_bytes(0))


def _cubic(times: float) -> Callable[[Signature], OpCost]:
    """Linear algebra on square matrices: `times` n^3 operations each."""

    def model(op: Signature) -> OpCost:
        shape = op.shape(0)
        rows, columns = shape[-2], shape[-1]
        flops = int(times * math.prod(shape[:-2]) * max(rows, columns) * min(rows, columns) ** 2)
        return OpCost("linear algebra", flops, 2 * op.bytes(0), ARITHMETIC.get(op.types[0]))

    return model


def _product(left: int, right: int) -> Callable[[Signature], OpCost]:
    """A matrix and a vector, or two vectors."""

    def model(op: Signature) -> OpCost:
        moved = op.bytes(left) + op.bytes(right)
        most = max(math.prod(op.shape(left)), math.prod(op.shape(right)))
        return OpCost("vector product", 2 * most, moved, ARITHMETIC.get(op.types[left]))

    return model


def _scaled(op: Signature) -> OpCost:
    """_scaled_mm(a, b, ..) in 8 bits, b's columns together."""
    a, b = op.shape(0), op.shape(1)
    if len(a) != 2 or a[1] != b[0]:
        raise ValueError("not a matrix product")
    moved = op.bytes(0) + op.bytes(1) + 2 * a[0] * b[1]
    return OpCost("matmul", 2 * a[0] * a[1] * b[1], moved, "fp8")


def _lists(op: Signature) -> OpCost:
    """_foreach_ and _fused_ ops: every tensor of every list once; in place, the first list again.

    The element types of lists are not recorded: float32, as parameters and states mostly are.
    """
    lists = [dims for dims in op.dims if isinstance(dims, list) and dims and isinstance(dims[0], list)]
    sizes = [sum(math.prod(shape) for shape in one if all(type(n) is int for n in shape)) for one in lists]
    if not sizes or not sizes[0]:
        raise LookupError("lists too long to be recorded")
    written = sum(sizes[:1] + sizes[2:4]) if "_fused_" in op.name else sizes[0]
    return OpCost("lists", None, ITEM_BYTES["float"] * (sum(sizes) + written))


_LOSSES = "mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss l1_loss"
_LOSS_GRADIENTS = " ".join(f"{name}_backward" for name in _LOSSES.split())
_COUNTS = """bincount histc _unique2 unique_dim unique_consecutive masked_select nonzero isin"""
_RANDOM = "uniform_ normal_ bernoulli_ exponential_ random_ log_normal_ geometric_ cauchy_"
_PADS = " ".join(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
_SIZES = "nearest1d nearest2d nearest3d bilinear2d bicubic2d trilinear3d linear1d"

MODELS: Mapping[str, Callable[[Signature], OpCost]] = {
    **dict.fromkeys(_LOSSES.split(), _reads("reduction")),
    **dict.fromkeys(_LOSS_GRADIENTS.split(), _reads("elementwise", writes=0)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_forward),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_backward),
    "native_dropout": _dropout,
    "native_dropout_backward": _reads("elementwise", writes=0),
    **dict.fromkeys(_RANDOM.split(), _reads("random")),
    "_cudnn_rnn": _rnn(6, 1),
    "_cudnn_rnn_backward": _rnn(10, 2),
    **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), _reads("elementwise", writes=0)),
    "_cdist_forward": _distances,
    "_euclidean_dist": _distances,
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), _resampled),
    **dict.fromkeys((f"upsample_{size}" for size in _SIZES.split()), _resized),
    **dict.fromkeys(_PADS.split(), _reads("resampling", writes=0)),
    **dict.fromkeys(("im2col", "col2im"), _reads("resampling", writes=0)),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
    **dict.fromkeys(("searchsorted", "bucketize"), _searched),
    **dict.fromkeys(_COUNTS.split(), _reads("count")),
    "multinomial": _drawn,
    **dict.fromkeys(("mv", "dot", "vdot"), _product(0, 1)),
    "addmv": _product(1, 2),
    "_scaled_mm": _scaled,
    **dict.fromkeys(("linalg_cholesky_ex", "cholesky"), _cubic(1 / 3)),
    **dict.fromkeys(("linalg_lu_factor_ex", "_linalg_solve_ex", "linalg_ldl_factor_ex"), _cubic(2 / 3)),
    **dict.fromkeys(("linalg_inv_ex", "linalg_qr", "linalg_householder_product"), _cubic(2)),
    **dict.fromkeys(("_linalg_eigh", "linalg_eig", "_linalg_svd"), _cubic(9)),
    **dict.fromkeys(("linalg_solve_triangular", "cholesky_solve", "triangular_solve"), _cubic(1)),
}
_ON_LISTS = re.compile(r"^_(foreach|fused)_(?!rms|moving|sdp)")


def family_of(op: Signature) -> OpCost | None:
    """What one call needs at least; None for ops without a model, and where the inputs do not say."""
    name = op.name.removeprefix("aten::")
    model = MODELS.get(name) or (_lists if _ON_LISTS.search(name) else None)
    if model is None:
        return None
    try:
        return model(op)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None
