"""External ids that name no op.

Until torch 2.6 a call or kernel that belongs to no op carried its own correlation as External id, which is some
other op's id by chance (fixed in kineto 2024-02 to 2024-10). Such an id is believed where that op was running on
the calling thread when the call was made, and is null otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.trace import NULL_INT, ints, matching

_ERAS = ("torch 1.12", "torch 2.1", "torch 2.4")


def without_false_links(cpu: Columns, gpu: Columns, dialect: str) -> tuple[Columns, Columns]:
    """Both lanes with such external_ids null; the lanes themselves where there are none."""
    if not dialect.startswith(_ERAS):
        return cpu, gpu
    calls, work = _doubtful(cpu), _doubtful(gpu)
    believed = np.zeros(len(cpu), np.bool_)
    believed[calls] = _made_within_its_op(cpu, np.flatnonzero(calls))
    launched = np.isin(ints(gpu, "correlation"), ints(cpu, "correlation")[believed])
    return _unlinked(cpu, calls & ~believed), _unlinked(gpu, work & ~launched)


def _doubtful(lane: Columns) -> NDArray[np.bool_]:
    external = ints(lane, "external_id")
    doubtful: NDArray[np.bool_] = (external == ints(lane, "correlation")) & (external != NULL_INT)
    return doubtful


def _made_within_its_op(cpu: Columns, calls: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether the op that each call names was running on the call's thread when it was made."""
    external, start, tid = ints(cpu, "external_id"), ints(cpu, "start_ns"), ints(cpu, "tid")
    is_op = matching(cpu, "category", lambda category: category in ("cpu_op", "user_annotation"))
    ops = np.flatnonzero(is_op & (external != NULL_INT))
    if len(ops) == 0:
        return np.zeros(len(calls), np.bool_)
    ops = ops[np.argsort(external[ops], kind="stable")]
    named = ops[np.minimum(np.searchsorted(external[ops], external[calls]), len(ops) - 1)]
    end = start + ints(cpu, "dur_ns")
    running = (start[named] <= start[calls]) & (start[calls] < end[named])
    believed: NDArray[np.bool_] = running & (external[named] == external[calls]) & (tid[named] == tid[calls])
    return believed


def _unlinked(lane: Columns, rows: NDArray[np.bool_]) -> Columns:
    if not rows.any():
        return lane
    return lane.but("external_id", np.where(rows, NULL_INT, ints(lane, "external_id")))
