"""What calls of ops need at least, and what share of the device's peak well-shaped calls reach.

`bound_of` starts from the op table, and replaces the cost if another algorithm needs less.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile

from traceanalyzer.roofline.gpus import Peaks, tables
from traceanalyzer.tensors.ops.costs import ARITHMETIC, DEPTHWISE, INDEX_BYTES, OpCost, scatter
from traceanalyzer.tensors.ops.table import op_cost
from traceanalyzer.tensors.signatures import Signature

REACHED: Mapping[str, float] = tables()["reached_by_ops"]
"""Share of what calls of a kind need at least that well-shaped ones reach."""
_SORTED = 64  # bytes that sorting an index moves, with its place; as long as it takes on an H100
_ADDED = 4  # bytes of a number at least: additions of narrower ones go one by one as well
_FEW_CHANNELS = 8
_IMAGE_CHANNELS, _WIDE_FILTER = 4, 7  # trained layers have more channels; narrower filters save little
CONTENDED = 64  # additions into one place: more of them wait for each other; index_add_, H200
_WIDE = 32  # elements of a row from which on its addresses lie together
_ROW = 3  # elements from which on index_add_ reaches what it does for rows


def bound_of(op: Signature) -> OpCost | None:
    """What one call needs at least; None for ops without a model, and if the inputs do not determine it.

    Where they leave open how much it moves, the most: no call is compared with less than it may need.
    """
    better = _BETTER.get(op.name.removeprefix("aten::"))
    if better is not None:
        try:
            return better(op)
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return None
    cost = op_cost(op)
    if cost is not None and cost.most_bytes is not None:
        return replace(cost, bytes=cost.most_bytes)
    if cost is None or cost.kind not in ("conv", DEPTHWISE):
        return cost
    weight = op.shape(2 if op.name.endswith("_backward") else 1)
    # Tensor cores work on 8 or more input channels at once.
    is_thin = cost.kind == "conv" and weight[1] < _FEW_CHANNELS
    thin = replace(cost, kind="thin conv") if is_thin else cost
    return _by_passes(op, cost) or thin


def least_ns(work: OpCost, peaks: Peaks, arithmetic: str | None) -> float:
    """Time at the device's peaks, ns: of `arithmetic`, the op's where unknown, or of memory, whichever is longer."""
    rate = peaks.tflops.get(arithmetic or work.arithmetic or "")
    compute = work.flops / (rate * 1e3) if work.flops and rate else 0.0
    return max(compute, (work.bytes or 0) / peaks.gbps)


def reached_ns(work: OpCost, peaks: Peaks, arithmetic: str | None) -> float:
    """Time that well-shaped calls of this kind take on the device, ns; 0 of kinds whose steps wait for each other."""
    share = REACHED.get(work.kind)
    return least_ns(work, peaks, arithmetic) / share if share else 0.0


def product_bytes_ns(op: Signature, peaks: Peaks) -> float:
    """Time that a product's operands and result take in memory, ns, at the rate that products reach; 0 if unknown."""
    bound = bound_of(op)
    return (bound.bytes or 0) / peaks.gbps / REACHED["matmul"] if bound is not None else 0.0


def _by_passes(op: Signature, direct: OpCost) -> OpCost | None:
    """One wide filter for each channel of an image, as one pass for each direction; None for others."""
    back = op.name.endswith("_backward")
    image, (channels, inner, *taps) = op.shape(back), op.shape(1 + back)
    blurs = inner == 1 and channels == image[1] <= _IMAGE_CHANNELS and min(taps, default=0) >= _WIDE_FILTER
    trained = back and op.scalars[10].replace(" ", "") != "[True,False,False]"
    if not blurs or trained or len(taps) < 2 or "transpose" in op.name or direct.flops is None:
        return None
    flops = direct.flops * sum(taps) // math.prod(taps)
    return OpCost("separable conv", flops, (direct.bytes or 0) * len(taps), "fp32")


def _scatter(op: Signature) -> OpCost:
    """scatter_add_(target, dim, index, source): reads indices and source, changes as much of the target."""
    changed = math.prod(op.shape(2))
    contended = changed >= CONTENDED * math.prod(op.shape(0))
    return _histogram(changed, op.item_bytes(0)) if contended else scatter(op)


def _histogram(values: int, item_bytes: int) -> OpCost:
    """Many numbers added into few places: blocks add in their shared memory first."""
    return OpCost("histogram", None, values * (item_bytes + INDEX_BYTES))


def _index_add(op: Signature) -> OpCost:
    """index_add_(target, dim, index, source): whole rows; into few of them as a product with a one-hot matrix."""
    rows, values = math.prod(op.shape(2)), math.prod(op.shape(3))
    kind = "row scatter" if values >= _WIDE * rows else "scatter"
    added = OpCost(kind, None, 3 * op.bytes(3) + op.bytes(2))
    places = next((into for into, added_size in zip(op.shape(0), op.shape(3), strict=True) if into != added_size), rows)
    one_hot = 2 * rows * places * op.item_bytes(3)  # written, and read by the product
    product = OpCost(
        "row scatter", 2 * values * places, op.bytes(3) + op.bytes(2) + one_hot, ARITHMETIC.get(op.types[3])
    )
    if rows < CONTENDED * max(places, 1):
        return added
    others = (product, _histogram(values, op.item_bytes(3))) if values == rows else (product,)
    return min(added, *others, key=lambda cost: (cost.bytes or 0) / REACHED[cost.kind])


def _index_put(op: Signature) -> OpCost:
    """_index_put_impl_(target, indices, values, accumulate): what index_add_ needs, which does not sort the indices."""
    if op.scalar(3) is not True:
        raise LookupError("it does not accumulate")
    # Shapes of a list are not recorded: a row is what values and target have in common at their ends.
    values, ends = op.shape(2), zip(reversed(op.shape(0)[1:]), reversed(op.shape(2)), strict=False)
    row = math.prod(size for size, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    rows = math.prod(values) // max(row, 1)
    if rows >= CONTENDED * math.prod(op.shape(0)) // max(row, 1):  # additions would wait for each other
        kind = "sorted row sum" if row >= _WIDE else "sorted sum"
        return OpCost(kind, None, 3 * op.bytes(2) + rows * (INDEX_BYTES + _SORTED))
    kind = "indexed row sum" if row >= _ROW else "indexed sum"
    return OpCost(kind, None, 3 * math.prod(values) * max(op.item_bytes(2), _ADDED) + rows * INDEX_BYTES)


_BETTER: Mapping[str, Callable[[Signature], OpCost]] = {
    **dict.fromkeys(("scatter_add_", "scatter_add", "scatter_", "scatter_reduce_", "scatter"), _scatter),
    **dict.fromkeys(("index_add_", "index_add", "index_copy_"), _index_add),
    "_index_put_impl_": _index_put,
}
