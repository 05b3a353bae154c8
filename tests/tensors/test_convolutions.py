"""Sizes and operations of convolutions by hand, and which of them others could do in passes, phases or by FFTs."""

from typing import Any

import pytest

from tests.support.op_calls import signature
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.tensors.ops.costs import OpCost, conv_flops, transposed_flops
from traceanalyzer.tensors.signatures import Signature

BF16, F32 = "c10::BFloat16", "float"


def needs(op: Signature) -> OpCost:
    found = bound_of(op)
    assert found is not None
    return found


def conv(image: list[int], weight: list[int], stride: str, padding: str) -> Signature:
    dims = [image, weight, [], [], [], [], [], [], []]
    ones = str([1] * (len(weight) - 2))
    return signature("cudnn_convolution", dims, [F32, F32], "", "", padding, stride, ones, "1")


def backward(grad: list[int], image: list[int], weight: list[int], mask: str, *, transposed: bool = False) -> Signature:
    pair = "[1, 1]"
    scalars = ("", "", "", "", pair, pair, pair, str(transposed), "[0, 0]", "1", mask)
    return signature("convolution_backward", [grad, image, weight, *[[]] * 8], [F32] * 3, *scalars)


@pytest.mark.parametrize(
    ("image", "weight", "padding", "stride", "dilation", "sizes"),
    [
        ([2, 4, 20], [3, 2, 4], [1], [2], [3], [7]),  # 22 less a kernel that reaches over 10, by twos
        ([2, 4, 20, 10], [3, 2, 4, 2], [1, 0], [2, 1], [3, 2], [7, 8]),
        ([2, 4, 20, 10], [3, 2, 4, 2], 0, 1, 1, [17, 9]),
    ],
)
def test_a_kernel_reaches_as_far_as_it_is_dilated(
    image: list[int], weight: list[int], padding: Any, stride: Any, dilation: Any, sizes: list[int]
) -> None:
    out = 2 * 3
    for size in sizes:
        out *= size
    taps = 2 * 4 * (2 if len(sizes) == 2 else 1)
    assert conv_flops(image, weight, padding, stride, dilation) == (2 * out * taps, out)


def test_transposed_size_follows_stride_and_dilation() -> None:
    """Steps of 2 over 5 inputs, less padding, and 3 x 3 further for the kernel, one more as asked for: 17."""
    flops, out = transposed_flops([2, 8, 5], [8, 3, 4], [1], [2], [3], [1], 2)
    assert (flops, out) == (2 * 2 * 8 * 5 * 3 * 4, 2 * 6 * 17)


@pytest.mark.parametrize(
    ("grad", "image", "weight", "kind"),
    [
        ([8, 64, 16, 16], [8, 64, 16, 16], [64, 4, 3, 3], "thin conv"),  # 16 groups of 4 channels
        ([8, 64, 16, 16], [8, 64, 16, 16], [64, 8, 3, 3], "conv"),
        ([8, 64, 16, 16], [8, 4, 16, 16], [64, 4, 3, 3], "thin conv"),
    ],
)
def test_backward_is_as_thin_as_its_weight(grad: list[int], image: list[int], weight: list[int], kind: str) -> None:
    assert needs(backward(grad, image, weight, "[True, True, False]")).kind == kind
