"""The findings of a report in the order of their faults, and the faults of each trace."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.registry import Kind, all_rules
from traceanalyzer.rule.severity import ranked

Faults = tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Members:
    """Findings of one fault, the first as ranked; `stands` is that one with what holds of all of them.

    Attributes:
        behind: `id` of the findings that say why the first one's work is there.
    """

    trace: int
    findings: tuple[Finding, ...]
    stands: Finding
    behind: frozenset[int] = frozenset()


def by_fault(
    findings: Sequence[Finding], faults: Sequence[FaultOf], leading: frozenset[str] = frozenset()
) -> tuple[tuple[Finding, ...], list[Faults]]:
    """(the findings ranked by fault, each with its fault's id; the faults of each trace, as ranked).

    What takes all launches off the CPU is done after the other changes, and stands after those that are worth much;
    what fuses a chain stands after what says why the chain is there.

    Args:
        findings: of all traces, trace after trace, in the order of `FaultOf.number`.
        faults: one per trace.
        leading: rules whose findings above `info` come before all others: who holds up a job.
    """
    groups = list(_groups(findings, faults, leading))
    by_rank = ranked([one.stands for one in groups])
    order = sorted(by_rank, key=lambda one: -1 if leads(one, leading) else turn_of(one.rule, one.severity))
    turn = {id(found): place for place, found in enumerate(order)}
    places = {id(found): turn[id(group.stands)] for group in groups for found in group.findings}
    last = {id(one.stands): max((places[reason] for reason in one.behind), default=-1) for one in groups}
    order = sorted(order, key=lambda one: (max(turn[id(one)], last[id(one)] + 0.5), turn[id(one)]))
    turn = {id(found): place for place, found in enumerate(order)}
    told: list[Finding] = []
    by_trace: list[list[Fault]] = [[] for _ in faults]
    for place, group in enumerate(sorted(groups, key=lambda one: turn[id(one.stands)]), start=1):
        name, first = f"F{place}", len(told) + 1
        told += [replace(found, fault=name) for found in group.findings]
        stands = group.stands
        numbers = tuple(range(first, len(told) + 1))
        by_trace[group.trace].append(Fault(name, _title(stands), stands.saving, stands.severity, numbers))
    return tuple(told), [tuple(own) for own in by_trace]


def turn_of(rule: str, severity: Severity) -> int:
    """0 of a fault that is worth much, 1 of what comes after that, 2 of `info`.

    After it comes what takes all launches off the CPU, names the rest, happens once in a window that shows more than
    that, or is worth little.
    """
    if severity is Severity.INFO:
        return 2
    known = next((one for one in all_rules() if one.slug == rule), None)
    rest = known is not None and (known.claims is Claims.LAUNCHES or known.kind is Kind.REMAINDER)
    rest = rest or (known is not None and known.kind is Kind.ONCE and severity is not Severity.HIGH)
    return int(rest or severity.rank > Severity.MEDIUM.rank)


def leads(one: Finding, leading: Set[str]) -> bool:
    """Whether it is of the rules that lead: the culprit of a job stands before all else, however little it costs."""
    return one.rule in leading and one.severity is not Severity.INFO


def _groups(findings: Sequence[Finding], faults: Sequence[FaultOf], leading: Set[str]) -> list[_Members]:
    found: list[_Members] = []
    first = 0
    for trace, of_trace in enumerate(faults):
        own = findings[first : first + len(of_trace.number)]
        first += len(own)
        members: list[list[Finding]] = [[] for _ in of_trace.savings]
        behind = {
            id(own[one]): frozenset(id(own[reason]) for reason in reasons)
            for one, reasons in of_trace.preceded_by.items()
        }
        for number, finding in zip(of_trace.number, own, strict=True):
            members[number].append(finding)
        judged = zip(members, of_trace.savings, of_trace.severities, strict=True)
        for group, saving, severity in judged:
            inside = {id(one) for one in group}
            after = {one for one, reasons in behind.items() if reasons & inside}
            order = tuple(sorted(ranked(group), key=lambda one: (not leads(one, leading), id(one) in after)))
            stands = order[0]
            if len(order) > 1:
                quiet = all(one.severity is Severity.INFO for one in order)  # a job gains nothing by them
                stands = replace(stands, saving=saving, severity=Severity.INFO if quiet else severity)
            found.append(_Members(trace, order, stands, behind.get(id(order[0]), frozenset())))
    return found


def _title(finding: Finding) -> str:
    """What its rule's page is headed by, and what the finding is named by."""
    titles = {rule.slug: rule.title for rule in all_rules()}
    title = titles.get(finding.rule, finding.rule).rstrip(".")
    return f"{title}: {finding.by}" if finding.by else title
