"""Samplers that compute the same condition in each iteration."""

from __future__ import annotations

from collections.abc import Sequence

from tests.rules.kernel_programs import BF16, NVJET, Op

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
NORM = "void at::native::vectorized_layer_norm_kernel<float>(int)"
STATE, WIDE, CONTEXT, NOISE = [8, 256, 512], [8, 256, 2_048], [8, 77, 1_024], [8, 256, 64]


def linear(data: list[int], out: int, us: int = 100, name: str = "aten::linear") -> Op:
    dims = [data, [out, data[-1]], [out]]
    if name == "aten::addmm":
        dims = [[out], data, [data[-1], out]]
    elif name == "aten::matmul":
        dims = [data, [data[-1], out]]
    return Op(name, NVJET, us, dims, [BF16] * 3)


def of_one(name: str, data: list[int], us: int = 20, kind: str = BF16) -> Op:
    return Op(f"aten::{name}", NORM, us, [data], [kind])


def add(one: list[int], other: list[int]) -> Op:
    return Op("aten::add", ADD, 20, [one, other, []], [BF16, BF16, "Scalar"], scalars=["", "", "1"])


def layer(context: Sequence[Op]) -> list[Op]:
    """A layer of a network that looks at a condition."""
    attention = Op(
        "aten::scaled_dot_product_attention", NVJET, 50, [[8, 8, 256, 64], *[[8, 8, 77, 64]] * 2], [BF16] * 3
    )
    return [
        *context,
        of_one("layer_norm", STATE),
        linear(STATE, 511),
        attention,
        linear(STATE, 2_048),
        of_one("gelu", WIDE),
        linear(WIDE, 512),
        add(STATE, STATE),
    ]


def sampler(
    context: Sequence[Op], *, iterations: int = 4, layers: int = 3, last: Sequence[Op] = ()
) -> list[Op]:
    """Denoising: every iteration begins with what the one before has made."""
    each = [linear(NOISE, 512), *layer(context) * layers, linear(STATE, 64), add(NOISE, NOISE), *last]
    return each * iterations


KEYS = [linear(CONTEXT, 1_000)]
ENCODE = Op("library::encode", NVJET, 1, [[8, 77], [49_408, 768]], ["long int", BF16])


def attention(keys: int) -> Op:
    return Op(
        "aten::scaled_dot_product_attention", NVJET, 5, [[8, 16, 1, 64], *[[8, 16, keys, 64]] * 2], [BF16] * 3
    )


CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32"


def conv(data: list[int], out: int, us: int, stride: int = 1) -> Op:
    dims = [data, [out, data[1], 3, 3], [out], [], [], [], []]
    each = [f"[{stride}, {stride}]", "[1, 1]", "[1, 1]", "1"]
    types = [BF16, BF16, BF16, *["ScalarList"] * 3, "Scalar"]
    return Op("aten::conv2d", CONV, us, dims, types, scalars=["", "", "", *each])


def both(name: str, shape: list[int]) -> Op:
    return Op(f"aten::{name}", ADD, 10, [shape, shape, []], [BF16, BF16, "Scalar"], scalars=["", "", "1"])
