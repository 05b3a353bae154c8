"""Work that could take less: what it lost, and the program without that."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats
from traceanalyzer.replay.edits import DropWork, Edit, Resize
from traceanalyzer.rule.hits import LostTime
from traceanalyzer.rule.views import Work

Numbers = NDArray[np.int64] | Floats


class Quicker(TypedDict):
    """The arguments of `Hits` that say which work could take less."""

    occurrences: Work
    lost: LostTime
    fix: tuple[Edit, ...]


def quicker(found: Work, needed_ns: Numbers) -> Quicker:
    """Each piece of work with what it takes above the time that it needs.

    Args:
        needed_ns: parallel to `found`; what needs no time goes, with its launch.

    Raises:
        ValueError: some of it needs less than no time, no number of ns, or more than it takes.
    """
    needed_ns = needed_ns.astype(np.float64)
    if wrong := int((~(needed_ns >= 0)).sum()):
        raise ValueError(
            f"{wrong:,} of {len(found):,} needed_ns are negative or no number: 0 takes the work away"
        )
    if slower := int((needed_ns > found.dur_ns).sum()):
        raise ValueError(f"{slower:,} of {len(found):,} needed_ns are more than the work takes: leave it out")
    gone = needed_ns <= 0
    resized = Resize(found.entries[~gone], needed_ns[~gone])
    return {
        "occurrences": found,
        "lost": LostTime.excess(found, np.asarray(found.dur_ns - needed_ns, np.int64)),
        "fix": (DropWork(found.entries[gone]), resized) if gone.any() else (resized,),
    }


def not_below(needed_ns: Numbers, found: Work, floor_ns: int) -> Floats:
    """At least the floor, below which no kernel gets quicker; what is shorter already stays."""
    least = np.minimum(found.dur_ns, floor_ns).astype(np.float64)
    return np.maximum(needed_ns, least)
