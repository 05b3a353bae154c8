"""Copies that write a part of a tensor that exists, such as the rows of a cache: wanted, wherever these lie."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.model.arrays import Mask, grouped
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.signatures import Signature


def writes_slices(copies: Work) -> Mask:
    """Which of the copies the program asks for with copy_ or `x[i] = y` and write no tensor as a whole; bool (copies,).

    Where no strides are recorded, whoever asks for copy_ itself is taken to write a part.
    """
    dims, strides = copies.dims, copies.op.text("input_strides")
    number, first = grouped([dims.code, strides.code])
    whole: Mask = np.array([_is_whole(dims[row], strides[row]) for row in first.tolist()], bool)[number]
    written: Mask = copies.outer_op.name.one_of("aten::copy_") & ~whole
    return written


def _is_whole(dims: str | None, strides: str | None) -> bool:
    """Whether what `copy_` writes lies in one piece, in whatever order of its dimensions."""
    op = Signature.parsed("", dims, None, None, strides)
    try:
        written, steps = op.shape(0), op.stride(0)
    except LookupError:
        return False
    if steps is None or not math.prod(written):
        return False
    return math.prod(written) == 1 + sum((size - 1) * step for size, step in zip(written, steps, strict=True))
