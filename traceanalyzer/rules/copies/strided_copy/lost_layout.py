"""Images that a channels-last program turns into channels first, what turns them, and what reads both layouts then."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_bounds import REACHED, bound_of
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Work
from traceanalyzer.rule.evidence import op_times, told
from traceanalyzer.tensors.signatures import Signature

_IMAGE = 4  # dimensions at least; five where channels are split into groups, or of volumes
_NOT_ASKED = r"^autograd|convolution|conv\d"  # backward and convolutions follow the layout that they get
VIEWED = re.compile(r"contiguous|clone|reshape|flatten|view|copy_|channel_shuffle|unfold")


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
    def found_in(cls, work: Work, inputs: WorkInputs, gpus: Gpus) -> LostLayout:
        images = _images(inputs.signatures)
        moves = np.array([_moves(op) if images else "" for op in inputs.signatures], object)
        both = np.array([bool(images) and _takes_both(op, images) for op in inputs.signatures])
        sizes = np.array([_elements(op) in images for op in inputs.signatures])
        number = inputs.number[work.entries]
        chosen = ((moves[number] != "") & sizes[number] | both[number]) & work.kind.one_of(
            "compute", "copy_d2d"
        )
        own, number = work[chosen], number[chosen]
        rate = REACHED["elementwise"] * gpus.memory_gbps(own.device)
        bytes_ = np.array(
            [_bytes(op) if mixed else 0 for op, mixed in zip(inputs.signatures, both, strict=True)]
        )
        first = (moves[number] == "first") & ~own.outer_op.name.matches(_NOT_ASKED)
        return cls(own, np.minimum(bytes_[number] / rate, own.dur_ns), first)

    def of(self, device: int) -> LostLayout:
        mask = self.work.device == device
        return LostLayout(self.work[mask], self.needed_ns[mask], self.asked[mask])

    def breaker(self) -> tuple[str, str]:
        """The op of forward that takes most of the time of such copies, and the end of a sentence about it."""
        asked = self.work[self.asked]
        name = next(iter(op_times(asked)))
        own = asked[asked.outer_op.name.one_of(name)] if name in asked.outer_op.name.values() else asked
        return name, told(own)["where"]


def _layout(op: Signature, position: int) -> str:
    """`first` or `last`: where the channels of an image lie, by its strides; empty where they do not say."""
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


def _images(signatures: list[Signature]) -> set[int]:
    """Sizes in elements of what convolutions take and give, in a program that has channels-last ones."""
    taken = [(op, 0) for op in signatures if "convolution" in op.name]
    taken += [(op, 1) for op, _ in taken if "backward" in op.name]  # before it the gradient of the result
    if not any(_layout(op, position) == "last" for op, position in taken):
        return set()
    return {size for op, position in taken if (size := _elements(op, position))}


def _elements(op: Signature, position: int = 0) -> int:
    try:
        shape = op.shape(position)
    except LookupError:
        return 0
    return math.prod(shape) if len(shape) >= _IMAGE else 0


def _moves(op: Signature) -> str:
    """Layout that a copy between both writes; empty of all else."""
    if op.name != "aten::copy_" or len(op.dims) < 2:
        return ""
    written, read = _layout(op, 0), _layout(op, 1)
    return written if read and written != read else ""


def _takes_both(op: Signature, images: set[int]) -> bool:
    """Whether a pointwise op takes two whole images of one shape, one in each layout."""
    layouts = {
        (tuple(shape), _layout(op, at))
        for at, shape in enumerate(op.dims)
        if isinstance(shape, list) and len(shape) >= _IMAGE and _elements(op, at) in images
    }
    known = {shape for shape, layout in layouts if layout}
    both = any({(shape, "first"), (shape, "last")} <= layouts for shape in known)
    model = bound_of(op) if both and op.name != "aten::copy_" else None
    return model is not None and model.kind == "elementwise"


def _bytes(op: Signature) -> float:
    model = bound_of(op)
    return float(model.bytes or 0) if model else 0.0
