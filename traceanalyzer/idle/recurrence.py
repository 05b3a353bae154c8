"""What recurs from step to step, what happens once, and what only gets a recording under way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StandingOut:
    """Per part: it lies in a step that stands out for its key.

    Attributes:
        leading: all such steps of the key are in the first third; bool (parts,).
        alone: it is the only such step of the key; bool (parts,).
    """

    leading: Mask
    alone: Mask


def standing_out(key: Rows, step: Rows, ns: Rows, steps: int, spike: float) -> StandingOut:
    """Which parts lie in steps where their key takes far more than usual.

    Args:
        key: what recurs, numbered from 0; step: position, -1 for before the first; ns: what it took; (parts,) each.
        steps: how many steps there are.
        spike: a key stands out in a step where it takes more than this times its median over all steps.
    """
    inside = step >= 0
    sums = np.zeros((int(key.max(initial=-1)) + 1, steps))
    np.add.at(sums, (key[inside], step[inside]), ns[inside])
    high = sums > spike * np.median(sums, axis=1, keepdims=True)
    last = np.where(high, np.arange(steps), -1).max(axis=1, initial=-1)
    high = np.append(high, np.zeros((len(high), 1), bool), axis=1)  # for parts before the first step
    stands = high[key, step]
    return StandingOut(stands & (last < max(1, steps // 3))[key], stands & (high.sum(axis=1) == 1)[key])
