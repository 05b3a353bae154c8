"""Which findings ask for something to be done, and which are only worth a line: all reports tell them apart alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report

PROFILERS_OWN = "recording"  # group of the rules that find what the profiler itself did
NOBODYS = "scheduler-gap"  # the rule that has what no other rule owns
_MINOR_SHARE = 0.01  # of the window and of the step
_UNOWNED_SHARE = 0.1  # of the window; more idle time than this wants to be seen, whoever's it is


@dataclass(frozen=True, slots=True)
class Apart:
    """Findings by their numbers, which count all findings from 1, as other outputs have them.

    Attributes:
        profilers_own: what the profiler itself did and nobody can change.
        minor: what is too little to act on.
        others: all other findings, those that a report counts.
    """

    profilers_own: dict[int, Finding] = field(default_factory=dict)
    minor: dict[int, Finding] = field(default_factory=dict)
    others: dict[int, Finding] = field(default_factory=dict)


def apart(report: Report) -> Apart:
    """All findings of the report, each in one part, ranked as they are."""
    recording = {outcome.rule for outcome in report.outcomes if outcome.group == PROFILERS_OWN}
    parts = Apart()
    for number, finding in enumerate(report.findings, 1):
        own = finding.severity is Severity.INFO and finding.rule in recording
        part = parts.profilers_own if own else parts.minor if _is_minor(finding) else parts.others
        part[number] = finding
    return parts


def _is_minor(finding: Finding) -> bool:
    """Info without anything to do: idle time that no rule owns, and what costs and saves next to nothing."""
    if finding.severity is not Severity.INFO or not finding.cost_ns:
        return False
    saved = 0.0 if finding.saving is None else abs(finding.saving.share)
    least = _UNOWNED_SHARE if finding.rule == NOBODYS else _MINOR_SHARE
    return finding.cost_share < least and saved < _MINOR_SHARE
