"""Which findings ask for something to be done, and which are only worth a line: all reports tell them apart alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice

from traceanalyzer.job.links import RankLinks
from traceanalyzer.job.loads import RankLoads
from traceanalyzer.model.finding import Finding, Outcome, Severity
from traceanalyzer.model.report import Fault, Report, fixed_along
from traceanalyzer.replay.peer_comparison import ExcessOverPeers
from traceanalyzer.rule.claims import REGION, Claims
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.registry import Kind, Rule, all_rules, kind_of
from traceanalyzer.rule.severity import ranked

Faults = tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Members:
    """Findings of the fault with this number in its trace; `stands` is the first with what holds of all of them.

    `behind` holds the `id` of the findings that say why the first one's work is there.
    """

    trace: int
    number: int
    findings: tuple[Finding, ...]
    stands: Finding
    behind: frozenset[int] = frozenset()


def by_fault(findings: Sequence[Finding], faults: Sequence[FaultOf]) -> tuple[tuple[Finding, ...], list[Faults]]:
    """(the findings ranked by fault, each with its fault's id; the faults of each trace, as ranked).

    What takes all launches off the CPU is done after the other changes, and stands after those that are worth much;
    what fuses a chain stands after what says why the chain is there. Findings are those of all traces, trace after
    trace, in the order of `FaultOf.number`; `faults` has one per trace.
    """
    ordered: list[Finding] = []
    by_trace: list[list[Fault]] = [[] for _ in faults]
    for place, group in enumerate(_in_turn(findings, faults), start=1):
        name, first = f"F{place}", len(ordered) + 1
        ordered += [replace(found, fault=name) for found in group.findings]
        stands, after = group.stands, faults[group.trace].steps_after.get(group.number)
        numbers = tuple(range(first, len(ordered) + 1))
        fault = Fault(name, _title(stands), stands.saving, stands.severity, numbers, after)
        by_trace[group.trace].append(fault)
    return tuple(ordered), [tuple(own) for own in by_trace]


def faults_in_turn(findings: Sequence[Finding], faults: FaultOf) -> list[int]:
    """Numbers of the faults of one trace, as ranked."""
    return [group.number for group in _in_turn(findings, [faults])]


def _in_turn(findings: Sequence[Finding], faults: Sequence[FaultOf]) -> list[_Members]:
    groups = list(_groups(findings, faults))
    by_rank = ranked([one.stands for one in groups])
    turns = {id(one): turn_of(one, one.severity) for one in by_rank}
    least = _LAUNCHES_BEFORE * max((saved_share(one) for one in by_rank if not turns[id(one)]), default=0.0)
    worst = min((one.severity.rank for one in by_rank if not turns[id(one)]), default=0)
    for one in by_rank:
        # What a larger batch saves cannot be told: it stands before what is less severe.
        enough = one.severity.rank < worst if one.saving is None else saved_share(one) >= least
        if turns[id(one)] == 1 and one.severity.rank <= Severity.MEDIUM.rank and enough:
            turns[id(one)] = -1
    order = sorted(by_rank, key=lambda one: turns[id(one)])
    turn = {id(found): place for place, found in enumerate(order)}
    places = {id(found): turn[id(group.stands)] for group in groups for found in group.findings}
    last = {id(one.stands): max((places[reason] for reason in one.behind), default=-1) for one in groups}
    order = sorted(order, key=lambda one: (max(turn[id(one)], last[id(one)] + 0.5), turn[id(one)]))
    turn = {id(found): place for place, found in enumerate(order)}
    return sorted(groups, key=lambda one: turn[id(one.stands)])


# A fix of all launches comes before faults if it saves this many times as much as the largest of them; chosen.
_LAUNCHES_BEFORE = 4.0


def saved_share(finding: Finding) -> float:
    """Share of the step that it saves; 0 where it has no saving."""
    return 0.0 if finding.saving is None else finding.saving.share


def turn_of(finding: Finding, severity: Severity) -> int:
    """0 of a fault that is worth much, 1 of what comes after that, 2 of `info`.

    After it comes what takes all launches off the CPU, names the rest, happens once in a window that shows more than
    that, or is worth little.
    """
    if severity is Severity.INFO:
        return 2
    rule, kind = _rule_of(finding), kind_of(finding.rule)
    launches = rule is not None and rule.claims is Claims.LAUNCHES
    rest = (launches and finding.cause != REGION) or kind is Kind.REMAINDER
    rest |= kind is Kind.ONCE and severity is not Severity.HIGH
    return int(rest or severity.rank > Severity.MEDIUM.rank)


def _rule_of(finding: Finding) -> Rule | None:
    return next((one for one in all_rules() if one.slug == finding.rule), None)


@cache
def compares_ranks() -> frozenset[str]:
    """Rules whose evidence is that a rank differs from its peers."""
    return frozenset(
        rule.slug
        for rule in all_rules()
        if any(need.kind in (ExcessOverPeers, RankLinks, RankLoads) for need in rule.needs.values())
    )


# Remedies for a late rank whatever makes it late.
_FOR_ANY_LATE_RANK = ("Share that work among the ranks", "Balance the work")


def generality(finding: Finding) -> int:
    """How far from its cause its remedy is: 0 of a specific one, 1 of what the CPU does, 2 of who is late."""
    if finding.rule in compares_ranks():
        return 2 * any(remedy in finding.advice for remedy in _FOR_ANY_LATE_RANK)
    if finding.cause == REGION:
        # Waits within a region of code stand in the way of its remedy.
        return int(finding.evidence.get("region_syncs", 0) > 0)
    rule = _rule_of(finding)
    # What takes all launches off the CPU has a remedy of its own.
    return int(rule is not None and rule.claims >= Claims.GENERAL and rule.claims is not Claims.LAUNCHES)


def _groups(findings: Sequence[Finding], faults: Sequence[FaultOf]) -> list[_Members]:
    found: list[_Members] = []
    rest = iter(findings)
    for trace, of_trace in enumerate(faults):
        own = list(islice(rest, len(of_trace.number)))
        members: list[list[Finding]] = [[] for _ in of_trace.savings]
        behind = {
            id(own[one]): frozenset(id(own[reason]) for reason in reasons)
            for one, reasons in of_trace.preceded_by.items()
        }
        for number, finding in zip(of_trace.number, own, strict=True):
            members[number].append(finding)
        judged = zip(members, of_trace.savings, of_trace.severities, strict=True)
        for number, (group, saving, severity) in enumerate(judged):
            inside = {id(one) for one in group}
            after = {one for one, reasons in behind.items() if reasons & inside}
            quiet = {id(one) for one in group if one.severity is Severity.INFO}
            turns = {id(one): (id(one) in quiet, id(one) in after, generality(one)) for one in group}
            order = tuple(sorted(ranked(group), key=lambda one: turns[id(one)]))
            stands = order[0]
            if len(order) > 1:
                # A job gains nothing by findings that are all info.
                level = Severity.INFO if len(quiet) == len(order) else severity
                stands = replace(stands, saving=saving, severity=level)
            found.append(_Members(trace, number, order, stands, behind.get(id(order[0]), frozenset())))
    return found


def _title(finding: Finding) -> str:
    """What its rule's page is headed by, and what the finding is named by."""
    rule = _rule_of(finding)
    title = (rule.title if rule else finding.rule).rstrip(".")
    return f"{title}: {finding.by}" if finding.by else title


PROFILERS_OWN = "recording"  # group of the rules that find what the profiler itself did
_MINOR_SHARE = 0.01  # of the window and of the step
_UNOWNED_SHARE = 0.1  # of the window; more idle time than this wants to be seen, whoever's it is


@dataclass(frozen=True, slots=True)
class Triage:
    """Findings by their numbers, which count all findings from 1, as other outputs have them.

    Apart from `others`, which a report counts, are what the profiler itself did, what is too little to act on, and what
    is printed with --pedantic only.
    """

    profilers_own: dict[int, Finding] = field(default_factory=dict)
    minor: dict[int, Finding] = field(default_factory=dict)
    pedantic: dict[int, Finding] = field(default_factory=dict)
    others: dict[int, Finding] = field(default_factory=dict)


def triage(report: Report, *, pedantic: bool = False) -> Triage:
    """All findings of the report, each in one part, ranked as they are; `pedantic` hides none."""
    parts = Triage()
    sides = _sides(report.findings, report.outcomes)
    for number, (finding, side) in enumerate(zip(report.findings, sides, strict=True), 1):
        part = (parts.others, parts.minor, parts.profilers_own)[side]
        if finding.pedantic:
            part = parts.others if pedantic else parts.pedantic
        part[number] = finding
    return parts


def triaged(
    findings: Sequence[Finding], faults: Sequence[Sequence[Fault]], outcomes: Sequence[Outcome]
) -> tuple[tuple[Finding, ...], list[tuple[Fault, ...]]]:
    """Findings and faults of each trace, renumbered: what asks for something first, so that its numbers have no holes.

    Of those that are listed, what needs no fix stands last. Of faults that are worth much the first findings stand
    before what else these remove, and evidence that is worth little stands after the next fault.
    """
    sides = _sides(findings, outcomes)
    sure = {one.fault for one in findings if not one.doubtful}
    hidden = [one.doubtful and (one.fault is None or one.fault not in sure) for one in findings]
    every = [fault for own in faults for fault in own]
    ahead: dict[str, int] = {}  # fault -> its turn: never before one that it stands behind
    for fault in sorted(every, key=lambda one: one.findings):
        own = turn_of(findings[fault.findings[0] - 1], fault.severity)
        ahead[fault.id] = max(own, *list(ahead.values())[-1:], -1)
    turns = {
        number: max(ahead[fault.id], min(turn_of(findings[number - 1], findings[number - 1].severity), 1))
        for fault in every
        for number in fault.findings
    }
    further = fixed_along(every)
    joined = {number for fault in every if len(fault.findings) > 1 for number in fault.findings}
    settled = {place for place, one in enumerate(findings) if one.settled and place + 1 not in joined}

    def turn(place: int) -> tuple[float, ...]:
        return hidden[place], sides[place] > 0, place in settled, turns[place + 1], place + 1 in further

    order = sorted(range(len(findings)), key=turn)
    number = {place + 1: new for new, place in enumerate(order, 1)}
    ids = dict.fromkeys(findings[place].fault for place in order)
    named = {old: f"F{new}" for new, old in enumerate((one for one in ids if one), 1)}
    ordered = tuple(
        replace(findings[place], fault=named.get(findings[place].fault or ""), pedantic=hidden[place])
        for place in order
    )

    def renamed(one: Fault) -> Fault:
        return replace(one, id=named[one.id], findings=tuple(sorted(number[n] for n in one.findings)))

    return ordered, [tuple(sorted(map(renamed, own), key=lambda one: one.findings)) for own in faults]


def _sides(findings: Sequence[Finding], outcomes: Sequence[Outcome]) -> list[int]:
    """Of each finding: 0 asks for something, as all of its fault do then, 1 is minor, 2 is the profiler's own."""
    recording = {outcome.rule for outcome in outcomes if outcome.group == PROFILERS_OWN}
    alone = [
        2 if one.severity is Severity.INFO and one.rule in recording else 1 if is_minor(one) else 0 for one in findings
    ]
    counted = {one.fault for one, side in zip(findings, alone, strict=True) if one.fault and not side}
    return [0 if one.fault in counted else side for one, side in zip(findings, alone, strict=True)]


def is_minor(finding: Finding) -> bool:
    """Info without anything to do: idle time that no rule owns, and what costs and saves next to nothing."""
    if finding.severity is not Severity.INFO or not finding.cost_ns:
        return False
    saved = 0.0 if finding.saving is None else abs(finding.saving.share)
    least = _UNOWNED_SHARE if kind_of(finding.rule) is Kind.REMAINDER else _MINOR_SHARE
    return finding.cost_share < least and saved < _MINOR_SHARE
