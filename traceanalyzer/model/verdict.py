"""The first three lines of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first three lines of a report; each may be empty.

    Attributes:
        step: how long a step takes, as recorded and as predicted without the profiler.
        limit: what sets the pace of the step, and what most of its time goes to.
        fix: what to fix first, and what fixing the findings gives.
    """

    step: str = ""
    limit: str = ""
    fix: str = ""

    @property
    def lines(self) -> Mapping[str, str]:
        """Label -> line, of the lines that say something."""
        lines = {"Step": self.step, "Limit": self.limit, "Fix": self.fix}
        return {label: text for label, text in lines.items() if text}

    @property
    def sentence(self) -> str:
        """The lines as one: `Step: 25.0 ms recorded; Limit: the GPU`."""
        return "; ".join(f"{label}: {text}" for label, text in self.lines.items())


NO_VERDICT = Verdict()
