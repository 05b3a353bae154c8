"""Sizes and operations of convolutions by hand, and which of them others could do in passes, phases or by FFTs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.op_calls import signature
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.tensors.ops.convolutions import conv_flops, resampling_taps, transposed_flops
from traceanalyzer.tensors.ops.costs import OpCost
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


def backward(
    grad: list[int], image: list[int], weight: list[int], mask: str, *, transposed: bool = False
) -> Signature:
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


def test_a_kernel_of_two_dimensions_changes_no_sampling_rate() -> None:
    assert resampling_taps([2, 1, 1, 48_000], [320, 1, 1, 512], [1, 441]) == 71
    assert resampling_taps([2, 1, 600, 48_000], [320, 1, 16, 32], [441, 441]) == 0


def test_rate_change_counts_taps_beyond_the_old_rate() -> None:
    found = needs(conv([2, 1, 48_000], [320, 1, 457], "[441]", "[0]"))
    out = 2 * 320 * 108
    assert (found.kind, found.flops) == ("resampling conv", 2 * out * 16)
    assert found.bytes == (2 * 48_000 + out) * 4


@pytest.mark.parametrize(
    ("image", "weight", "kind"),
    [
        ([2, 3, 64, 64], [3, 1, 23, 23], "separable conv"),
        ([2, 3, 64, 64], [3, 1, 23, 3], "thin conv"),  # wide along rows alone
        ([2, 3, 64, 64], [3, 1, 6, 7], "thin conv"),
        ([2, 3, 64, 64], [3, 3, 7, 7], "thin conv"),  # mixes its channels: the first layer of a network
        ([2, 3, 64], [3, 1, 23], "thin conv"),  # one direction is one pass already
    ],
)
def test_passes_are_of_wide_filters_that_mix_no_channels(
    image: list[int], weight: list[int], kind: str
) -> None:
    assert needs(conv(image, weight, "[1]", "[0]")).kind == kind


@pytest.mark.parametrize(
    ("mask", "kind", "taps"),
    [("[True, False, False]", "separable conv", 23 + 23), ("[True, True, False]", "thin conv", 2 * 23 * 23)],
)
def test_a_filter_that_is_trained_is_one_matrix_and_no_passes(mask: str, kind: str, taps: int) -> None:
    images = [2, 3, 64, 64]
    found = needs(backward(images, images, [3, 1, 23, 23], mask))
    assert (found.kind, found.flops) == (kind, 2 * 2 * 3 * 64 * 64 * taps)


@pytest.mark.parametrize(("channels", "kind"), [(1, "long conv"), (2, "thin conv")])
def test_ffts_are_for_signals_of_one_channel(channels: int, kind: str) -> None:
    op = conv([8, channels, 64_000], [32, channels, 16_000], "[1]", "[8000]")
    assert needs(op).kind == kind


@pytest.mark.parametrize(
    ("grad", "image", "weight", "kind"),
    [
        ([8, 64, 16, 16], [8, 64, 16, 16], [64, 4, 3, 3], "thin conv"),  # 16 groups of 4 channels
        ([8, 64, 16, 16], [8, 64, 16, 16], [64, 8, 3, 3], "conv"),
        ([8, 64, 16, 16], [8, 4, 16, 16], [64, 4, 3, 3], "thin conv"),
    ],
)
def test_backward_is_as_thin_as_its_weight(
    grad: list[int], image: list[int], weight: list[int], kind: str
) -> None:
    assert needs(backward(grad, image, weight, "[True, True, False]")).kind == kind
