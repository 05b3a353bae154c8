"""Operations of convolutions of one to three dimensions, from the sizes of their inputs."""

import math
from collections.abc import Sequence
from typing import Any


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


def nth(values: Any, position: int) -> int:
    """One number for all dimensions, or one for each."""
    if isinstance(values, int):
        return values
    return int(values[position] if len(values) > 1 else values[0])
