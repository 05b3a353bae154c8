"""Dense gradients of embeddings by times alone: what fills them, what passes over them, how little was looked up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.embedding_tables import DENSE_GRADIENT, fills_of, passes_of

_LOOKUP = r"^aten::_?embedding(_bag)?(_forward_only)?$"
_SUM = r"^aten::add_?$"
_BACKWARD = r"^autograd::engine::evaluate_function"
_LIST = r"^aten::(_amp)?_?(foreach|fused)_"
_LOOKED_UP = 2  # a lookup reads and writes a row, a fill writes it
_PASSES = (
    ("_fused_", 5.0),
    ("addc", 4.0),
    ("lerp", 3.0),
    ("norm", 1.0),
    ("", 2.0),
)  # tensors read and written
_SUMMED = 2.0  # fills that adding a second gradient of a table takes at least


@dataclass(frozen=True, slots=True)
class ByTime:
    """What times tell of dense gradients of embeddings.

    Attributes:
        at: the ops that make the gradients.
        touched: share of the rows that is looked up, at most.
        fills: which work fills the gradients; parallel to all work.
        parts: the part of each piece of work that is for rows nobody looked up, at least; parallel to all work.
    """

    at: Calls
    touched: float
    fills: Mask
    parts: Floats


def by_time(calls: Calls, work: Work, marks: Calls, most: float) -> ByTime | None:
    """None where more may have been looked up, or another gradient is added to that of a table.

    Args:
        marks: steps of the optimizers.
        most: share of a table's rows up to which they are few.
    """
    at = calls[calls.is_op & calls.name.matches(DENSE_GRADIENT)]
    fills = fills_of(work, at)
    filled_ns = work[fills].total_ns
    looked_up_ns = work[work.outer_op.name.matches(_LOOKUP)].total_ns
    if not (filled_ns and looked_up_ns and len(marks)) or _is_summed(work, fills):
        return None
    touched = looked_up_ns / (_LOOKED_UP * filled_ns)
    if touched >= most:
        return None
    steps = max(marks.name.sums(np.ones(len(marks), np.int64)).values(), default=1)
    parts = _parts(work, passes_of(calls, work) & ~fills, work[fills], filled_ns / steps)
    return ByTime(at, touched, fills, np.where(fills, 1.0, parts) * (1 - touched))


def _is_summed(work: Work, fills: Mask) -> bool:
    """Whether backward adds tensors as large as the largest table: an output layer may share its weight."""
    sums = work[work.op.name.matches(_SUM) & work.outer_op.name.matches(_BACKWARD)]
    return bool((sums.dur_ns >= _SUMMED * work[fills].dur_ns.max()).any())


def _parts(work: Work, passes: Mask, fills: Work, filled_ns: float) -> Floats:
    """Part of each pass over a list of tensors that the tables take at the speed of their fills.

    A pass over a single tensor counts where it takes as long as one over the largest table.
    """
    spent: Rows = np.zeros(len(work), np.int64)
    _, call = np.unique(work.op.rows, return_inverse=True)
    spent = np.bincount(call, np.where(passes, work.dur_ns, 0))[call].astype(np.int64)
    names = work.op.name
    tensors = np.zeros(len(work))
    for text, count in _PASSES:
        tensors = np.where((tensors == 0) & names.matches(text), count, tensors)
    lists = names.matches(_LIST)
    large = spent >= tensors * fills.dur_ns.max()
    part = np.minimum(tensors * filled_ns / np.maximum(spent, 1), 1.0)
    return np.where(passes & lists, part, np.where(passes & large, 1.0, 0.0))
