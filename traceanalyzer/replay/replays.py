"""A program's replays at the slowdowns of one forecast; what was replayed once is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.merging import merged
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.run import Step, run, run_at
from traceanalyzer.replay.slowdown import Slowdown

_Steps = tuple[Step, Step, Step]


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of a program with any edits.

    Attributes:
        program: what is replayed.
        slowdown: by how much the profiler is taken to have slowed the CPU.
    """

    program: Program
    slowdown: Slowdown
    # By the identities of the edits, which are kept so that no others get these.
    _known: dict[tuple[int, ...], tuple[tuple[Edit, ...], _Steps]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def edited(self, edits: Sequence[Edit]) -> EditedProgram:
        """The program with the edits made."""
        edited = EditedProgram(self.program)
        for edit in merged(edits):
            edit.apply(edited)
        return edited

    def steps(self, edits: Sequence[Edit], edited: EditedProgram | None = None) -> _Steps:
        """The step with the edits made, at the typical, the low and the high slowdown.

        A finding's edits come alone, under those of others, in those of its fault and in those of all findings: often
        the same ones twice.

        Args:
            edited: the program with these edits, where the caller has it.
        """
        key = tuple(map(id, edits))
        if key not in self._known:
            edited = self.edited(edits) if edited is None else edited
            self._known[key] = tuple(edits), _replayed(edited, self.slowdown)
        return self._known[key][1]


def _replayed(edited: EditedProgram, slowdown: Slowdown) -> _Steps:
    if slowdown.low == slowdown.high:
        typical = run(edited, slowdown.typical)
        return typical, typical, typical
    typical, low, high = run_at(edited, (slowdown.typical, slowdown.low, slowdown.high))
    return typical, low, high
