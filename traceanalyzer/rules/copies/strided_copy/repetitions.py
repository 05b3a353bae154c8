"""Copies that write the same data several times: of an expanded tensor, by repeat or repeat_interleave."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.signatures import Signature

SEVERAL = 0  # how often is not recorded

_ABSURD = 2**31  # times: damaged files have such shapes
_OPS = r"^aten::(repeat|repeat_interleave|tile|expand_copy)$"


def repetitions(copies: Work) -> Rows:
    """How often each copy writes each element of what it reads, int64 (copies,): mostly 1.

    An expanded dimension has stride 0. Where no strides are recorded, the op that the user called may say that it
    repeats: then `SEVERAL`.
    """
    dims, strides = copies.dims, copies.op.text("input_strides")
    number, first = grouped([dims.code, strides.code])
    known = [_times(dims[row], strides[row]) for row in first.tolist()]
    times = np.array([-1 if one is None else one for one in known], np.int64)[number]
    times = np.where(copies.op.name.one_of("aten::copy_"), times, -1)
    by_name = np.where(copies.outer_op.name.matches(_OPS), SEVERAL, 1)
    return np.where(times < 0, by_name, times)


def most_often(copies: Work) -> str:
    """`4 times` or `several times`: how often the copies that take most of the time write each element."""
    values, number = np.unique(repetitions(copies), return_inverse=True)
    most = int(values[np.argmax(np.bincount(number, copies.dur_ns))])
    return "several times" if most == SEVERAL else "twice" if most == 2 else f"{most:,} times"


def _times(dims: str | None, strides: str | None) -> int | None:
    """Of `copy_(written, read)`, from the JSON text of their shapes and strides; None where these do not say."""
    shapes, steps = (Signature.parsed("", text, None, None) for text in (dims, strides))
    try:
        written, read, step = shapes.shape(0), shapes.shape(1), steps.shape(1)
    except LookupError:
        return None
    if len(read) != len(step) or not math.prod(read):
        return None
    apart = math.prod(size for size, by in zip(read, step, strict=True) if by)
    often = math.prod(written) // apart if apart > 1 else 1  # one number for all is a fill
    return min(max(often, 1), _ABSURD)
