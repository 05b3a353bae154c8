"""How large a sort is, and how much of it is used, where no shapes were recorded: by what its kernels say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.rule import Calls, Work
from traceanalyzer.timeline.names import VIEWING_OP

_WIDEST = 8  # bytes of an element: int64 and float64
_EACH = 16  # elements that a thread of a pointwise kernel computes at most: 4, and 8 or 16 in vectorized ones
_SEGMENTS = r"DeviceSegmentedRadixSort"  # a block for each row
_PART = r"^aten::(slice|narrow|select)$"


class Seen(NamedTuple):
    """Of each sort: bytes of its input, 0 where they are not known; rows; the largest part of it that is used."""

    bytes: Rows
    rows: Rows
    part: Floats


def seen_by_kernels(ops: Calls, sorts: Calls, spent: Work, owner: Rows) -> Seen:
    """What the kernels of sorts say, where the op behind a sort takes a part of it.

    A sort copies its input first, and what reads the part launches a thread for some elements each. How often an op
    reads a result is not known without shapes.

    Args:
        ops: all ops.
        owner: of each piece of work that sorts launch, which of them.
    """
    copied, rows = np.zeros(len(sorts), np.int64), np.ones(len(sorts), np.int64)
    copies = spent.kind.one_of("copy_d2d")
    np.maximum.at(copied, owner[copies], spent.bytes[copies])
    segments = spent.name.matches(_SEGMENTS)
    np.maximum.at(rows, owner[segments], spent.blocks[segments])
    used = np.full(len(sorts), np.inf)
    reader = _readers(ops, sorts)
    read, of = ops[reader[reader >= 0]].launched()
    threads = np.zeros(np.count_nonzero(reader >= 0), np.int64)
    np.maximum.at(threads, of, np.maximum(read.blocks, 0) * np.maximum(read.threads, 0))
    used[reader >= 0] = np.where(threads > 0, threads * _EACH, np.inf)
    return Seen(copied, rows, used / np.maximum(copied / _WIDEST, 1))


def _readers(ops: Calls, sorts: Calls) -> Rows:
    """Of each sort the op that reads a part of it: the first behind it that is no view; -1 where none takes a part."""
    tops = np.flatnonzero(ops.is_top_op)
    tops = tops[np.lexsort((ops.start_ns[tops], ops.thread[tops]))]
    rows, thread = ops.rows[tops], ops.thread[tops]
    viewing: Mask = ops.name.matches(VIEWING_OP.pattern)[tops]
    takes = np.cumsum(ops.name.matches(_PART)[tops])
    place = np.full(int(rows.max(initial=-1)) + 1, -1)
    place[rows] = np.arange(len(rows))
    at = place[np.minimum(sorts.rows, len(place) - 1)]
    ends = np.append(np.flatnonzero(~viewing), len(rows))
    behind = ends[np.searchsorted(ends, at, side="right")]
    known = (at >= 0) & (behind < len(rows))
    behind = np.where(known, behind, 0)
    known &= (thread[behind] == thread[at]) & (takes[behind] > takes[at])
    return np.where(known, tops[behind], -1)
