"""What ran right before and right after some work on its stream."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.rule.views import Work


def neighbours(work: Work, found: Work, among: Work) -> tuple[tuple[Work, Mask], tuple[Work, Mask]]:
    """((what came before each of `found`, whether anything did), the same of what came after).

    Args:
        work: all of it.
        found: of which the neighbours are wanted.
        among: what counts as a neighbour, where it is on the same device and stream and of the same step; what is
            neither is passed over.
    """
    ordered = work.in_order()
    place = np.empty(len(work), np.int64)
    place[ordered.entries] = np.arange(len(work))
    there = np.sort(place[among.entries])
    at = np.searchsorted(there, place[found.entries])
    return _beside(ordered, there, at - 1, found), _beside(ordered, there, at, found)


def _beside(ordered: Work, there: np.ndarray, at: np.ndarray, found: Work) -> tuple[Work, Mask]:
    inside = (at >= 0) & (at < len(there))
    if len(there) == 0:
        return found, inside
    one = ordered[there[np.clip(at, 0, len(there) - 1)]]
    same = (one.device == found.device) & (one.stream == found.stream) & (one.step == found.step)
    return one, inside & same
