"""What each device did over the whole window, in equal parts: how busy, with what, and why idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.accounting import CLASSES, Accounting, class_name
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.timeline.steps import Steps

PARTS = 900  # of the window that are told apart
_IDLE = CLASSES.index("idle")


@dataclass(frozen=True, slots=True)
class Overview:
    """One device over the window, in `len(busy)` equal parts.

    Attributes:
        names: classes of `Accounting`, idle time as `idle:<cause>`.
        busy: percent of each part in which anything ran.
        doing: position in `names` of the class with most time among what ran, -1 where nothing did.
        why: position in `names` of the cause with most idle time, -1 where it was never idle.
    """

    device: int
    names: tuple[str, ...]
    busy: tuple[int, ...]
    doing: tuple[int, ...]
    why: tuple[int, ...]


def overviews(analysis: Analysis, parts: int = PARTS) -> tuple[Overview, ...]:
    """One per device.

    Raises:
        Unavailable: the trace has no GPU work.
    """
    accounting, idle, steps = analysis.index(Accounting), analysis.index(Idle), analysis.index(Steps)
    low, high = steps.window_start_ns, steps.window_end_ns
    edges = np.unique(np.linspace(low, high, parts + 1).astype(np.int64))
    code = np.where(
        accounting.piece >= 0, len(CLASSES) + pick(idle.cause, accounting.piece), accounting.time_class
    )
    return tuple(
        _overview(accounting, code, edges, device) for device in distinct(accounting.device).tolist()
    )


def _overview(accounting: Accounting, code: Rows, edges: Rows, device: int) -> Overview:
    own = np.flatnonzero(accounting.device == device)
    own = own[np.argsort(accounting.start_ns[own], kind="stable")]
    known, number = np.unique(code[own], return_inverse=True)
    cuts = np.union1d(accounting.start_ns[own], edges)
    at = np.maximum(np.searchsorted(accounting.start_ns[own], cuts[:-1], side="right") - 1, 0)
    part = np.searchsorted(edges, cuts[:-1], side="right") - 1
    size = max(len(edges) - 1, 1)
    cell = np.clip(part, 0, size - 1) * len(known) + number[at]
    sums = np.bincount(cell, weights=np.diff(cuts), minlength=size * len(known)).reshape(size, len(known))
    busy = known < _IDLE
    ran, rested = np.where(busy, sums, 0.0), np.where(busy, 0.0, sums)
    share = np.rint(100 * ran.sum(axis=1) / np.maximum(sums.sum(axis=1), 1.0))
    return Overview(
        device,
        tuple(class_name(int(one)) for one in known),
        tuple(share.astype(np.int64).tolist()),
        _most(ran),
        _most(rested),
    )


def _most(sums: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tuple[int, ...]:
    return tuple(np.where(sums.max(axis=1) > 0, sums.argmax(axis=1), -1).tolist())
