"""Copies by how often and in which order of dimensions they write, and cats that grow a buffer."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.rule import Work
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.strides import adds_transposed, layout_of
from traceanalyzer.tensors.signatures import Signature, signatures_of

# The write count is not recorded.
SEVERAL = 0
# Damaged files have shapes with larger counts.
_MAX_COUNT = 2**31
_REPEATING = r"^aten::(repeat|repeat_interleave|tile|expand_copy)$"


def write_counts(copies: Work, inputs: WorkInputs) -> Rows:
    """How often each copy writes each element of what it reads, int64 (copies,): mostly 1.

    An expanded dimension has stride 0. Where no strides are recorded, the op that the user called may say that it
    repeats: then `SEVERAL`.
    """
    times = _of_each(copies, inputs, _write_count)
    by_name = np.where(copies.outer_op.name.matches(_REPEATING), SEVERAL, 1)
    return np.where(times < 0, by_name, times)


def write_count_text(copies: Work, inputs: WorkInputs) -> str:
    """`4 times` or `several times`: the write count of the copies that take most of the time."""
    values, number = np.unique(write_counts(copies, inputs), return_inverse=True)
    most = int(values[np.argmax(np.bincount(number, copies.dur_ns))])
    return "several times" if most == SEVERAL else "twice" if most == 2 else f"{most:,} times"


def order_kept(copies: Work, inputs: WorkInputs) -> Rows:
    """1 if a copy keeps the order of dimensions, 0 if it changes it, -1 if its strides are not recorded."""
    return _of_each(copies, inputs, _order_kept)


def writes_slices(copies: Work, inputs: WorkInputs) -> Mask:
    """Which of the copies the program asks for with copy_ or `x[i] = y` and write no tensor as a whole; bool (copies,).

    Where no strides are recorded, whoever asks for copy_ itself is taken to write a part.
    """
    part = _of_each(copies, inputs, lambda op: not _is_whole(op)) == 1
    return np.asarray(copies.outer_op.name.one_of("aten::copy_") & part)


def carried(copies: Work, inputs: WorkInputs) -> Mask:
    """Which of the copies read a transposed tensor whose layout additions hand on, bool (copies,).

    A sum has the strides of its inputs: one transposed view before the first residual connection transposes what all
    layers read. Images in channels_last are left out, since their convolutions want that layout.
    """
    added = {layout_of(op, 0) for op in inputs.signatures if adds_transposed(op)}
    reads = _of_each(copies, inputs, lambda op: op.name == "aten::copy_" and layout_of(op, 1) in added)
    return np.asarray(reads == 1)


def _of_each(copies: Work, inputs: WorkInputs, value: Callable[[Signature], int]) -> Rows:
    """What the function returns for the op of each copy, int64 (copies,)."""
    return np.array([value(op) for op in inputs.signatures], np.int64)[inputs.number[copies.entries]]


def _write_count(op: Signature) -> int:
    """How often `copy_(written, read)` writes each element that it reads, -1 if unknown."""
    written, read = (layout_of(op, position) for position in (0, 1))
    if op.name != "aten::copy_" or written is None or read is None or 0 in read[0]:
        return -1
    elements = math.prod(size for size, step in zip(*read, strict=True) if step)
    # One number for all is a fill.
    times = math.prod(written[0]) // elements if elements > 1 else 1
    return min(max(times, 1), _MAX_COUNT)


def _order_kept(op: Signature) -> int:
    written, read = (layout_of(op, position) for position in (0, 1))
    if (
        op.name != "aten::copy_"
        or written is None
        or read is None
        or written[0] != read[0]
        or not any(read[1])
    ):
        return -1
    return int(_dimension_order(*written) == _dimension_order(*read))


def _is_whole(op: Signature) -> bool:
    """True if `copy_` writes a tensor without gaps, in any order of its dimensions."""
    written = layout_of(op, 0)
    if written is None or 0 in written[0]:
        return False
    return math.prod(written[0]) == 1 + sum((size - 1) * step for size, step in zip(*written, strict=True))


def _dimension_order(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Dimensions with more than one element, largest stride first."""
    return tuple(sorted((dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -steps[dim]))


def growing_cats(work: Work, concatenations: Mask, times: float) -> Mask:
    """Which of the concatenations append to what another one made, or make what another appends to; bool (work,).

    Args:
        times: how many times larger than all its other inputs together the largest input of such a cat is.
    """
    number, signatures = signatures_of(work.events.trace, work[concatenations].op.rows)
    grows = [_growth(op, times) if op.name == "aten::cat" else None for op in signatures]
    before, after = ({growth[side] for growth in grows if growth} for side in (0, 1))
    growing = concatenations.copy()
    chained = [growth is not None and (growth[1] in before or growth[0] in after) for growth in grows]
    growing[concatenations] = np.array(chained, bool)[number]
    return growing


def appended_shape(work: Work) -> str:
    """Shape of the input that the last cat appended, such as `8x1x64`."""
    number, signatures = signatures_of(work.events.trace, work.op.rows)
    return "x".join(map(str, min(_input_shapes(signatures[int(number[-1])]), key=math.prod)))


def _growth(op: Signature, times: float) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape of a cat's largest input, shape of its result) if the other inputs are small; else None."""
    largest, *small_inputs = sorted(_input_shapes(op), key=math.prod, reverse=True) or [[]]
    small = 0 < times * sum(map(math.prod, small_inputs)) <= math.prod(largest)
    if not small or any(len(other) != len(largest) for other in small_inputs):
        return None
    differ = [
        dim for dim, sizes in enumerate(zip(largest, *small_inputs, strict=True)) if len(set(sizes)) > 1
    ]
    if len(differ) != 1:
        return None
    (dim,) = differ
    result = [*largest[:dim], largest[dim] + sum(other[dim] for other in small_inputs), *largest[dim + 1 :]]
    return tuple(largest), tuple(result)


def _input_shapes(op: Signature) -> list[list[int]]:
    tensors = op.dims[0] if op.dims and isinstance(op.dims[0], list) else []
    return [shape for shape in tensors if isinstance(shape, list)]
