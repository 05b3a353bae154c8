"""Concatenations that append a little to a large buffer, such as a cache that grows with each token."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.roofline.op_model import Signature
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.views import Work
from traceanalyzer.rule.views.selection import Mask


def appends(work: Work, joined: Mask, times: float) -> Mask:
    """Which of the concatenations are cats of one input so many times larger than all others; bool (work,)."""
    number, signatures = signatures_of(work.events.trace, work[joined].op.rows)
    known = [_sizes(one) if one.name == "aten::cat" else [] for one in signatures]
    grown = [len(sizes) > 1 and 0 < times * sum(sizes[1:]) <= sizes[0] for sizes in known]
    found = joined.copy()
    found[joined] = np.array(grown, bool)[number]
    return found


def appended(work: Work) -> str:
    """Shape of what the last cat appended, `8x1x64`."""
    number, signatures = signatures_of(work.events.trace, work.op.rows)
    return "x".join(map(str, min(_inputs(signatures[int(number[-1])]), key=math.prod)))


def _sizes(op: Signature) -> list[int]:
    """Elements of each input of a cat, largest first."""
    return sorted(map(math.prod, _inputs(op)), reverse=True)


def _inputs(op: Signature) -> list[list[int]]:
    tensors = op.dims[0] if op.dims and isinstance(op.dims[0], list) else []
    return [shape for shape in tensors if isinstance(shape, list)]
