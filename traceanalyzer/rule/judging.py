"""Rules over one trace: hits, claims, savings, findings. Whatever happens in one rule, the others go on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.threads import side_by_side
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.rule.claims import Claims, PendingFinding, settled
from traceanalyzer.rule.faults import FaultOf, faults_of
from traceanalyzer.rule.grouping import Scope, finding_of, pending_of
from traceanalyzer.rule.registry import Rule
from traceanalyzer.rule.views import IdleTime, Work

if TYPE_CHECKING:
    from traceanalyzer.replay.edits import Edit
    from traceanalyzer.replay.saving import Forecast

# Less idle time than the replayed step's error cannot be told from it; a share just below medium stands for it.
_SURELY_IDLE, _LITTLE = MIN_OPEN_SHARE, 0.029

_LIKELY = (
    0.1  # of the step, from where on severity is high: said also where its interval reaches nothing; chosen
)
_UNSAID = "what it looks for is there, but costs too little, or other findings own the time"
_MOST_REPLAYS = 100  # of fixes in one trace; recorded traces have a few dozen all_pending
FINDINGS = (
    "findings"  # what `Analysis.times` calls the making of findings, the replay of their fixes included
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of one trace.

    Attributes:
        fixes: the edits of each finding, parallel to `findings`; those that take all launches off the CPU come last.
        faults: which fault each finding belongs to.
    """

    findings: tuple[Finding, ...]
    fixes: tuple[tuple[Edit, ...], ...]
    faults: FaultOf
    outcomes: tuple[Outcome, ...]

    @property
    def to_fix(self) -> tuple[Edit, ...]:
        """The edits of all faults above `info`; of a fault that is, not those of what is a choice."""
        said = zip(self.faults.number, self.fixes, strict=True)
        return tuple(
            edit for fault, fix in said if self.faults.severities[fault] is not Severity.INFO for edit in fix
        )


def indexes_of(rules: Iterable[Rule]) -> list[type]:
    """All that the rules ask for."""
    return [need.kind for rule in rules for need in rule.needs.values()]


def judge(rules: Iterable[Rule], analysis: Analysis, scope: Scope, forecast: Forecast | None) -> Judgement:
    """Run every rule, settle who owns which time, and ask what each fix saves, where the program can be replayed."""
    rules = tuple(rules)
    outcomes = {rule.slug: Outcome(rule.slug, Status.CLEAR, None, scope.rank, rule.group) for rule in rules}
    yielded = side_by_side(
        [partial(_pending, rule, analysis, scope, outcomes) for rule in rules], analysis.threads
    )
    all_pending = [pending for of_rule in yielded for pending in of_rule]
    by_slug = {rule.slug: rule for rule in rules}
    found, fixes, kept = [], [], []
    claimed = settled(all_pending, (scope.start_ns, scope.end_ns))
    replayed = _replayed(claimed)

    def made(pending: PendingFinding, given: tuple[Edit, ...] = ()) -> Finding | Exception | None:
        with analysis.timed(FINDINGS):
            known = forecast if id(pending) in replayed else None
            return _finding(pending, scope, by_slug[pending.rule], known, given)

    general = [pending for pending in claimed if pending.order is Claims.LAUNCHES]
    specific = [pending for pending in claimed if pending.order is not Claims.LAUNCHES]
    made_of = side_by_side([partial(made, pending) for pending in specific], analysis.threads)
    given = _of_the_cpu(specific, made_of)
    made_of += side_by_side([partial(made, pending, given) for pending in general], analysis.threads)
    for pending, finding in zip(specific + general, made_of, strict=True):
        if isinstance(finding, Exception):
            outcomes[pending.rule] = _failed(outcomes[pending.rule], finding)
        elif finding is not None:
            found.append(finding)
            fixes.append(pending.hits.edits())
            kept.append(pending)
            outcomes[pending.rule] = replace(outcomes[pending.rule], status=Status.FOUND)
    for slug in {pending.rule for pending in all_pending}:
        if outcomes[slug].status is Status.CLEAR:
            outcomes[slug] = replace(outcomes[slug], why=_UNSAID)
    with analysis.timed(FINDINGS):
        faults = faults_of(kept, found, forecast)
    return Judgement(tuple(found), tuple(fixes), faults, tuple(outcomes.values()))


def _of_the_cpu(
    all_pending: Sequence[PendingFinding], made: Sequence[Finding | Exception | None]
) -> tuple[Edit, ...]:
    """The edits of what is said of the CPU above info.

    Whatever takes a step's launches off the CPU takes all else along that the CPU does between them, so that its own
    saving is what is left when that is fixed.
    """
    told = (
        pending.hits.edits()
        for pending, finding in zip(all_pending, made, strict=True)
        if isinstance(finding, Finding) and finding.severity is not Severity.INFO
        if not isinstance(pending.hits.occurrences, Work)
    )
    return tuple(chain.from_iterable(told))


def _replayed(all_pending: Sequence[PendingFinding]) -> set[int]:
    """Pending findings whose fixes are replayed, by identity: those that own most time, so that hostile traces come to an end.

    No two own the same time, so what comes after a hundred owns less than a hundredth of it.
    """
    costly = sorted(all_pending, key=lambda pending: -pending.cost_ns)
    return {id(pending) for pending in costly[:_MOST_REPLAYS]}


def _pending(
    rule: Rule, analysis: Analysis, scope: Scope, outcomes: dict[str, Outcome]
) -> list[PendingFinding]:
    try:
        with analysis.timed(rule.slug):
            return list(
                pending_of(rule.slug, rule.claims, rule.hits(analysis), scope if scope.asked else None)
            )
    except Unavailable as reason:
        outcomes[rule.slug] = replace(outcomes[rule.slug], status=Status.NOT_APPLICABLE, why=str(reason))
    except Exception as error:  # a rule may fail in any way; the report says how
        outcomes[rule.slug] = _failed(outcomes[rule.slug], error)
    return []


def _finding(
    pending: PendingFinding, scope: Scope, rule: Rule, forecast: Forecast | None, given: tuple[Edit, ...]
) -> Finding | Exception | None:
    """None where it costs and saves too little to be said; what its rule fails with."""
    costs = pending.lost.owner.size > 0
    if costs and pending.cost_ns == 0 and not pending.hits.of_job:
        return None
    try:
        edits = pending.hits.edits()
        saving = forecast.saving(edits, given) if forecast is not None and edits else None
        little = pending.cost_ns < rule.min_share * scope.length_ns if costs else not pending.hits.info
        sure = saving is not None and (saving.low_share > 0 or saving.share >= _LIKELY)
        if (
            little
            and not pending.hits.of_job
            and (saving is None or not sure or saving.share < rule.min_share)
        ):
            return None
        return finding_of(pending, scope, saving, min(pending.hits.most, _most(pending, forecast)))
    except Exception as error:
        return error


def _most(pending: PendingFinding, forecast: Forecast | None) -> float:
    """What idle time can be worth that nobody knows how to fix: what is idle without the profiler, too.

    Under the profiler the CPU is slower, and a device that it keeps busy without seems to wait for it.
    """
    if forecast is None or not isinstance(pending.hits.occurrences, IdleTime):
        return 1.0
    idle = forecast.idle_share
    return idle if idle >= _SURELY_IDLE else min(idle, _LITTLE)


def _failed(outcome: Outcome, error: Exception) -> Outcome:
    _log.debug("rule %s failed", outcome.rule, exc_info=error)
    return replace(outcome, status=Status.FAILED, why=f"{type(error).__name__}: {error}")
