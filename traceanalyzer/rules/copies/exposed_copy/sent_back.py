"""What the host makes of copied data and sends back: a few bytes, such as the index of the largest value."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Work
from traceanalyzer.timeline.awaited_values import MAX_BYTES

_REACHED = (
    0.75  # of the memory's peak rate, which a kernel that reads the data once reaches; H200, torch 2.11
)
_OP_NS = 5_000.0  # CPU time of launching it; H200 host, torch 2.11


def sent_back(calls: Calls, work: Work, copies: Work, spent_ns: Rows) -> Rows:
    """Row of the op that sends back what the host made of each copy to the host; int64 (copies,), -1 where none does.

    After work on the host it is the next op of the copy's thread that calls the device, and all that it launches are
    uploads of few bytes: the host works on the data to choose or to sum up.

    Args:
        spent_ns: int64 (copies,), work on the host after each copy.
    """
    top = calls[calls.is_top_op]
    owner = calls[calls.is_call].index_of_enclosing(top)
    calling = top[distinct(owner[owner >= 0])]
    uploading = np.isin(calling.rows, _uploading(work))
    found, launcher = np.full(len(copies), -1, np.int64), copies.outer_op
    for thread in distinct(launcher.thread[launcher.there]).tolist():
        own = np.flatnonzero(launcher.there & (launcher.thread == thread) & (spent_ns > 0))
        of_thread = np.flatnonzero(calling.thread == thread)
        order = of_thread[np.argsort(calling.start_ns[of_thread], kind="stable")]
        after = np.searchsorted(calling.start_ns[order], launcher.end_ns[own])
        following = order[np.minimum(after, len(order) - 1)]
        back = (after < len(order)) & uploading[following]
        found[own[back]] = calling.rows[following[back]]
    return found


def _uploading(work: Work) -> Rows:
    """Rows of the outermost ops that launch uploads of few bytes, and nothing else."""
    small: Mask = work.kind.one_of("copy_h2d") & (work.bytes <= MAX_BYTES)
    return np.setdiff1d(work[small].outer_op.rows, work[~small].outer_op.rows)


def on_the_device(calls: Calls, copies: Work, back: Rows, gpus: Gpus) -> Replace:
    """The host's work in one pass over the data on the device, without the copies there and back.

    Args:
        back: int64 (copies,), as from `sent_back`, for each of them.
    """
    passes_ns = copies.bytes / (_REACHED * gpus.memory_gbps(copies.device))
    ends_ns = Calls(calls.events, back).end_ns
    return Replace(copies.outer_op.start_ns, ends_ns, passes_ns[:, None], _OP_NS)
