"""Channels-last images that become channels first, and copies by dimension order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, grouped
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import REACHED, bound_of
from traceanalyzer.rule import Work
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, op_times
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature, tensors

_NORMS = r"(layer|rms|Layer|RMS|Rms)_?[nN]orm"
_ADDITIONS = ("aten::add", "aten::add_")
# Dimensions: batch, channels, frames, height, width.
_VOLUME = 5
# Minimum dimensions. Volumes and split channels have five.
_IMAGE = 4
# Backward and convolutions follow the layout of their inputs.
_NOT_ASKED = r"^autograd|convolution|conv\d"
VIEWED = regex(r"contiguous|clone|reshape|flatten|view|copy_|channel_shuffle|unfold")


def cats_in_one_order(copies: Work, inputs: WorkInputs) -> Mask:
    """True for each copy of a cat whose parts have one dimension order and are not contiguous; bool (copies,)."""
    alike = np.array(
        [op.name == "aten::cat" and len(dimension_orders(op)) == 1 for op in inputs.signatures], bool
    )
    return np.asarray(alike[inputs.number[copies.entries]])


def keeps_order(copies: Work, inputs: WorkInputs, least_share: float) -> bool:
    """True if norms repeatedly copy results of additions, which keep the order of their first input.

    Args:
        least_share: of the copies' time, that norms must make up.
    """
    by_norms = copies[copies.outer_op.name.matches(_NORMS)]
    if not len(by_norms) or by_norms.total_ns < least_share * copies.total_ns:
        return False
    read = {
        shape_and_strides(inputs.signatures[number], 1)
        for number in distinct(inputs.number[by_norms.entries]).tolist()
    }
    added = {shape_and_strides(op, 0) for op in inputs.signatures if op.name in _ADDITIONS}
    return bool((read & added) - {None})


def dimension_orders(op: Signature) -> set[tuple[int, ...]]:
    """Dimension orders of a list's tensors, largest stride first; empty if unknown."""
    shapes, strides = (
        values[0] if values and isinstance(values[0], list) else [] for values in (op.dims, op.strides)
    )
    pairs = list(zip(shapes, strides, strict=False))
    if len(shapes) != len(strides) or any(not _parallel(*pair) for pair in pairs):
        return set()
    return {dimension_order(shape, steps) for shape, steps in pairs}


