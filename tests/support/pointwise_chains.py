"""Chains of pointwise ops, and attention written by hand."""

from collections.abc import Sequence
from typing import Any

from tests.rules.kernel_programs import BF16, F32, NVJET, Op

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >(ReduceOp)"
BIG, SMALL = [[4096, 4096], [4096, 4096]], [[4096, 1], []]


def pointwise(*sizes: Sequence[Any], pause: int = 0) -> list[Op]:
    return [Op("aten::add", ADD, 40 if size is BIG else 2, size, [F32, F32], pause=pause) for size in sizes]


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
QK, PV = [[128, 1024, 64], [128, 64, 1024]], [[128, 1024, 1024], [128, 1024, 64]]
ATTENTION = [
    Op("aten::bmm", NVJET, 85, QK, [BF16, BF16]),
    Op("aten::div", ADD, 127, [[128, 1024, 1024], []], [BF16, "long int"]),
    Op("aten::_softmax", SOFTMAX, 284, [[128, 1024, 1024], [], []], [BF16, "Scalar", "Scalar"]),
    Op("aten::bmm", NVJET, 82, PV, [BF16, BF16]),
]
