"""The ops right before a read-back that do nothing but make the value: a comparison, any, all."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule import Calls

# Their result is a truth value, which nothing but a decision needs; a sum or a mean may be the loss itself.
_DECIDES = (
    r"^aten::(any|all|_is_any_true|_is_all_true|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|isneginf|isposinf|"
    r"logical_(and|or|not|xor)|__and__|__or__|bitwise_(and|or|not)|abs)$"
)
_ENDS = r"^aten::(any|all|_is_any_true|_is_all_true|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+|bitwise_\w+)$"
_MOST = 4  # ops that make one value: abs, gt, any; isnan, logical_or, any


def makers_of(found: Calls, outer: Calls) -> Rows:
    """Rows of the outermost ops right before each read-back, on its thread, that make its truth value.

    Args:
        found: the ops that read back.
        outer: all outermost ops.
    """
    order = np.lexsort((outer.start_ns, outer.thread))
    outer = outer[order]
    decides, ends = outer.name.matches(_DECIDES), outer.name.matches(_ENDS)
    place = np.flatnonzero(np.isin(outer.rows, found.outer_op.rows))
    alive = np.ones(len(place), bool)
    rows = [np.empty(0, np.int64)]
    for back in range(1, _MOST + 1):
        alive &= place >= back
        before = np.maximum(place - back, 0)
        alive &= outer.thread[before] == outer.thread[place]
        alive &= (ends if back == 1 else decides)[before]
        rows.append(outer.rows[before[alive]])
    return np.concatenate(rows)
