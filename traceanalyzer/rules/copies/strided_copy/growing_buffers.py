"""Concatenations that append a little to a large buffer, such as a cache that grows with each token."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.signatures import Signature, signatures_of


def appends(work: Work, joined: Mask, times: float) -> Mask:
    """Which of the concatenations append to what another one made, or make what another appends to; bool (work,).

    Args:
        times: how many times larger than all its other inputs together the largest input of such a cat is.
    """
    number, signatures = signatures_of(work.events.trace, work[joined].op.rows)
    grows = [_growth(one, times) if one.name == "aten::cat" else None for one in signatures]
    before, after = ({growth[side] for growth in grows if growth} for side in (0, 1))
    found = joined.copy()
    chained = [growth is not None and (growth[1] in before or growth[0] in after) for growth in grows]
    found[joined] = np.array(chained, bool)[number]
    return found


def appended(work: Work) -> str:
    """Shape of what the last cat appended, `8x1x64`."""
    number, signatures = signatures_of(work.events.trace, work.op.rows)
    return "x".join(map(str, min(_inputs(signatures[int(number[-1])]), key=math.prod)))


def _growth(op: Signature, times: float) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of a cat's largest input and of its result, where the others are small and differ in one size."""
    largest, *others = sorted(_inputs(op), key=math.prod, reverse=True) or [[]]
    small = 0 < times * sum(map(math.prod, others)) <= math.prod(largest)
    if not small or any(len(one) != len(largest) for one in others):
        return None
    differ = [at for at, sizes in enumerate(zip(largest, *others, strict=True)) if len(set(sizes)) > 1]
    if len(differ) != 1:
        return None
    (at,) = differ
    result = [*largest[:at], largest[at] + sum(one[at] for one in others), *largest[at + 1 :]]
    return tuple(largest), tuple(result)


def _inputs(op: Signature) -> list[list[int]]:
    tensors = op.dims[0] if op.dims and isinstance(op.dims[0], list) else []
    return [shape for shape in tensors if isinstance(shape, list)]
