"""What convolutions, pools, norms and resizing make of images, and which dimensions they keep apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from traceanalyzer.roofline.convolutions import nth
from traceanalyzer.tensors.signatures import Shape, Signature

Dims = frozenset[int]  # dimensions of which a part is enough

_IMAGES = {  # what makes images of images -> dimensions that it does not mix
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "group_norm", "batch_norm", "grid_sampler"), Dims({0})),
    **dict.fromkeys(("instance_norm", "max_pool2d", "avg_pool2d"), Dims({0, 1})),
    **{f"adaptive_{kind}_pool{rank}d": Dims({0, 1}) for kind in ("avg", "max") for rank in (1, 2, 3)},
}
_RESIZE = re.compile(r"^_?upsample_\w+$")


def mixes_no(name: str) -> Dims | None:
    """Dimensions that an op on images keeps apart; None of other ops."""
    return Dims({0, 1}) if _RESIZE.match(name) else _IMAGES.get(name)


def image(op: Signature, name: str) -> Shape | None:
    """Shape of what an op makes of images; None where it needs all of them.

    Raises:
        LookupError, TypeError, ValueError, ZeroDivisionError: the inputs do not say.
    """
    shape = op.shape(0)
    if _RESIZE.match(name) and not op.scalars[1]:
        return (*shape[:2], *_times(shape[2:], op.scalars[2:]))
    if _RESIZE.match(name) or name.startswith("adaptive"):
        return (*shape[:2], *_numbers(op.scalar(1), len(shape) - 2))
    if name.startswith("conv"):
        return (
            shape[0],
            op.shape(1)[0],
            *_windows(shape, op.shape(1)[2:], *(op.scalar(i) for i in (3, 4, 5))),
        )
    if name.endswith("pool2d"):
        dilated = name == "max_pool2d"
        if op.scalar(5 if dilated else 4):
            return None  # rounded up
        kernel, stride, padding = (op.scalar(at) for at in (1, 2, 3))
        return (
            *shape[:-2],
            *_windows(shape, kernel, stride or kernel, padding, op.scalar(4) if dilated else 1),
        )
    if name == "grid_sampler":
        return (*shape[:2], *op.shape(1)[1:-1])
    return None if name == "batch_norm" and op.scalar(5) else shape


def _times(sizes: Shape, more: tuple[str, ...]) -> Iterator[int]:
    """Sizes times the first list among an op's further inputs, such as "[4., 2.5]", rounded down."""
    factors = next(text for text in (*more, "[]") if text.startswith("["))
    for size, factor in zip(sizes, factors.strip("[]").split(","), strict=True):
        yield int(size * float(factor))


def _windows(shape: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Iterator[int]:
    for i, size in enumerate(shape[2:]):
        yield (size + 2 * nth(padding, i) - nth(dilation, i) * (nth(kernel, i) - 1) - 1) // nth(stride, i) + 1


def _numbers(values: Any, count: int) -> tuple[int, ...]:
    """So many whole numbers; ValueError for others."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError("not a number for each dimension")
    return tuple(map(int, values))