def dimension_order(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Dimensions with more than one element, largest stride first."""
    return tuple(sorted((dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -steps[dim]))


def _parallel(shape: object, steps: object) -> bool:
    both = isinstance(shape, list) and isinstance(steps, list) and len(shape) == len(steps)
    return both and all(type(value) is int for value in (*shape, *steps))  # type: ignore[misc]


def shape_and_strides(op: Signature, position: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape, strides) of one input, None if not recorded."""
    try:
        shape, steps = op.shape(position), op.stride(position)
    except LookupError:
        return None
    return None if steps is None else (shape, steps)


def around_single_frames(moved: Work, inputs: WorkInputs) -> Mask:
    """True for each copy of a tensor with the sizes of such a convolution's input, in any order."""
    volumes = {sizes for op in inputs.signatures if (sizes := _frames(op))}
    matches = np.array(
        [any(tuple(sorted(shape)) in volumes for shape in tensors(op)[:1]) for op in inputs.signatures]
    )
    chosen: Mask = matches[inputs.number[moved.entries]]
    return chosen


def _frames(op: Signature) -> tuple[int, ...]:
    """Sorted sizes of the input of a convolution with a 1xNxM kernel; empty for other ops."""
    shapes = tensors(op) if "convolution" in op.name and "backward" not in op.name else []
    if len(shapes) < 2 or len(shapes[0]) != _VOLUME or len(shapes[1]) != _VOLUME:
        return ()
    _, _, depth, *plane = shapes[1]
    return tuple(sorted(shapes[0])) if depth == 1 and max(plane) > 1 else ()


def writes_slices(copies: Work) -> Mask:
    """Which of the copies the program asks for with copy_ or `x[i] = y` and write no tensor as a whole; bool (copies,).

    Where no strides are recorded, whoever asks for copy_ itself is taken to write a part.
    """
    dims, strides = copies.dims, copies.op.text("input_strides")
    number, first = grouped([dims.code, strides.code])
    whole: Mask = np.array([is_whole(dims[row], strides[row]) for row in first.tolist()], bool)[number]
    written: Mask = copies.outer_op.name.one_of("aten::copy_") & ~whole
    return written


def keeps_dimension_order(copies: Work) -> Mask:
    """Which of the copies read and write the same order of dimensions, by their strides; bool (copies,)."""
    return np.asarray(_order_kept(copies) == 1)


def surely_reordered(copies: Work) -> bool:
    """True if most time is of copies whose strides are recorded, or that the program itself asks for."""
    sure = (_order_kept(copies) == 0) | copies.outer_op.name.meets(lambda name: bool(VIEWED.search(name)))
    return 2 * int(copies.dur_ns[sure].sum()) >= copies.total_ns


def _order_kept(copies: Work) -> Rows:
    """1 if a copy keeps the order of dimensions, 0 if it changes it, -1 if its strides are not recorded."""
    dims, strides = copies.dims, copies.op.text("input_strides")
    number, first = grouped([dims.code, strides.code])
    kept = []
    for row in first.tolist():
        op = Signature.parsed("", dims[row], None, None, strides[row])
        written, read = shape_and_strides(op, 0), shape_and_strides(op, 1)
        # one number for all has no order
        known = written is not None and read is not None and written[0] == read[0] and any(read[1])
        kept.append(int(dimension_order(*written) == dimension_order(*read)) if known else -1)  # type: ignore[misc]
    result: Rows = np.where(copies.op.name.one_of("aten::copy_"), np.array(kept, np.int64)[number], -1)
    return result


def is_whole(dims: str | None, strides: str | None) -> bool:
    """True if `copy_` writes a tensor without gaps, in any order of its dimensions."""
    op = Signature.parsed("", dims, None, None, strides)
    try:
        written, steps = op.shape(0), op.stride(0)
    except LookupError:
        return False
    if steps is None or not math.prod(written):
        return False
    return math.prod(written) == 1 + sum((size - 1) * step for size, step in zip(written, steps, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class LostLayout:
    """Work between channels last and channels first.

    Attributes:
        work: copies from one to the other, and pointwise ops that take both.
        needed_ns: what each would take in one layout; 0 of a copy.
        asked: which of it are copies to channels first that an op of forward makes.
    """

    work: Work
    needed_ns: Floats
    asked: Mask

    @classmethod
    def of_trace(cls, work: Work, inputs: WorkInputs, gpus: Gpus) -> LostLayout:
        images = _image_sizes(inputs.signatures)
        moves = np.array([_written_layout(op) if images else "" for op in inputs.signatures], object)
        both = np.array([bool(images) and _takes_both(op, images) for op in inputs.signatures])
        sizes = np.array([_elements(op) in images for op in inputs.signatures])
        number = inputs.number[work.entries]
        chosen = ((moves[number] != "") & sizes[number] | both[number]) & work.kind.one_of(
            "compute", "copy_d2d"
        )
        affected, number = work[chosen], number[chosen]
        rate = REACHED["elementwise"] * gpus.memory_gbps(affected.device)
        bytes_ = np.array(
            [_bytes(op) if mixed else 0 for op, mixed in zip(inputs.signatures, both, strict=True)]
        )
        first = (moves[number] == "first") & ~affected.outer_op.name.matches(_NOT_ASKED)
        return cls(affected, np.minimum(bytes_[number] / rate, affected.dur_ns), first)

    def of(self, device: int) -> LostLayout:
        mask = self.work.device == device
        return LostLayout(self.work[mask], self.needed_ns[mask], self.asked[mask])

    def breaker(self) -> tuple[str, str]:
        """(the forward op with most time in such copies, the end of a sentence about it)."""
        asked = self.work[self.asked]
        name = next(iter(op_times(asked)))
        members = asked[asked.outer_op.name.one_of(name)] if name in asked.outer_op.name.values() else asked
        return name, gpu_time_evidence(members)["where"]


def layout_of(op: Signature, position: int) -> str:
    """`first` or `last`, the place of an image's channels by its strides; empty if unknown."""
    try:
        shape, steps = op.shape(position), op.stride(position)
    except LookupError:
        return ""
    if steps is None or len(shape) < _IMAGE or min(shape[-2:]) < 2:
        return ""
    channels = [step for size, step in zip(shape[1:-2], steps[1:-2], strict=True) if size > 1]
    if steps[-1] == 1 and channels:
        return "first" if min(channels) >= shape[-1] * shape[-2] else ""
    return "last" if 1 in channels and steps[-1] > 1 and steps[-2] > steps[-1] else ""


def _image_sizes(signatures: list[Signature]) -> set[int]:
    """Elements of the inputs and outputs of convolutions, if some convolution is channels last."""
    shapes = [(op, 0) for op in signatures if "convolution" in op.name]
    shapes += [(op, 1) for op, _ in shapes if "backward" in op.name]  # before it the gradient of the result
    if not any(layout_of(op, position) == "last" for op, position in shapes):
        return set()
    return {size for op, position in shapes if (size := _elements(op, position))}


def _elements(op: Signature, position: int = 0) -> int:
    try:
        shape = op.shape(position)
    except LookupError:
        return 0
    return math.prod(shape) if len(shape) >= _IMAGE else 0


def _written_layout(op: Signature) -> str:
    """Layout that a copy between both layouts writes; empty for other ops."""
    if op.name != "aten::copy_" or len(op.dims) < 2:
        return ""
    written, read = layout_of(op, 0), layout_of(op, 1)
    return written if read and written != read else ""


def _takes_both(op: Signature, images: set[int]) -> bool:
    """True if a pointwise op takes two images of one shape in different layouts."""
    layouts = {
        (tuple(shape), layout_of(op, position))
        for position, shape in enumerate(op.dims)
        if isinstance(shape, list) and len(shape) >= _IMAGE and _elements(op, position) in images
    }
    shapes = {shape for shape, layout in layouts if layout}
    both = any({(shape, "first"), (shape, "last")} <= layouts for shape in shapes)
    model = bound_of(op) if both and op.name != "aten::copy_" else None
    return model is not None and model.kind == "elementwise"


def _bytes(op: Signature) -> float:
    model = bound_of(op)
    return float(model.bytes or 0) if model else 0.0
