"""Where products and a softmax follow one another on a stream: attention that nobody fused."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.rule.views import Work

_PRODUCT = r"^aten::(bmm|baddbmm)$"
_SOFTMAX = r"^aten::_(safe_)?softmax$"
# Attention chooses and sorts nothing, and looks nothing up with what the softmax gave: a router of experts does.
_CHOOSES = r"^aten::(topk|sort|argsort|nonzero|scatter\w*)$"
_LOOKS_UP = r"^aten::(index|index_select|gather|embedding)$"
_SOFTMAX_BACKWARD = r"^aten::_softmax_backward_data$"


def attention_spans(work: Work, most: int) -> tuple[Work, Rows, Mask]:
    """(the pieces of every attention, the number of its attention for each, whether each attention is of backward).

    Args:
        most: pieces of work between a product and the softmax.
    """
    names = work.op.name
    if not (names.matches(_SOFTMAX) | names.matches(_SOFTMAX_BACKWARD)).any():
        return work[np.empty(0, np.int64)], np.empty(0, np.int64), np.empty(0, bool)
    ordered = work.in_order()
    first, last, backward = _spans(ordered, most)
    member, number = _members(first, last)
    return ordered[member], number, backward


def _spans(ordered: Work, most: int) -> tuple[Rows, Rows, Mask]:
    """(first piece, last piece, whether it is of backward) of each attention, positions in `ordered`."""
    name = ordered.op.name
    product = np.flatnonzero(name.matches(_PRODUCT) & ordered.kind.one_of("compute"))
    forward, backward = (
        np.flatnonzero(name.matches(_SOFTMAX)),
        np.flatnonzero(name.matches(_SOFTMAX_BACKWARD)),
    )
    softmax = np.concatenate((forward, backward))
    is_backward = np.arange(len(softmax)) >= len(forward)
    order = np.argsort(softmax)
    softmax, is_backward = softmax[order], is_backward[order]
    if len(product) < 2 or len(softmax) == 0:
        return softmax[:0], softmax[:0], is_backward[:0]
    before = np.searchsorted(product, softmax) - 1
    after = before + 1
    near = (before >= 0) & (after < len(product))
    low, high = product[np.maximum(before, 0)], product[np.minimum(after, len(product) - 1)]
    near &= (softmax - low <= most) & (high - softmax <= most)
    for column in (ordered.device, ordered.stream, ordered.step):
        near &= column[low] == column[high]
    before, after, softmax, is_backward = before[near], after[near], softmax[near], is_backward[near]
    first = np.where(is_backward, _further(product, before, -1, most), low[near])
    last = np.where(is_backward, _further(product, after, 1, most), high[near])
    first[1:] = np.maximum(first[1:], last[:-1] + 1)  # what two share belongs to the earlier
    own = first < softmax
    first = np.minimum(first, softmax)
    own &= _count(name.matches(_CHOOSES), first, last) == 0
    own &= is_backward | (_count(name.matches(_LOOKS_UP), softmax, last) == 0)
    return first[own], last[own], is_backward[own]


def _count(which: Mask, first: Rows, last: Rows) -> Rows:
    """How many lie in each span [first, last]."""
    before = np.concatenate(([0], np.cumsum(which)))
    return np.asarray(before[np.maximum(last, first) + 1] - before[first], np.int64)


def _further(product: Rows, at: Rows, by: int, most: int) -> Rows:
    """The product next to each, where it is near, else that one."""
    this = product[np.clip(at, 0, len(product) - 1)]
    other = product[np.clip(at + by, 0, len(product) - 1)]
    return np.where(np.abs(other - this) <= most, other, this)


def _members(first: Rows, last: Rows) -> tuple[Rows, Rows]:
    """Positions within the spans, and the number of the span of each."""
    count = last - first + 1
    number = np.repeat(np.arange(len(first)), count)
    start = np.cumsum(count) - count
    return np.arange(int(count.sum())) - start[number] + first[number], number
