"""What ops make of tensors whose shapes are known, as far as names, shapes and arguments tell."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from traceanalyzer.roofline.convolutions import nth
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

_SAME = re.compile(
    r"^(pow|log(2|10|1p)?|exp(2|m1)?|r?sqrt|sinh?|cosh?|tanh?|abs|neg|square|reciprocal|sigmoid|floor|ceil|round|clamp\w*|tri[lu]"
    r"|contiguous|clone|detach|alias|to|_to_copy|type_as|logical_not|bitwise_not|cumsum|cumprod|flip|roll|(zeros|ones|full)_like)_?$"
)
_BROADCAST = re.compile(
    r"^(add|r?sub|mul|(true_|floor_)?div(ide)?|remainder|fmod|pow|min|max|(max|min)imum|lt|le|gt|ge|eq|ne|masked_fill|where"
    r"|(logical|bitwise)_(and|or|xor)|atan2)_?$"
)
PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm")
_VALUES = (
    "Scalar",
    "double",
    "long int",
    "bool",
    "",
)  # of arguments without shape that are no tensor of one number


def product_of(op: Signature) -> Shape | None:
    """Shape of a matrix product; None of other ops, and where the inputs do not say, or are no matrices."""
    name = op.name.removeprefix("aten::")
    if name not in PRODUCTS:
        return None
    try:
        if name == "linear":
            return (*op.shape(0)[:-1], op.shape(1)[0])
        left, right = (1, 2) if name in ("addmm", "baddbmm") else (0, 1)
        a, b = op.shape(left), op.shape(right)
        return (*a[:-1], b[-1]) if len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2] else None
    except (LookupError, ValueError):
        return None


def made_of_nothing(op: Signature) -> Shape | None:
    """Shape of what an op makes of numbers alone; None for other ops, and for what is drawn at random."""
    make = _FROM_NUMBERS.get(op.name.removeprefix("aten::"))
    try:
        return None if make is None or tensors(op) else make(op)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


def made_of(op: Signature) -> Shape | None:
    """Shape of what an op makes of its tensors and recorded numbers; None where that is not known."""
    name, shapes = op.name.removeprefix("aten::"), tensors(op)
    plain = all(
        kind in _VALUES
        for dims, kind in zip(op.dims, op.types, strict=False)
        if dims == [] and kind[-4:] != "List"
    )
    if not shapes or not plain:
        return None
    try:
        if _SAME.match(name) and len(shapes) == 1:
            return shapes[0]
        if _BROADCAST.match(name) and (len(shapes) > 1 or not name.startswith(("min", "max"))):
            return _broadcast(shapes)
        return _OTHERS[name](op, shapes)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


def result_of(op: Signature) -> Shape | None:
    """As `made_of`, and of layers, too: products, convolutions, look-ups in a table, and copies of rows."""
    try:
        made = _LAYERS[op.name.removeprefix("aten::")]
    except KeyError:
        return product_of(op) or made_of(op)
    try:
        return made(op)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


def _convolved(op: Signature) -> Shape | None:
    image, weight = op.shape(0), op.shape(1)
    padding, stride, dilation = op.scalar(4), op.scalar(3), op.scalar(5)
    if len(image) != len(weight):
        return None
    sizes = [
        (size + 2 * nth(padding, at) - nth(dilation, at) * (kernel - 1) - 1) // nth(stride, at) + 1
        for at, (size, kernel) in enumerate(zip(image[2:], weight[2:], strict=True))
    ]
    return (image[0], weight[0], *sizes)


def _interleaved(op: Signature) -> Shape | None:
    if len(op.dims) < 4 or len(tensors(op)) != 1:
        return None  # each row has a number of its own
    shape, times = op.shape(0), int(op.scalar(1))
    if not op.scalars[2]:
        return (math.prod(shape) * times,)
    at = int(op.scalar(2)) % len(shape)
    return (*shape[:at], shape[at] * times, *shape[at + 1 :])


def _broadcast(shapes: list[Shape]) -> Shape | None:
    size = max(map(len, shapes))
    columns = zip(*((1,) * (size - len(shape)) + shape for shape in shapes), strict=True)
    wide = [set(column) - {1} or {1} for column in columns]
    return tuple(one.pop() for one in wide) if all(len(one) == 1 for one in wide) else None


def _range(op: Signature) -> Shape:
    values = [op.scalar(at) for at in range(len(op.dims) - 4)]
    begin, end, step = (0, *values, 1) if len(values) == 1 else (*values, 1)[:3]
    return (math.ceil((end - begin) / step),)


def _sized(op: Signature) -> Shape:
    sizes = op.scalar(0)
    return tuple(map(int, sizes if isinstance(sizes, list) else [sizes]))


def _unsqueezed(op: Signature, shapes: list[Shape]) -> Shape:
    (shape,), at = shapes, int(op.scalar(1))
    at = at if at >= 0 else at + len(shape) + 1
    return (*shape[:at], 1, *shape[at:])


def _sliced(op: Signature, shapes: list[Shape]) -> Shape:
    (shape,), at = shapes, int(op.scalar(1)) % len(shapes[0])
    begin, end = (int(op.scalar(i)) if op.scalars[i] else None for i in (2, 3))
    return (
        *shape[:at],
        len(range(*slice(begin, end, int(op.scalar(4))).indices(shape[at]))),
        *shape[at + 1 :],
    )


def _viewed(op: Signature, shapes: list[Shape]) -> Shape:
    sizes, whole = [int(size) for size in op.scalar(1)], math.prod(shapes[0])
    known = math.prod(size for size in sizes if size >= 0)
    return tuple(whole // known if size < 0 else size for size in sizes)


def _expanded(op: Signature, shapes: list[Shape]) -> Shape:
    sizes, (shape,) = [int(size) for size in op.scalar(1)], shapes
    own = (1,) * (len(sizes) - len(shape)) + shape
    return tuple(old if size < 0 else size for size, old in zip(sizes, own, strict=True))


def _padded(op: Signature, shapes: list[Shape]) -> Shape:
    pads, (shape,) = [int(size) for size in op.scalar(1)], shapes
    more = [pads[at] + pads[at + 1] for at in range(0, len(pads), 2)][::-1]
    return tuple(size + add for size, add in zip(shape, [0] * (len(shape) - len(more)) + more, strict=True))


def _turned(op: Signature, shapes: list[Shape]) -> Shape:
    sizes = list(shapes[0])
    one, two = int(op.scalar(1)), int(op.scalar(2))
    sizes[one], sizes[two] = sizes[two], sizes[one]
    return tuple(sizes)


def _joined(op: Signature, shapes: list[Shape]) -> Shape:
    at = int(op.scalar(1)) % len(shapes[0])
    return (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])


def _selected(op: Signature, shapes: list[Shape]) -> Shape:
    at = int(op.scalar(1)) % len(shapes[0])
    return (*shapes[0][:at], *shapes[0][at + 1 :])


_FROM_NUMBERS: dict[str, Callable[[Signature], Shape]] = {
    "arange": _range,
    "linspace": lambda op: (int(op.scalar(2)),),
    "logspace": lambda op: (int(op.scalar(2)),),
    "eye": lambda op: (int(op.scalar(0)), int(op.scalar(1 if len(op.dims) > 5 else 0))),
    "fft_fftfreq": lambda op: (int(op.scalar(0)),),
    "fft_rfftfreq": lambda op: (int(op.scalar(0)) // 2 + 1,),
    **dict.fromkeys(("zeros", "ones", "full"), _sized),
    **dict.fromkeys(
        ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"), _sized
    ),
}
_OTHERS: dict[str, Callable[[Signature, list[Shape]], Shape]] = {
    "unsqueeze": _unsqueezed,
    "slice": _sliced,
    "select": _selected,
    "pad": _padded,
    "constant_pad_nd": _padded,
    "transpose": _turned,
    "cat": _joined,
    "t": lambda _, shapes: shapes[0][::-1],
    "numpy_T": lambda _, shapes: shapes[0][::-1],
    "permute": lambda op, shapes: tuple(shapes[0][int(at)] for at in op.scalar(1)),
    "outer": lambda _, shapes: (shapes[0][0], shapes[1][0]),
    "repeat": lambda op, shapes: tuple(
        size * int(times) for size, times in zip(shapes[0], op.scalar(1), strict=True)
    ),
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), _viewed),
    **dict.fromkeys(("expand", "broadcast_to"), _expanded),
}
_LAYERS: dict[str, Callable[[Signature], Shape | None]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolved),
    **dict.fromkeys(("lerp", "addcmul", "addcdiv"), lambda op: _broadcast(tensors(op))),
    "embedding": lambda op: (*op.shape(1), op.shape(0)[-1]),
    "repeat_interleave": _interleaved,
}
