"""How severe a finding is, by what it saves or costs: decided here and nowhere else."""

from collections.abc import Iterable
from typing import Any

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.peer_comparison import LATE_SHARE
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.roofline.gpus import GUESSED_RATE
from traceanalyzer.rule.hits import MEASURED_SHARE, Hits
from traceanalyzer.rule.registry import Kind, kind_of
from traceanalyzer.rule.views import IdleTime

_LATE = 0.03  # of the recorded step that others wait for it: said first; of 44 recorded jobs 0.024 at most, or 0.16 on
_WAITING = "waiting"  # cause of findings on what other ranks do


def severity_of(hits: Hits, cost_share: float, saving: Saving | None, idle_share: float | None) -> Severity:
    """Of a finding of one trace, by what fixing it saves, or by its cost where that is None.

    `idle_share` is the share of the unprofiled step in which the device idles; None where nothing can be replayed.
    """
    if hits.measured_share is not None and not hits.info:
        return Severity.of(hits.measured_share).at_most(hits.max_severity)
    worth = cost_share if saving is None else saving.share
    if hits.info or worth < hits.normal_share or lengthens_step(saving):
        return Severity.INFO
    if saving is not None:
        return graded(cost_share, saving)
    most = Severity.LOW if hits.evidence.get(GUESSED_RATE) else hits.max_severity
    return graded(cost_share, None).at_most(most).at_most(_of_idle_time(hits, idle_share))


def graded(cost_share: float, saving: Saving | None) -> Severity:
    """By what it saves, at both ends: the low end must reach the threshold of the class below.

    What cannot be told from nothing is no more than low, and info below medium. Without a saving, by what it cost.
    """
    if saving is None:
        return Severity.of(cost_share)
    severity = Severity.of(saving.share)
    if saving.low_share <= 0:
        return Severity.LOW if severity.rank <= Severity.MEDIUM.rank else Severity.INFO
    while severity.rank <= Severity.MEDIUM.rank and saving.low_share < severity.below.least_share:
        severity = severity.below
    return severity


def _of_idle_time(hits: Hits, idle_share: float | None) -> Severity:
    """The most that idle time can be worth which nobody knows how to fix: what is idle without the profiler, too.

    Less idle time than the replayed step's error cannot be told from none, and is low at most.
    """
    if idle_share is None or idle_share >= MIN_OPEN_SHARE or not isinstance(hits.occurrences, IdleTime):
        return Severity.HIGH
    return Severity.of(idle_share).at_most(Severity.LOW)


def lengthens_step(saving: Saving | None) -> bool:
    """Whether the fix makes the step longer, by more than next to nothing."""
    return saving is not None and Severity.of(-saving.share) is not Severity.INFO


def fault_severity(members: Iterable[Severity], cost_share: float, saving: Saving | None) -> Severity:
    """Of findings that one change removes: that of the worst, or of what they save together."""
    return min((*members, graded(cost_share, saving)), key=lambda severity: severity.rank)


def job_severity(finding: Finding, saving: Saving | None) -> Severity:
    """Of a finding of one rank, by what it saves the job, if known: nothing while the rank waits for others anyway."""
    if saving is not None and finding.severity is not Severity.INFO:
        most = Severity.LOW if finding.evidence.get(GUESSED_RATE) else Severity.HIGH
        return graded(finding.cost_share, saving).at_most(most)
    return Severity.INFO if saving is None and finding.cause == _WAITING else finding.severity


def blocking_severity(finding: Finding) -> Severity:
    """Low at least where others wait long for what the rank takes more: then it is why they wait."""
    late = finding.evidence.get(LATE_SHARE, 0.0) >= _LATE
    return Severity.LOW if late and finding.severity is Severity.INFO else finding.severity


_LARGE_SHARE = 1 / 3  # of the step that one op takes; chosen


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, what surely saves most first, then what nobody can tell; ties by cost, names, rank and place.

    Facts that cost nobody anything stand by the share of GPU time that they are about; an op that takes a third of the
    step or more where that third puts it. Where nothing is sure to be wrong, what the time goes to comes first.
    """
    ordered = sorted(findings, key=_place)
    if any(finding.severity is not Severity.INFO or _saves(finding) for finding in ordered):
        return tuple(ordered)
    first_kinds = (Kind.FACT, Kind.QUESTION)
    return tuple(sorted(ordered, key=lambda finding: kind_of(finding.rule) not in first_kinds))


def _saves(finding: Finding) -> bool:
    return finding.saving is not None and finding.saving.low_share > 0


def _about(finding: Finding) -> float | None:
    """Share of GPU time that a fact is about which costs nobody anything; None of other findings."""
    if finding.cost_ns or finding.saving is not None:
        return None
    if finding.evidence.get("part_share", 0.0) >= _LARGE_SHARE:
        return _LARGE_SHARE
    about = finding.evidence.get("gpu_share")
    return None if about is None else float(about)


def _place(finding: Finding) -> tuple[Any, ...]:
    device = -1 if finding.device is None else finding.device
    rank = -1 if finding.rank is None else finding.rank
    about = _about(finding)
    cost_share = finding.cost_share if about is None else about
    worth = cost_share if finding.saving is None else finding.saving.share
    names = finding.rule, finding.cause, finding.by or ""
    return (
        finding.severity.rank,
        MEASURED_SHARE not in finding.evidence,
        (finding.saving is None and about is None) or (finding.severity is Severity.LOW and not _saves(finding)),
        -worth,
        -finding.cost_ns,
        *names,
        rank,
        device,
        finding.start_ns,
    )
