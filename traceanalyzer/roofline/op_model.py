"""What one call of an op has to compute and to move at least, from the shapes and types of its inputs.

Operations are counted as usual: a multiply-add is two. Bytes are those of inputs and output, once each, as if
caches were perfect and nothing were kept between calls; what goes over the link to the host counts once. Where
shapes do not tell, there is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.roofline.convolutions import conv_flops, transposed_flops
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature

ARITHMETIC = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}
# Reads its inputs, writes a result of their common shape, computes next to nothing.
_NAMES = """abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min conj_physical copysign cos
cosh div elu elu_backward eq erf erfc exp exp2 expm1 float_power floor floor_divide fmax fmin fmod frac ge gelu
gelu_backward gt hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
heaviside hypot isfinite isinf isnan le leaky_relu leaky_relu_backward lerp log log10 log1p log2 log_sigmoid_forward
log_sigmoid_backward logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish
mish_backward mul nan_to_num ne neg pow _prelu_kernel _prelu_kernel_backward reciprocal relu relu6 remainder round rsqrt
rsub selu sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh softplus softplus_backward
softshrink sqrt square sub tan tanh tanh_backward threshold threshold_backward trunc where xlogy"""
_POINTWISE = frozenset(_NAMES.split())
_LOGICAL = "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor"
_TRUTHS = frozenset(_LOGICAL.split())
DEPTHWISE = "depthwise conv"
_ABSURD = 2**62  # operations or elements: damaged files have such shapes


@dataclass(frozen=True, slots=True)
class OpCost:
    """One call: operations and bytes moved at least, None where not known; `arithmetic` as `Peaks` names it."""

    kind: str
    flops: int | None
    bytes: int | None
    arithmetic: str | None = None


def op_cost_of(signature: Signature) -> OpCost | None:
    """None for ops that no model here covers, and where the inputs do not tell."""
    name = signature.name.removeprefix("aten::")
    model = _MODELS.get(name) or (_pointwise if name.removesuffix("_") in _POINTWISE else None)
    if model is None:
        return None
    try:
        return model(signature)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def linked_op_cost_of(signature: Signature) -> OpCost | None:
    """As `op_cost_of`, of a call that copies between host and device: each byte of the target goes over the link once.

    Torch converts types before it copies, so that the bytes are the target's.
    """
    work = op_cost_of(signature)
    if work is None or signature.name.removeprefix("aten::") != "copy_":
        return work
    return replace(work, bytes=math.prod(signature.shape(0)) * signature.item_bytes(0))


def flops_of(signature: Signature) -> int:
    """Operations of one call; 0 where no model knows them, or nothing computes so many."""
    work = op_cost_of(signature)
    flops = (work.flops or 0) if work else 0
    return flops if flops < _ABSURD else 0


def largest_odd_size(signature: Signature, multiple: int) -> int:
    """The largest of its matrices' sizes that is no multiple; 0 where there is none.

    Of several, the smaller ones (a number of tokens beside a vocabulary) are mostly no strides.
    """
    matrices = [shape for shape in signature.dims if isinstance(shape, list) and len(shape) >= 2]
    sizes = (size for shape in matrices for size in shape[-2:] if isinstance(size, int))
    return max((size for size in sizes if size % multiple and size < _ABSURD), default=0)


# -- models --------------------------------------------------------------------------------------------------


def _gemm(left: int, right: int, bias: int | None = None) -> Callable[[Signature], OpCost]:
    def model(op: Signature) -> OpCost:
        a, b = op.shape(left), op.shape(right)
        if a[:-2] != b[:-2] or a[-1] != b[-2]:
            raise ValueError("not a matrix product")
        out = math.prod(a[:-1]) * b[-1]
        moved = (math.prod(a) + out) * op.item_bytes(left) + math.prod(b) * op.item_bytes(right)
        if bias is not None:
            moved += math.prod(op.shape(bias)) * op.item_bytes(bias)
        return OpCost("matmul", 2 * out * a[-1], moved, ARITHMETIC.get(op.types[left]))

    return model


def _conv(
    padding: int, stride: int, dilation: int | None, kind: str = "conv", groups: int | None = None
) -> Callable[[Signature], OpCost]:
    """At these positions of the inputs; with `groups`, a transposed one whose output padding follows its padding."""

    def model(op: Signature) -> OpCost:
        image, weight = op.shape(0), op.shape(1)
        sizes = [op.scalar(padding), op.scalar(stride), 1 if dilation is None else op.scalar(dilation)]
        if groups is None:
            flops, out = conv_flops(image, weight, *sizes)
        else:
            more = [op.scalar(padding + 1), image[1] // weight[0] if groups < 0 else op.scalar(groups)]
            flops, out = transposed_flops(image, weight, *sizes, *more)
        moved = (math.prod(image) + out) * op.item_bytes(0) + math.prod(weight) * op.item_bytes(1)
        # torch's kernels for depthwise convolutions multiply in float32, without matrix units
        arithmetic = "fp32" if kind == DEPTHWISE and op.item_bytes(0) < 8 else ARITHMETIC.get(op.types[0])
        return OpCost(kind, flops, moved, arithmetic)

    return model


def _conv_backward(op: Signature) -> OpCost:
    """As much as forward for each of the two gradients that are wanted."""
    grad, image, weight = op.shape(0), op.shape(1), op.shape(2)
    mask = op.scalars[10]
    wanted = sum(word == "True" for word in mask.strip("[]").replace(" ", "").split(",")[:2])
    if "," not in mask:
        raise LookupError("no mask")
    elements = math.prod(grad) * wanted + math.prod(image) * 2 + math.prod(weight) * 2
    narrow = image if op.scalar(7) is True else grad  # what meets all of its weights
    flops = 2 * math.prod(narrow) * math.prod(weight[1:]) * wanted
    return OpCost("conv", flops, elements * op.item_bytes(0), ARITHMETIC.get(op.types[0]))


def _attention(
    first: int, causal: int, *, heads_first: bool, backward: bool = False
) -> Callable[[Signature], OpCost]:
    """Two matrix products forward and five backward; a causal mask halves them."""

    def model(op: Signature) -> OpCost:
        query, key, value = (op.shape(first + i) for i in range(3))
        batch, heads, rows, width = query if heads_first else (query[0], query[2], query[1], query[3])
        columns = key[2] if heads_first else key[1]
        one = 2 * batch * heads * rows * columns
        flops = one * (width + value[-1]) * (5 if backward else 2) // 2
        halved = bool(op.scalar(causal))
        elements = (math.prod(query) * 2 + math.prod(key) + math.prod(value)) * (2 if backward else 1)
        arithmetic = ARITHMETIC.get(op.types[first])
        return OpCost(
            "attention", flops // 2 if halved else flops, elements * op.item_bytes(first), arithmetic
        )

    return model


def _pointwise(op: Signature) -> OpCost:
    """Reads each input once; its result has the shape that they broadcast to, which may be larger than all of them."""
    tensors = [i for i in range(len(op.dims)) if i < len(op.types) and op.types[i] in ITEM_BYTES]
    shapes = [op.shape(i) for i in tensors]
    written = math.prod(np.broadcast_shapes(*shapes))
    read = sum(op.elements(i) * op.item_bytes(i) for i in tensors if op.shape(i))
    in_place = op.name.endswith("_")
    item = op.item_bytes(tensors[0]) if in_place else max(op.item_bytes(i) for i in tensors if op.shape(i))
    if op.name.removeprefix("aten::") in _TRUTHS:
        item = ITEM_BYTES["bool"]
    return OpCost("elementwise", None, read + written * item)


def _copy(op: Signature) -> OpCost:
    size = math.prod(op.shape(0))
    return OpCost("elementwise", None, size * op.item_bytes(0) + op.elements(1) * op.item_bytes(1))


def _fill(op: Signature) -> OpCost:
    return OpCost("elementwise", None, math.prod(op.shape(0)) * op.item_bytes(0))


_MODELS: dict[str, Callable[[Signature], OpCost]] = {
    "mm": _gemm(0, 1),
    "bmm": _gemm(0, 1),
    "addmm": _gemm(1, 2, bias=0),
    "baddbmm": _gemm(1, 2, bias=0),
    "cudnn_convolution": _conv(2, 3, 4),
    "cudnn_convolution_relu": _conv(4, 3, 5),
    "cudnn_convolution_transpose": _conv(2, 4, 5, groups=6),
    "miopen_convolution": _conv(3, 4, 5),
    "miopen_convolution_transpose": _conv(3, 5, 6, groups=7),
    "miopen_depthwise_convolution": _conv(3, 4, 5, DEPTHWISE),
    **dict.fromkeys(("_conv_depthwise2d", "conv_depthwise3d"), _conv(5, 4, 6, DEPTHWISE)),
    **dict.fromkeys(("_slow_conv2d_forward", "slow_conv3d_forward"), _conv(5, 4, None)),
    **dict.fromkeys(("slow_conv_dilated2d", "slow_conv_dilated3d"), _conv(5, 4, 6)),
    **dict.fromkeys(("slow_conv_transpose2d", "slow_conv_transpose3d"), _conv(5, 4, 7, groups=-1)),
    "convolution_backward": _conv_backward,
    "_flash_attention_forward": _attention(0, 8, heads_first=False),
    "_flash_attention_backward": _attention(1, 11, heads_first=False, backward=True),
    "_efficient_attention_forward": _attention(0, 9, heads_first=False),
    "_efficient_attention_backward": _attention(1, 14, heads_first=False, backward=True),
    "_cudnn_attention_forward": _attention(0, 10, heads_first=True),
    "_cudnn_attention_backward": _attention(1, 14, heads_first=True, backward=True),
    "_scaled_dot_product_cudnn_attention": _attention(0, 6, heads_first=True),
    "_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, heads_first=True, backward=True),
    "_addmm_activation": _gemm(1, 2, bias=0),
    "copy_": _copy,
    "fill_": _fill,
    "zero_": _fill,
}
