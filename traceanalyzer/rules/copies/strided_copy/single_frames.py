"""Copies around convolutions of volumes whose kernel spans one frame: what folding the frames into the batch saves."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Work
from traceanalyzer.tensors.signatures import Signature, tensors

_VOLUME = 5  # dimensions: batch, channels, frames, height, width


def around_single_frames(moved: Work, inputs: WorkInputs) -> Mask:
    """Which copies are of tensors with the sizes of such a convolution's input, in any order of its dimensions."""
    volumes = {sizes for op in inputs.signatures if (sizes := _frames(op))}
    known = np.array(
        [any(tuple(sorted(shape)) in volumes for shape in tensors(op)[:1]) for op in inputs.signatures]
    )
    chosen: Mask = known[inputs.number[moved.entries]]
    return chosen


def _frames(op: Signature) -> tuple[int, ...]:
    """Sorted sizes of the input of a convolution with a kernel of 1xNxM; nothing for other ops."""
    shapes = tensors(op) if "convolution" in op.name and "backward" not in op.name else []
    if len(shapes) < 2 or len(shapes[0]) != _VOLUME or len(shapes[1]) != _VOLUME:
        return ()
    _, _, depth, *plane = shapes[1]
    return tuple(sorted(shapes[0])) if depth == 1 and max(plane) > 1 else ()
