"""Shapes of results, from the shapes and numbers that an op gets.

Each function gets an op and returns the shape of its first result. It raises one of `UNREADABLE` if the inputs do not
determine the shape; `table.result_shape` turns that into None.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, at_positions, tensors

UNREADABLE = LookupError, TypeError, ValueError, ZeroDivisionError  # what damaged or incomplete inputs raise

ShapeOf = Callable[[Signature], Shape]


def same(op: Signature) -> Shape:
    """Shape of the first input."""
    shape = op.shape(0)
    if not shape and op.types[:1] and op.types[0] not in ITEM_BYTES:
        raise LookupError("no tensor")
    return shape


def broadcast(op: Signature) -> Shape:
    """Shape that all tensors broadcast to."""
    if not tensors(op):
        raise LookupError("no tensor of several numbers")
    return tuple(np.broadcast_shapes(*tensors(op)))


def larger_or_smaller(op: Signature) -> Shape:
    """As `broadcast`, of `max` and `min` of two tensors; of one tensor, what is left of the reduced dimension."""
    return broadcast(op) if len(tensors(op)) > 1 else reduced(1)(op)


@at_positions
def product(op: Signature, left: int, right: int) -> Shape:
    """Product of the matrices at these positions."""
    a, b = op.shape(left), op.shape(right)
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ValueError("not a matrix product")
    batch = np.broadcast_shapes(a[:-2], b[:-2]) if len(b) > 2 else a[:-2]
    return (*batch, a[-2], b[-1])


@at_positions
def convolved(op: Signature, padding: int, stride: int, dilation: int) -> Shape:
    """A convolution of an image by a weight whose settings are at these positions."""
    image, weight = op.shape(0), op.shape(1)
    if len(image) != len(weight):
        raise ValueError("image without batch")
    windows = _windows(image, weight[2:], *(op.scalar(at) for at in (stride, padding, dilation)))
    return image[0], weight[0], *windows


@at_positions
def pooled(op: Signature, dilation: int | None, rounds_up: int) -> Shape:
    """`max_pool1d`(image, kernel, stride, padding, dilation, ceil mode); means have no dilation."""
    image, (kernel, stride, padding) = op.shape(0), (op.scalar(at) for at in (1, 2, 3))
    if op.scalar(rounds_up):
        raise ValueError("rounded up")
    kept, apart = len(image) - int(op.name[-2]), 1 if dilation is None else op.scalar(dilation)
    return *image[:kept], *_windows((0, 0, *image[kept:]), kernel, stride or kernel, padding, apart)


def _windows(image: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Iterator[int]:
    """Positions of a sliding window along each dimension after batch and channels."""
    for i, size in enumerate(image[2:]):
        reach = nth(dilation, i) * (nth(kernel, i) - 1) + 1
        yield (size + 2 * nth(padding, i) - reach) // nth(stride, i) + 1


def nth(values: Any, position: int) -> int:
    """One number for all dimensions, or one for each."""
    if isinstance(values, int):
        return values
    return int(values[position] if len(values) > 1 else values[0])


def resized(op: Signature) -> Shape:
    """upsample(image, size, ..., scales): the size if it is recorded, else the old one times the scales."""
    image = op.shape(0)
    if op.scalars[1]:
        return adaptive(op)
    scales = next(text for text in (*op.scalars[2:], "[]") if text.startswith("[")).strip("[]").split(",")
    return *image[:2], *(int(size * float(scale)) for size, scale in zip(image[2:], scales, strict=True))


def adaptive(op: Signature) -> Shape:
    """adaptive_pool(image, size)."""
    image, sizes = op.shape(0), op.scalar(1)
    if not isinstance(sizes, list) or len(sizes) != len(image) - 2:
        raise ValueError("not a number for each dimension")
    return *image[:2], *map(int, sizes)


@at_positions
def reduced(op: Signature, position: int) -> Shape:
    """Dimensions that remain; the reduced ones are the input at `position`, `keepdim` follows."""
    sizes = op.shape(0)
    return tuple(1 if dim is None else sizes[dim] for dim in remaining_dims(op, position))


def remaining_dims(op: Signature, position: int) -> list[int | None]:
    """For each dimension of a reduction's result that of its input; None for a reduced one that is kept as 1."""
    rank = len(op.shape(0))
    if len(op.scalars) < len(op.dims):
        raise LookupError("no numbers recorded")
    given = position < len(op.dims)
    unrecorded = given and op.types[position : position + 1] == ("ScalarList",) and not op.scalars[position]
    if unrecorded or (given and op.dims[position]):
        raise LookupError("dimensions not recorded")
    # The second of two inputs is a list of dimensions, or the type of a whole sum.
    whole = not given or not op.scalars[position] or (len(op.dims) == 2 and op.scalars[1][0] != "[")
    over = [] if whole else op.scalar(position)
    reduced_dims = {int(dim) % rank for dim in (over if isinstance(over, list) else [over])} or set(range(rank))
    keepdim = op.scalars[position + 1 : position + 2] == ("True",)
    return [None if dim in reduced_dims else dim for dim in range(rank) if keepdim or dim not in reduced_dims]


def _with_sizes(op: Signature, dim: int, *sizes: int) -> Shape:
    """Shape of the first input with these sizes in place of that of a dimension."""
    shape = op.shape(0)
    return (*shape[:dim], *sizes, *shape[dim + 1 :])


def _dim(op: Signature) -> int:
    """The dimension that an op gets after its tensor, from 0."""
    return int(op.scalar(1)) % len(op.shape(0))


