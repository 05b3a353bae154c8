"""What one call of an op computes and moves at least, from the shapes and types of its inputs.

A multiply-add is two operations. Bytes are those of inputs and result, once each, as if caches were perfect; expanded
tensors count once. Each function raises LookupError, TypeError, ValueError or ArithmeticError if the inputs do not
determine the cost; `table.op_cost` turns that into None.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.tensors.ops.shapes import nth
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, at_positions

ARITHMETIC = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}
DEPTHWISE = "depthwise conv"
INDEX_BYTES = 8

_GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # gates of a cuDNN cell by mode: RNN with relu and with tanh, LSTM, GRU


@dataclass(frozen=True, slots=True)
class OpCost:
    """One call: operations and bytes moved at least, None if unknown; `arithmetic` as `Peaks` names it.

    `most_bytes` is what it moves at most, where the inputs leave that open.
    """

    kind: str
    flops: int | None
    bytes: int | None
    arithmetic: str | None = None
    most_bytes: int | None = None


CostOf = Callable[[Signature], OpCost]


def typed_inputs(op: Signature) -> list[int]:
    """Positions of the tensors of known shape and type; single numbers have no shape."""
    pairs = enumerate(zip(op.dims, op.types, strict=False))
    return [index for index, (dims, kind) in pairs if kind in ITEM_BYTES and dims]


# -- products, convolutions, attention ------------------------------------------------------------------------


@at_positions
def gemm(op: Signature, left: int, right: int, bias: int | None = None) -> OpCost:
    """Product of the matrices at these positions."""
    a, b = op.shape(left), op.shape(right)
    if a[:-2] != b[:-2] or a[-1] != b[-2]:
        raise ValueError("not a matrix product")
    elements = math.prod(a[:-1]) * b[-1]
    moved = op.bytes(left) + op.bytes(right) + elements * op.item_bytes(left)
    if bias is not None:
        moved += op.bytes(bias)
    return OpCost("matmul", 2 * elements * a[-1], moved, ARITHMETIC.get(op.types[left]))


def scaled_gemm(op: Signature) -> OpCost:
    """_scaled_mm(a, b, ...) in 8 bits with a result of 16."""
    a, b = op.shape(0), op.shape(1)
    if len(a) != 2 or a[1] != b[0]:
        raise ValueError("not a matrix product")
    return OpCost("matmul", 2 * a[0] * a[1] * b[1], op.bytes(0) + op.bytes(1) + 2 * a[0] * b[1], "fp8")


def int4_gemm(op: Signature) -> OpCost:
    """_weight_int4pack_mm(a, packed weights, group size, scales and zeros): the weights are read as they are packed."""
    a, packed, scales = op.shape(0), op.elements(1), op.shape(3)
    # Words of 32 bits, with eight weights each.
    if 8 * packed != a[1] * scales[1]:
        raise ValueError("not packed so")
    moved = op.bytes(0) + op.bytes(1) + op.bytes(3) + a[0] * scales[1] * op.item_bytes(0)
    return OpCost("matmul", 2 * a[0] * a[1] * scales[1], moved, ARITHMETIC.get(op.types[0]))


def grouped_gemm(op: Signature) -> OpCost:
    """_grouped_mm(a, b, offsets): one product for each group of rows, of columns, or of matrices.

    Offsets are not recorded: a call whose groups leave rows out does less. Rows that pad groups count.
    """
    a, b = op.shape(0), op.shape(1)
    if a[-1] != b[-2]:
        raise ValueError("not a matrix product")
    matrices = a[0] if len(a) == len(b) == 3 else 1
    results = op.shape(2)[0] if len(a) == len(b) == 2 else matrices
    moved = op.bytes(0) + op.bytes(1) + 2 * results * a[-2] * b[-1]
    return OpCost("matmul", 2 * matrices * a[-2] * a[-1] * b[-1], moved, ARITHMETIC.get(op.types[0]))


def fused_experts(op: Signature) -> OpCost:
    """(tokens, first weights, second weights, weights of the chosen experts, ..): experts of two products each.

    Which experts are chosen is not recorded: those of one token at least, and at most as many as there are choices.
    """
    tokens, first, second, chosen = (op.shape(i) for i in range(4))
    if first[2] != tokens[1] or second[1] != tokens[1]:
        raise ValueError("not the weights of experts")
    pairs = math.prod(chosen)
    each, of_each = math.prod(first[1:]) + math.prod(second[1:]), (op.bytes(1) + op.bytes(2)) // first[0]
    least, most = (min(first[0], read) * of_each + 2 * op.bytes(0) for read in (chosen[-1], pairs))
    return OpCost("matmul", 2 * pairs * each, least, ARITHMETIC.get(op.types[0]), most)


@at_positions
def vector_product(op: Signature, left: int, right: int) -> OpCost:
    """A matrix and a vector, or two vectors."""
    elements = max(math.prod(op.shape(left)), math.prod(op.shape(right)))
    moved = op.bytes(left) + op.bytes(right)
    return OpCost("vector product", 2 * elements, moved, ARITHMETIC.get(op.types[left]))


def conv_flops(
    image: Sequence[int], weight: Sequence[int], padding: Any, stride: Any, dilation: Any
) -> tuple[int, int]:
    """Operations of a convolution and elements of its output. The weight is (out, in / groups, kernel...)."""
    kernel = weight[2:]
    sizes = [
        (size + 2 * nth(padding, i) - nth(dilation, i) * (kernel[i] - 1) - 1) // nth(stride, i) + 1
        for i, size in enumerate(image[2:])
    ]
    out = image[0] * weight[0] * math.prod(sizes)
    return 2 * out * math.prod(weight[1:]), out


def transposed_flops(
    image: Sequence[int], weight: Sequence[int], padding: Any, stride: Any, dilation: Any, more: Any, groups: int
) -> tuple[int, int]:
    """As `conv_flops`, of a transposed one: each input element meets its weight (in, out / groups, kernel...)."""
    sizes = [
        (size - 1) * nth(stride, i) - 2 * nth(padding, i) + nth(dilation, i) * (weight[2 + i] - 1) + nth(more, i) + 1
        for i, size in enumerate(image[2:])
    ]
    out = image[0] * weight[1] * groups * math.prod(sizes)
    return 2 * math.prod(image) * math.prod(weight[1:]), out


@at_positions
def conv(
    op: Signature, padding: int, stride: int, dilation: int | None, kind: str = "conv", groups: int | None = None
) -> OpCost:
    """A convolution whose settings are at these positions.

    `groups` is that of a transposed one, whose output padding follows its padding; -1 if it has no such input.
    """
    image, weight = op.shape(0), op.shape(1)
    sizes = [op.scalar(padding), op.scalar(stride), 1 if dilation is None else op.scalar(dilation)]
    if groups is None:
        flops, elements = conv_flops(image, weight, *sizes)
    else:
        more = [op.scalar(padding + 1), image[1] // weight[0] if groups < 0 else op.scalar(groups)]
        flops, elements = transposed_flops(image, weight, *sizes, *more)
    moved = (math.prod(image) + elements) * op.item_bytes(0) + math.prod(weight) * op.item_bytes(1)
    # torch's kernels for depthwise convolutions multiply in float32, without matrix units.
    arithmetic = "fp32" if kind == DEPTHWISE and op.item_bytes(0) < 8 else ARITHMETIC.get(op.types[0])
    return OpCost(kind, flops, moved, arithmetic)


def conv_backward(op: Signature) -> OpCost:
    """As much as forward for each gradient that the output mask asks for."""
    grad, image, weight = op.shape(0), op.shape(1), op.shape(2)
    mask = op.scalars[10]
    wanted = sum(word == "True" for word in mask.strip("[]").replace(" ", "").split(",")[:2])
    if "," not in mask:
        raise LookupError("no mask")
    elements = math.prod(grad) * wanted + math.prod(image) * 2 + math.prod(weight) * 2
    # The smaller side meets all of its weights: the image in a transposed convolution.
    narrow = image if op.scalar(7) is True else grad
    flops = 2 * math.prod(narrow) * math.prod(weight[1:]) * wanted
    return OpCost("conv", flops, elements * op.item_bytes(0), ARITHMETIC.get(op.types[0]))


@at_positions
def attention(op: Signature, causal: int) -> OpCost:
    """Two matrix products forward and five backward; a causal mask, of which the op has `is_causal`, halves them.

    Shapes are (batch, rows, heads, width), of cuDNN (batch, heads, rows, width).
    """
    backward, heads_first = op.name.endswith("backward"), "cudnn" in op.name
    first = int(backward)  # the gradient stands before query, key and value
    query, key, value = (op.shape(first + i) for i in range(3))
    batch, heads, rows, width = query if heads_first else (query[0], query[2], query[1], query[3])
    columns = key[2] if heads_first else key[1]
    scores = 2 * batch * heads * rows * columns
    flops = scores * (width + value[-1]) * (5 if backward else 2) // 2
    flops = flops // 2 if op.scalar(causal) else flops
    read = sum(op.elements(first + i) for i in range(3))
    moved = (math.prod(query) + read) * (2 if backward else 1) * op.item_bytes(first)
    return OpCost("attention", flops, moved, ARITHMETIC.get(op.types[first]))


@at_positions
def recurrent(op: Signature, first: int, passes: int) -> OpCost:
    """A cuDNN layer with its mode at `first`, then hidden size and layers; `passes` times the operations forward."""
    steps, width, types = op.shape(0), op.shape(0)[-1], op.types[0]
    mode, hidden, layers = (int(op.scalar(first + i)) for i in (0, 1, 3))
    directions = 2 if op.scalars[first + 7] == "True" else 1
    widths = [width] + [hidden * directions] * (layers - 1)
    weights = sum(directions * _GATES[mode] * hidden * (size + hidden) for size in widths)
    outputs = math.prod(steps[:-1]) * hidden * directions
    moved = (math.prod(steps) + weights + outputs) * ITEM_BYTES[types]
    flops = 2 * passes * math.prod(steps[:-1]) * weights
    return OpCost("recurrent", flops, passes * moved, ARITHMETIC.get(types))


def distances(op: Signature) -> OpCost:
    """All pairs of rows: three operations for each of their numbers."""
    left, right = op.shape(0), op.shape(1)
    pairs = math.prod(left[:-1]) * right[-2]
    moved = (math.prod(left) + math.prod(right) + pairs) * op.item_bytes(0)
    return OpCost("distances", 3 * pairs * left[-1], moved, "fp32" if op.types[0] == "float" else None)


@at_positions
def cubic(op: Signature, times: float) -> OpCost:
    """Linear algebra on matrices: `times` n^3 operations each."""
    shape = op.shape(0)
    rows, columns = shape[-2], shape[-1]
    flops = int(times * math.prod(shape[:-2]) * max(rows, columns) * min(rows, columns) ** 2)
    return OpCost("linear algebra", flops, 2 * op.bytes(0), ARITHMETIC.get(op.types[0]))


# -- elements ------------------------------------------------------------------------------------------------


@at_positions
def pointwise(op: Signature, truth: bool = False) -> OpCost:
    """Reads each input once; the result, of truth values or not, has the shape that they broadcast to."""
    inputs = [i for i, (_, kind) in enumerate(zip(op.dims, op.types, strict=False)) if kind in ITEM_BYTES]
    written = math.prod(np.broadcast_shapes(*(op.shape(index) for index in inputs)))
    shaped = [index for index in inputs if op.shape(index)]
    item = max(map(op.item_bytes, inputs[:1] if op.name.endswith("_") else shaped))
    item = 1 if truth and not op.name.endswith("_") else item
    return OpCost("elementwise", None, sum(map(op.bytes, shaped)) + written * item)


def compiled(op: Signature) -> OpCost:
    """A kernel of torch.compile: each of its tensors once, and no more of it than the kernel has elements.

    The trace does not tell whether one of them is both read and written.
    """
    numbers = [op.scalar(i) for i, kind in enumerate(op.types) if kind == "Scalar"]
    elements = math.prod(max(int(number), 1) for number in numbers)
    each = [min(op.elements(i), elements) * op.item_bytes(i) for i in typed_inputs(op)]
    return OpCost("compiled", None, sum(each), most_bytes=sum(each) + max(each))


@at_positions
def moves(op: Signature, kind: str, *positions: int, places: int | None = None) -> OpCost:
    """Reads or writes as many bytes as the inputs at these positions have, and a place for each element of one."""
    written = 0 if places is None else math.prod(op.shape(places)) * INDEX_BYTES
    return OpCost(kind, None, sum(map(op.bytes, positions)) + written)


def dropout(op: Signature) -> OpCost:
    """Reads, writes as much and a mask of bytes."""
    return OpCost("elementwise", None, 2 * op.bytes(0) + math.prod(op.shape(0)))


@at_positions
def reads(op: Signature, kind: str, *, writes: int | None = None) -> OpCost:
    """Reads all tensors, and writes a dense result as large as the tensor number `writes`."""
    inputs = typed_inputs(op)
    written = 0 if writes is None else math.prod(op.shape(inputs[writes])) * op.item_bytes(inputs[writes])
    return OpCost(kind, None, sum(map(op.bytes, inputs)) + written, ARITHMETIC.get(op.types[inputs[0]]))


def lists(op: Signature) -> OpCost:
    """_foreach_ and _fused_ ops: every tensor of every list once, and the first list again.

    The element types of lists are not recorded: float32, as parameters and states mostly are.
    """
    sizes = [
        sum(math.prod(shape) for shape in shapes if all(type(size) is int for size in shape))
        for shapes in op.dims
        if isinstance(shapes, list) and shapes and isinstance(shapes[0], list)
    ]
    if not sizes or not sizes[0]:
        raise LookupError("lists too long to be recorded")
    written = sum(sizes[:1] + sizes[2:4]) if "_fused_" in op.name else sizes[0]
    return OpCost("lists", None, ITEM_BYTES["float"] * (sum(sizes) + written))


# -- losses, look-ups, sorting, images -----------------------------------------------------------------------


def nll_forward(op: Signature) -> OpCost:
    """One number of each row, by its class."""
    return OpCost("gather", None, math.prod(op.shape(1)) * (INDEX_BYTES + op.item_bytes(0)))


@at_positions
def looked_up(op: Signature, index: int, *, rows: bool = True) -> OpCost:
    """Reads and writes a row, or else an element, of the first input for each index at a position."""
    written = math.prod(op.shape(index)) * (math.prod(op.shape(0)[1:]) if rows else 1)
    return OpCost("gather", None, 2 * written * op.item_bytes(0) + op.elements(index) * INDEX_BYTES)


def scatter(op: Signature) -> OpCost:
    """scatter_add_(target, dimension, index, source): reads indices and source, changes as much of the target."""
    changed = math.prod(op.shape(2))
    return OpCost("scatter", None, changed * 3 * op.item_bytes(0) + op.elements(2) * INDEX_BYTES)


def bags(op: Signature) -> OpCost:
    """_embedding_bag(table, indices, offsets): a row for each index, a sum for each bag."""
    width = op.shape(0)[-1] * op.item_bytes(0)
    rows = math.prod(op.shape(1)) * (width + INDEX_BYTES)
    return OpCost("gather", None, rows + math.prod(op.shape(2)) * width)


def embedding_backward(op: Signature) -> OpCost:
    """embedding_dense_backward(grad, indices, rows): adds rows of the gradient into a table of zeros.

    If the table is larger than what is added, writing it is most of the work, and in order.
    """
    added = 3 * op.bytes(0) + op.bytes(1)
    table = int(op.scalar(2)) * op.shape(0)[-1] * op.item_bytes(0)
    return OpCost("elementwise" if table > added else "scatter", None, added + table)


def multinomial(op: Signature) -> OpCost:
    """multinomial(weights, n): a copy of all weights is scaled and cumulated, also of an expanded row."""
    return OpCost("count", None, math.prod(op.shape(0)) * op.item_bytes(0))


def sampled(op: Signature) -> OpCost:
    """grid_sampler(image, grid): reads both, writes all channels at each place."""
    image, grid = op.shape(0), op.shape(1)
    written = image[0] * image[1] * math.prod(grid[1:-1])
    return OpCost("resampling", None, op.bytes(0) + op.bytes(1) + written * op.item_bytes(0))


def resized(op: Signature) -> OpCost:
    """upsample(image, size): reads the old size, writes the new one."""
    written = math.prod(op.shape(0)[:2]) * math.prod(op.scalar(1))
    return OpCost("resampling", None, op.bytes(0) + written * op.item_bytes(0))


def concatenation(op: Signature) -> OpCost:
    """Reads a list of tensors and writes them side by side; the element type of a list is not recorded: 2 bytes."""
    shapes = [shape for shape in op.dims[0] if isinstance(shape, list)]
    return OpCost("concatenation", None, 2 * 2 * sum(math.prod(shape) for shape in shapes))
