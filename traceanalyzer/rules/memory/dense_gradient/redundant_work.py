"""Work of which a part is needless."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.replay.edits import DropWork, Edit, Resize
from traceanalyzer.rule.views import Work

_ROUNDING = 1e-9


def reduce_redundant_work(spent: Work, needless: Floats) -> tuple[Edit, ...]:
    """The program without the needless part of some work.

    A pass over large lists is many launches: as many go as the needless part has, the others take what is left.

    Args:
        needless: share of each piece (0 to 1), the same for all pieces of one op.
    """
    rows = spent.op.rows
    order = np.argsort(rows, kind="stable")
    _, first, op, count = np.unique(rows[order], return_index=True, return_inverse=True, return_counts=True)
    gone = np.floor(count[op] * needless[order] + _ROUNDING)
    goes = np.arange(len(rows)) - first[op] < gone
    left = spent.dur_ns[order] * (1 - needless[order]) * count[op] / np.maximum(count[op] - gone, 1)
    entries = spent.entries[order]
    return DropWork(entries[goes]), Resize(entries[~goes], left[~goes])
