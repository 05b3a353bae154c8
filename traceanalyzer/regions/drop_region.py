"""The edit that takes a region out of a program, or leaves one repeat of it that does the work of all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.records import dataclass
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Ints, Kind, as_ints

# Time of a nearly empty kernel: one launch for many repeats saves it of each. 1.1 to 2 us, H200.
KERNEL_FLOOR_NS = 2_000.0


@dataclass(frozen=True, slots=True, eq=False)
class DropRegion:
    """Stretches of CPU time [starts, ends) go, with what they launch; of a gap that they cut, their share of it.

    Attributes:
        floor_ns: the work that they launch stays, each piece shorter by this, and is launched after them; where it
            is 0, each piece has a launch of its own.
        stall: what comes after them may have run cold, since the CPU worked on something else in them.
        least_part: of the saving, that a fix has which keeps some of it.
    """

    kind: ClassVar[Kind] = "drop"
    starts_ns: Ints
    ends_ns: Ints
    floor_ns: float = np.inf
    stall: bool = False
    least_part: float = 1.0

    def apply(self, edited: EditedProgram) -> None:
        spans = intervals.union(as_ints(self.starts_ns), as_ints(self.ends_ns))
        timeline, segments = edited.program.timeline, edited.program.segments
        inside = intervals.covered(spans, timeline.start_ns, timeline.end_ns)
        whole = timeline.end_ns - timeline.start_ns
        cut = segments.gap & (inside > 0) & (inside < whole)
        edited.cpu_ns[cut] *= (1 - inside / np.maximum(whole, 1))[cut]
        dropped = (inside == whole) & (whole > 0)
        if self.floor_ns == 0:
            dropped[edited.launch[edited.alive]] = False
        stays = np.flatnonzero(edited.alive & dropped[edited.launch] & (edited.dur_ns > self.floor_ns))
        edited.drop(dropped, stall=self.stall)
        edited.alive[stays] = True
        edited.dur_ns[stays] -= self.floor_ns
        edited.gap_ns[stays] = 0.0
        after = np.where(dropped, len(dropped) - 1, np.arange(len(dropped)))
        after = np.minimum.accumulate(after[::-1])[::-1]
        edited.launch[stays] = after[edited.launch[stays]]
