"""Which findings ask for something to be done, and which are only worth a line: all reports tell them apart alike."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from traceanalyzer.model.finding import Finding, Outcome, Severity
from traceanalyzer.model.report import Fault, Report, fixed_along
from traceanalyzer.report.by_fault import leads, turn_of
from traceanalyzer.rule.registry import Kind, kind_of

PROFILERS_OWN = "recording"  # group of the rules that find what the profiler itself did
_MINOR_SHARE = 0.01  # of the window and of the step
_UNOWNED_SHARE = 0.1  # of the window; more idle time than this wants to be seen, whoever's it is


@dataclass(frozen=True, slots=True)
class Triage:
    """Findings by their numbers, which count all findings from 1, as other outputs have them.

    Attributes:
        profilers_own: what the profiler itself did and nobody can change.
        minor: what is too little to act on.
        others: all other findings, those that a report counts.
    """

    profilers_own: dict[int, Finding] = field(default_factory=dict)
    minor: dict[int, Finding] = field(default_factory=dict)
    others: dict[int, Finding] = field(default_factory=dict)


def triage(report: Report) -> Triage:
    """All findings of the report, each in one part, ranked as they are."""
    parts = Triage()
    sides = _sides(report.findings, report.outcomes)
    for number, (finding, side) in enumerate(zip(report.findings, sides, strict=True), 1):
        (parts.others, parts.minor, parts.profilers_own)[side][number] = finding
    return parts


def triaged(
    findings: Sequence[Finding],
    faults: Sequence[Sequence[Fault]],
    outcomes: Sequence[Outcome],
    leading: Set[str] = frozenset(),
) -> tuple[tuple[Finding, ...], list[tuple[Fault, ...]]]:
    """Faults that ask for something before those that do not, so that the numbers of what is listed have no holes.

    Of those that are listed, what needs no fix stands last.

    Of faults that are worth much the first findings stand before what else these remove, and evidence that is worth
    little stands after the next fault; that of who holds up a job follows at once: it says why.

    Args:
        leading: rules whose faults stand before all others.

    Returns:
        The findings, and the faults of each trace with the numbers that their findings have now.
    """
    sides = _sides(findings, outcomes)
    every = [fault for own in faults for fault in own]
    ahead: dict[str, int] = {}  # fault -> its turn: never before one that it stands behind
    for fault in sorted(every, key=lambda one: one.findings):
        own = turn_of(findings[fault.findings[0] - 1].rule, fault.severity)
        ahead[fault.id] = max(own, *list(ahead.values())[-1:], -1)
    turns = {
        number: -1
        if leads(findings[fault.findings[0] - 1], leading)
        and findings[number - 1].severity is not Severity.INFO
        else max(
            ahead[fault.id],
            min(turn_of(findings[number - 1].rule, findings[number - 1].severity), 1),
        )
        for fault in every
        for number in fault.findings
    }
    further = fixed_along(every)
    joined = {number for fault in every if len(fault.findings) > 1 for number in fault.findings}
    settled = {place for place, one in enumerate(findings) if one.settled and place + 1 not in joined}
    order = sorted(
        range(len(findings)),
        key=lambda place: (sides[place] > 0, place in settled, turns[place + 1], place + 1 in further),
    )
    number = {place + 1: new for new, place in enumerate(order, 1)}
    ids = dict.fromkeys(findings[place].fault for place in order)
    named = {old: f"F{new}" for new, old in enumerate((one for one in ids if one), 1)}
    told = tuple(replace(findings[place], fault=named.get(findings[place].fault or "")) for place in order)
    renamed = [
        [
            replace(one, id=named[one.id], findings=tuple(sorted(number[n] for n in one.findings)))
            for one in own
        ]
        for own in faults
    ]
    return told, [tuple(sorted(own, key=lambda one: one.findings)) for own in renamed]


def _sides(findings: Sequence[Finding], outcomes: Sequence[Outcome]) -> list[int]:
    """Of each finding: 0 asks for something, as all of its fault do then, 1 is minor, 2 is the profiler's own."""
    recording = {outcome.rule for outcome in outcomes if outcome.group == PROFILERS_OWN}
    alone = [
        2 if one.severity is Severity.INFO and one.rule in recording else 1 if is_minor(one) else 0
        for one in findings
    ]
    told = {one.fault for one, side in zip(findings, alone, strict=True) if one.fault and not side}
    return [0 if one.fault in told else side for one, side in zip(findings, alone, strict=True)]


def is_minor(finding: Finding) -> bool:
    """Info without anything to do: idle time that no rule owns, and what costs and saves next to nothing."""
    if finding.severity is not Severity.INFO or not finding.cost_ns:
        return False
    saved = 0.0 if finding.saving is None else abs(finding.saving.share)
    least = _UNOWNED_SHARE if kind_of(finding.rule) is Kind.REMAINDER else _MINOR_SHARE
    return finding.cost_share < least and saved < _MINOR_SHARE