def unfolded(op: Signature) -> Shape:
    """unfold(tensor, dimension, size, step): the elements of each window are the last dimension."""
    size, step = int(op.scalar(2)), int(op.scalar(3))
    return (*_with_sizes(op, _dim(op), (op.shape(0)[_dim(op)] - size) // step + 1), size)


def columns_of_image(op: Signature) -> Shape:
    """im2col(image, kernel, dilation, padding, stride)."""
    image, (kernel, dilation, padding, stride) = op.shape(0), (op.scalar(at) for at in (1, 2, 3, 4))
    places = math.prod(_windows((0, 0, *image[-2:]), kernel, stride, padding, dilation))
    return (*image[:-3], image[-3] * nth(kernel, 0) * nth(kernel, 1), places)


def pixel_shuffled(op: Signature) -> Shape:
    """pixel_shuffle(image, factor)."""
    shape, factor = op.shape(0), int(op.scalar(1))
    return (*shape[:-3], shape[-3] // factor**2, shape[-2] * factor, shape[-1] * factor)


def flattened(op: Signature) -> Shape:
    """flatten(tensor, first, last)."""
    shape = op.shape(0)
    first, last = (int(op.scalar(at)) % len(shape) for at in (1, 2))
    return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def stacked(op: Signature) -> Shape:
    """stack(tensors, dimension)."""
    first, dim = tensors(op)[0], int(op.scalar(1)) % (len(tensors(op)[0]) + 1)
    return (*first[:dim], len(tensors(op)), *first[dim:])


def concatenated(op: Signature) -> Shape:
    """cat(tensors, dimension)."""
    shapes = tensors(op)
    dim = int(op.scalar(1)) % len(shapes[0])
    return (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])


def unsqueezed(op: Signature) -> Shape:
    """unsqueeze(tensor, dimension)."""
    shape, dim = op.shape(0), int(op.scalar(1))
    dim = dim if dim >= 0 else dim + len(shape) + 1
    return (*shape[:dim], 1, *shape[dim:])


def squeezed(op: Signature) -> Shape:
    """squeeze(tensor, dimensions): without dimensions all of size 1."""
    shape = op.shape(0)
    over = op.scalar(1) if len(op.dims) > 1 else range(len(shape))
    dims = {int(dim) % len(shape) for dim in (over if isinstance(over, list | range) else [over])}
    return tuple(size for dim, size in enumerate(shape) if size != 1 or dim not in dims)


def sliced(op: Signature) -> Shape:
    """slice(tensor, dimension, begin, end, step)."""
    begin, end = (int(op.scalar(at)) if op.scalars[at] else None for at in (2, 3))
    places = slice(begin, end, int(op.scalar(4))).indices(op.shape(0)[_dim(op)])
    return _with_sizes(op, _dim(op), len(range(*places)))


def selected(op: Signature) -> Shape:
    """select(tensor, dimension, index)."""
    return _with_sizes(op, _dim(op))


def indexed(op: Signature) -> Shape:
    """index_select(tensor, dimension, index)."""
    return _with_sizes(op, _dim(op), math.prod(op.shape(2)))


def viewed(op: Signature) -> Shape:
    """view(tensor, sizes): -1 stands for what is left."""
    shape, sizes = op.shape(0), [int(size) for size in op.scalar(1)]
    known, whole = math.prod(size for size in sizes if size >= 0), math.prod(shape)
    return tuple(whole // known if size < 0 else size for size in sizes)


def expanded(op: Signature) -> Shape:
    """expand(tensor, sizes): -1 stands for the old size."""
    shape, sizes = op.shape(0), [int(size) for size in op.scalar(1)]
    old_sizes = (1,) * (len(sizes) - len(shape)) + shape
    return tuple(old if size < 0 else size for size, old in zip(sizes, old_sizes, strict=True))


def repeated(op: Signature) -> Shape:
    """repeat(tensor, times of each dimension)."""
    return tuple(size * int(times) for size, times in zip(op.shape(0), op.scalar(1), strict=True))


def interleaved(op: Signature) -> Shape:
    """repeat_interleave(tensor, times, dimension): without a dimension the tensor is flattened."""
    if len(op.dims) < 4 or len(tensors(op)) != 1:
        raise LookupError("times of each row")
    shape, times = op.shape(0), int(op.scalar(1))
    if not op.scalars[2]:
        return (math.prod(shape) * times,)
    dim = int(op.scalar(2)) % len(shape)
    return _with_sizes(op, dim, shape[dim] * times)


def padded(op: Signature) -> Shape:
    """pad(tensor, pads): two for each dimension, those of the last dimension first."""
    shape, pads = op.shape(0), [int(size) for size in op.scalar(1)]
    added = [pads[index] + pads[index + 1] for index in range(0, len(pads), 2)][::-1]
    return tuple(size + more for size, more in zip(shape, [0] * (len(shape) - len(added)) + added, strict=True))


def transposed(op: Signature) -> Shape:
    """transpose(tensor, dimension, other dimension)."""
    sizes, first, second = list(op.shape(0)), int(op.scalar(1)), int(op.scalar(2))
    sizes[first], sizes[second] = sizes[second], sizes[first]
    return tuple(sizes)


def counted(op: Signature) -> Shape:
    """arange(begin, end, step), each of the first two optional."""
    values = [op.scalar(index) for index in range(len(op.dims) - 4)]
    begin, end, step = (0, *values, 1) if len(values) == 1 else (*values, 1)[:3]
    return (math.ceil((end - begin) / step),)


def length_at(position: int) -> ShapeOf:
    """A vector whose length is the input at `position`."""
    return lambda op: (int(op.scalar(position)),)


@at_positions
def sizes_at(op: Signature, position: int) -> Shape:
    """The input at `position` is the shape."""
    sizes = op.scalar(position)
    return tuple(map(int, sizes if isinstance(sizes, list) else [sizes]))
