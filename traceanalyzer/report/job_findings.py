"""What the rules say of the ranks as what they say of the job: one finding per rule, cause and `by`."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from traceanalyzer.job.ranks import Rank, Ranks
from traceanalyzer.model.finding import MAX_OCCURRENCES, Finding, Outcome, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.job_saving import MOST_TOGETHER, Fixes, JobForecast
from traceanalyzer.report.finding_order import compares_ranks, generality, saved_share, turn_of
from traceanalyzer.report.rank_report import Brief, OfRank, whole_findings
from traceanalyzer.rule.consistency import NOT_WORTH_IT, Claim, Failure, most_rates, passed
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.grouping import without_warning
from traceanalyzer.rule.registry import Kind, kind_of
from traceanalyzer.rule.severity import blocking_severity, fault_severity, job_severity

_PACE = "Other ranks are slower: until they are fixed, this saves the job nothing. After that: "
# Of what balanced ranks save: a finding of the late rank that saves less is another; chosen.
_EXPLAINS = 1 / 3
_MOST_REPLAYS, _LEAST_REPLAYS = 320, 5  # of ranks for findings, those that saved most; 1 to 5 ms each

Group = Sequence[Brief]


@dataclass(frozen=True, slots=True)
class OfJob:
    """What is said of a job, as `Judgement` has it of a trace: one finding per rule, cause and `by`.

    `fixes` are, by rank, the numbers there of the findings of all faults above `info`.
    """

    findings: tuple[Finding, ...]
    faults: FaultOf
    fixes: Fixes
    failures: tuple[Failure, ...] = ()


def of_job(ranks: Ranks, said: Sequence[OfRank], forecast: JobForecast | None) -> OfJob:
    """Join what is said of several ranks, and ask what its fixes save the job."""
    by_key: dict[tuple[str, str, str | None], list[Brief]] = {}
    for own in said:
        for brief in own.findings:
            # A fact is one for all ranks, whatever limits it there.
            cause = "" if kind_of(brief.rule) is Kind.FACT else brief.cause
            by_key.setdefault((brief.rule, cause, brief.by), []).append(brief)
    groups = list(by_key.values())
    joined = [min(group, key=lambda one: (one.severity.rank, -one.share, one.rank)) for group in groups]
    whole = _whole(ranks, joined, groups)
    replayed = _worth(joined, max(_MOST_REPLAYS // max(min(len(said), MOST_TOGETHER), 1), _LEAST_REPLAYS))
    findings = [
        _joined(found, group, forecast if id(first) in replayed else None, job=forecast is not None)
        for found, first, group in zip(whole, joined, groups, strict=True)
    ]
    findings = [replace(found, severity=blocking_severity(found)) for found in findings]
    findings, kept, failures = _checked(findings, said)
    groups, joined = [groups[at] for at in kept], [joined[at] for at in kept]
    number = _explained(numbered((first.rank, first.fault) for first in joined), findings)
    faults = _faults(number, findings, groups, {own.head.rank: own.faults for own in said}, joined, forecast)
    severities = zip((faults.severities[own] for own in number), findings, strict=True)
    above = [severity is not Severity.INFO and not one.doubtful for severity, one in severities]
    told = [brief for group, said_of in zip(groups, above, strict=True) if said_of for brief in group]
    return OfJob(tuple(findings), faults, _fixes(told), failures)


def _checked(
    findings: Sequence[Finding], said: Sequence[OfRank]
) -> tuple[list[Finding], list[int], tuple[Failure, ...]]:
    """(the findings that may be printed, their positions, the checks that findings failed)."""
    heads = {own.head.rank: own.head.meta for own in said}
    rates = most_rates(device.name for meta in heads.values() for device in meta.devices)
    claims = [Claim(one, dialect=heads[one.rank].dialect, peaks=rates) for one in findings]
    results = [passed(claim) for claim in claims]
    failures = tuple(failure for _, failed in results for failure in failed)
    kept = {at: one for at, (one, _) in enumerate(results) if one is not None}
    return list(kept.values()), list(kept), failures


def _whole(ranks: Ranks, joined: Group, groups: Sequence[Group]) -> list[Finding]:
    """The finding that each group is said by, with as many occurrences as a job's report has room for."""
    chosen: dict[Rank, dict[int, int]] = {}
    for first, group in zip(joined, groups, strict=True):
        most = max(MAX_OCCURRENCES // max(len({one.rank for one in group}), 1), 10)
        chosen.setdefault(first.rank, {})[first.number] = most
    known = ranks.each(whole_findings, chosen)
    return [known[first.rank][first.number] for first in joined]


def _worth(joined: Group, most: int) -> set[int]:
    known = [one for one in joined if one.saved_share is not None and one.fixable]
    return {id(one) for one in sorted(known, key=lambda one: -one.share)[:most]}


def _joined(found: Finding, group: Group, forecast: JobForecast | None, *, job: bool) -> Finding:
    costs = Counter[int]()
    for one in group:
        if one.rank is not None:
            costs[one.rank] += one.cost_per_step_ns
    ranks = sorted(costs)
    found = replace(found, ranks=tuple(ranks), cost_by_rank_ns=tuple(costs[rank] for rank in ranks))
    if found.rank is not None:
        uneven = f"on rank {found.rank}, " * (len(set(costs.values())) > 1)
        title = found.title.replace("This rank", f"Rank {found.rank}")
        title = title.replace("this rank", f"rank {found.rank}")
        found = replace(found, message=f"{uneven}{found.message}", title=title)
    # Each rank waits for its own batches: the replayed job would let the others wait as before.
    waits = found.cause == "late-batches"
    if found.saving is not None and forecast is not None and not waits:
        return _regraded(found, forecast.saving(_fixes(group), found.saving))
    return replace(found, severity=job_severity(found, None)) if job and found.saving is None else found


def _fixes(group: Iterable[Brief]) -> Fixes:
    fixes: dict[int, tuple[int, ...]] = {}
    for one in group:
        if one.rank is not None:
            fixes[one.rank] = (*fixes.get(one.rank, ()), one.number)
    return fixes


def _regraded(found: Finding, saving: Saving) -> Finding:
    if found.advice.startswith(NOT_WORTH_IT) and saving.share > 0:
        found = replace(found, advice=without_warning(found.advice), severity=Severity.of(saving.share))
    severity, alone = job_severity(found, saving), found.saving
    worth = alone is not None and Severity.of(alone.share).at_most(Severity.MEDIUM) is Severity.MEDIUM
    paced = worth and severity is Severity.INFO is Severity.of(saving.share)
    return replace(found, saving=saving, severity=severity, advice=_PACE * paced + found.advice)


def numbered(values: Iterable[Hashable]) -> tuple[int, ...]:
    """Of each value its number among the distinct ones, in order of appearance."""
    known: dict[Hashable, int] = {}
    return tuple(known.setdefault(one, len(known)) for one in values)


def _explained(number: Sequence[int], findings: Sequence[Finding]) -> tuple[int, ...]:
    """The faults, where what one rank alone does explains why it is late: these are one fault."""
    merged = list(number)
    comparing = compares_ranks()
    fixable = [at for at, one in enumerate(findings) if one.severity is not Severity.INFO and one.saving]
    late = [at for at in fixable if findings[at].rule in comparing]
    for at in late:
        reasons = [
            other
            for other in set(fixable).difference(late)
            if findings[other].ranks == (findings[at].rank,) and kind_of(findings[other].rule) is Kind.FAULT
            if saved_share(findings[other]) >= _EXPLAINS * saved_share(findings[at])
        ]
        specific = [
            other
            for other in reasons
            if not generality(findings[other]) and not turn_of(findings[other], Severity.HIGH)
        ]
        for other in specific or (reasons if generality(findings[at]) else ()):
            merged = [merged[at] if fault == merged[other] else fault for fault in merged]
    return numbered(merged)


def _faults(
    number: Sequence[int],
    findings: Sequence[Finding],
    groups: Sequence[Group],
    said: Mapping[Rank, FaultOf],
    joined: Group,
    forecast: JobForecast | None,
) -> FaultOf:
    """The faults of the ranks that the findings are about, with what they save the job."""
    savings: list[Saving | None] = []
    severities = []
    for fault in range(max(number, default=-1) + 1):
        members = [at for at, own in enumerate(number) if own == fault]
        first = joined[members[0]]
        saving = said[first.rank].savings[first.fault]
        severity = min((findings[at].severity for at in members), key=lambda one: one.rank)
        if len(members) == 1:
            saving = findings[members[0]].saving
        elif forecast is not None and saving is not None and severity is not Severity.INFO:
            saving = forecast.saving(_fixes(one for at in members for one in groups[at]), saving)
            severity = fault_severity([severity], 0.0, saving)
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
