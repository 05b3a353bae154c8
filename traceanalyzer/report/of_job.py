"""What the rules say of the ranks as what they say of the job: one finding per rule, cause and `by`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from traceanalyzer.model.finding import MAX_OCCURRENCES, Finding, Outcome, Severity
from traceanalyzer.model.saving import Saving
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.job_saving import JobForecast
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.grouping import graded
from traceanalyzer.rule.judging import Judgement

_NOTHING = 0.005  # of the job's step: saves it nothing
_WORTH = 0.03  # of the rank's own step: worth a word on why it saves the job nothing
_PACE = "Other ranks set the pace: while they do, this saves nothing of the job's step. After that: "
_WAITING = "waiting"  # cause of findings on what others do
_STANDS_OUT = 2.0  # times the median rank's cost: then it is this rank's; chosen
_MOST_REPLAYS, _LEAST_REPLAYS = 320, 5  # of ranks for findings, those that saved their rank most; 20 ms each

Said = Mapping[int, Judgement]


@dataclass(frozen=True, slots=True)
class OfJob:
    """What is said of a job, as `Judgement` has it of a trace.

    Attributes:
        findings: one per rule, cause and `by`.
        faults: parallel to them.
        edits: rank -> the edits of all faults above `info`.
    """

    findings: tuple[Finding, ...]
    faults: FaultOf
    edits: Mapping[int, tuple[Edit, ...]]


@dataclass(frozen=True, slots=True)
class _Member:
    rank: int
    finding: Finding
    fix: tuple[Edit, ...]
    fault: tuple[int, int]  # rank, number there


def of_job(said: Said, forecast: JobForecast | None) -> OfJob:
    """Join what is said of several ranks, and ask what its fixes save the job."""
    groups: dict[tuple[str, str, str | None], list[_Member]] = {}
    for rank, judged in said.items():
        for finding, fix, fault in zip(judged.findings, judged.fixes, judged.faults.number, strict=True):
            key = finding.rule, finding.cause, finding.by
            groups.setdefault(key, []).append(_Member(rank, finding, fix, (rank, fault)))
    joined = [_first(group) for group in groups.values()]
    replayed = _worth(joined, max(_MOST_REPLAYS // max(len(said), 1), _LEAST_REPLAYS))
    findings = tuple(
        _joined(first, group, forecast if id(first) in replayed else None, job=forecast is not None)
        for first, group in zip(joined, groups.values(), strict=True)
    )
    number = _numbers([first.fault for first in joined])
    faults = _faults(number, findings, list(groups.values()), said, joined, forecast)
    above = [faults.severities[own] is not Severity.INFO for own in number]
    edits: dict[int, tuple[Edit, ...]] = {}
    for group, told in zip(groups.values(), above, strict=True):
        for member in group if told else ():
            edits[member.rank] = (*edits.get(member.rank, ()), *member.fix)
    return OfJob(findings, faults, edits)


def _first(group: Sequence[_Member]) -> _Member:
    """The rank that has most of it: what is said in words is about that one."""
    return min(group, key=lambda one: (one.finding.severity.rank, -_share(one.finding), one.rank))


def _share(finding: Finding) -> float:
    return finding.cost_share if finding.saving is None else finding.saving.share


def _worth(joined: Sequence[_Member], most: int) -> set[int]:
    known = [one for one in joined if one.finding.saving is not None and one.fix]
    return {id(one) for one in sorted(known, key=lambda one: -_share(one.finding))[:most]}


def _joined(first: _Member, group: Sequence[_Member], forecast: JobForecast | None, *, job: bool) -> Finding:
    found = first.finding
    ranks = tuple(sorted({one.rank for one in group}))
    costs = dict.fromkeys(ranks, 0)
    for one in group:
        costs[one.rank] += one.finding.cost_per_step_ns
    most = max(MAX_OCCURRENCES // max(len(ranks), 1), 10)
    found = replace(
        found, ranks=ranks, cost_by_rank_ns=tuple(costs.values()), occurrences=found.occurrences[:most]
    )
    if found.saving is None:
        quiet = job and found.cause == _WAITING
        return replace(found, severity=Severity.INFO) if quiet else found
    if forecast is None:
        return found
    saving = forecast.saving(_edits(group), found.saving)
    return _regraded(found, saving)


def _edits(group: Sequence[_Member]) -> dict[int, tuple[Edit, ...]]:
    edits: dict[int, tuple[Edit, ...]] = {}
    for one in group:
        edits[one.rank] = (*edits.get(one.rank, ()), *one.fix)
    return edits


def _regraded(found: Finding, saving: Saving) -> Finding:
    alone = found.saving
    severity = Severity.INFO if found.severity is Severity.INFO else graded(found.cost_share, saving, 0.0)
    of_others = alone is not None and alone.share >= _WORTH and saving.share < _NOTHING
    advice = _PACE + found.advice if of_others and severity is Severity.INFO else found.advice
    return replace(found, saving=saving, severity=severity, advice=advice)


def _numbers(faults: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    known: dict[tuple[int, int], int] = {}
    return tuple(known.setdefault(one, len(known)) for one in faults)


def _faults(
    number: Sequence[int],
    findings: Sequence[Finding],
    groups: Sequence[Sequence[_Member]],
    said: Said,
    joined: Sequence[_Member],
    forecast: JobForecast | None,
) -> FaultOf:
    """The faults of the ranks that the findings are about, with what they save the job."""
    savings: list[Saving | None] = []
    severities = []
    for fault in range(max(number, default=-1) + 1):
        members = [at for at, own in enumerate(number) if own == fault]
        rank, own = joined[members[0]].fault
        saving = said[rank].faults.savings[own]
        severity = min((findings[at].severity for at in members), key=lambda one: one.rank)
        if len(members) == 1:
            saving = findings[members[0]].saving
        elif forecast is not None and saving is not None and severity is not Severity.INFO:
            saving = forecast.saving(_edits([one for at in members for one in groups[at]]), saving)
            severity = min(severity, graded(0.0, saving, 0.0), key=lambda one: one.rank)
        savings.append(saving)
        severities.append(severity)
    return FaultOf(tuple(number), tuple(savings), tuple(severities))


def outcomes_of(outcomes: Sequence[Sequence[Outcome]]) -> tuple[Outcome, ...]:
    """One per rule where it is the same on all ranks, with no rank; else those of each rank."""
    by_rule: dict[str, list[Outcome]] = {}
    for own in outcomes:
        for one in own:
            by_rule.setdefault(one.rule, []).append(one)
    told: list[Outcome] = []
    for group in by_rule.values():
        alike = len({(one.status, one.why) for one in group}) == 1
        told += [replace(group[0], rank=None)] if alike else group
    return tuple(told)
