"""Operations of convolutions of one to three dimensions, from the sizes of their inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LONG_KERNEL = 256  # taps; usual rates have large common divisors, and their kernels a tenth of it
OTHER_RATE = 8  # times the old rate, or a part of it


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
    image: Sequence[int],
    weight: Sequence[int],
    padding: Any,
    stride: Any,
    dilation: Any,
    more: Any,
    groups: int,
) -> tuple[int, int]:
    """As `conv_flops`, of a transposed one: each input element meets all of its weight (in, out / groups, kernel...).

    Args:
        more: `output_padding`.
    """
    sizes = [
        (size - 1) * nth(stride, i)
        - 2 * nth(padding, i)
        + nth(dilation, i) * (weight[2 + i] - 1)
        + nth(more, i)
        + 1
        for i, size in enumerate(image[2:])
    ]
    out = image[0] * weight[1] * groups * math.prod(sizes)
    return 2 * math.prod(image) * math.prod(weight[1:]), out


def fft_counts(image: Sequence[int], weight: Sequence[int], out: int) -> tuple[float, int]:
    """(operations, elements moved) of a convolution of single channels by real FFTs.

    They are as long as image and kernel together, which is enough for every padding. An FFT of n real numbers takes
    2.5 n log2(n) operations, the product of two spectra of n / 2 numbers 3 n. Inputs, spectra and the output are moved.

    Args:
        weight: (out, 1, kernel...).
        out: elements of the output.
    """
    n = math.prod(size + kernel - 1 for size, kernel in zip(image[2:], weight[2:], strict=True))
    products, inputs = image[0] * weight[0], image[0] * image[1] + weight[0]
    operations = (inputs + products) * 2.5 * n * math.log2(max(n, 2)) + products * 3 * n
    spectra = (inputs + 4 * products) * n  # written; read in pairs, written again, read
    return operations, math.prod(image) + math.prod(weight) + out + spectra


def resampling_taps(image: Sequence[int], weight: Sequence[int], stride: Any) -> int:
    """How many taps of each kernel count, where a convolution changes a sampling rate; 0 of all others.

    Such a one has a kernel of one channel for each phase of the new rate, goes on by the old rate, both without their
    common divisor, and its kernels reach a few samples beyond that: all taps but those around the phase are zero.

    Args:
        weight: (new rate, 1, old rate and a margin), with dimensions of 1 where cuDNN wants two.
    """
    taps = math.prod(weight[2:])
    by = nth(stride, len(weight) - 3) if weight[-1] == taps else 0
    phases = weight[0] if image[1] == weight[1] == 1 else 0
    if taps < LONG_KERNEL or not taps / 2 < by < taps or not by / OTHER_RATE < phases < by * OTHER_RATE:
        return 0
    return taps - by


def nth(values: Any, position: int) -> int:
    """One number for all dimensions, or one for each."""
    if isinstance(values, int):
        return values
    return int(values[position] if len(values) > 1 else values[0])
