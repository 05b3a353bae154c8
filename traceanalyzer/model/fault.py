"""What one change of the program removes: one or several findings, with their joint saving."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traceanalyzer.model.finding import Severity
from traceanalyzer.model.saving import Saving


@dataclass(frozen=True, slots=True)
class Fault:
    """Findings that one change of the program removes.

    Attributes:
        id: "F1", "F2", ... by rank of the fault in the report; unique in a report.
        title: one phrase, that of the finding which saves most.
        saving: of all its fixes together, by one replay; None where no fix of it can be replayed.
        severity: of the joint saving; `info` where every finding is.
        findings: their numbers in the report, from 1, the largest first.
    """

    id: str
    title: str
    saving: Saving | None
    severity: Severity
    findings: tuple[int, ...]


def fixed_along(faults: Iterable[Fault]) -> set[int]:
    """Numbers of the findings that go with the first one of their fault."""
    return {number for fault in faults for number in fault.findings[1:]}
