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
from traceanalyzer.rule.claims import Claims, Draft, settled
from traceanalyzer.rule.faults import FaultOf, faults_of
from traceanalyzer.rule.grouping import Scope, drafts_of, finding_of
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
_MOST_REPLAYS = 100  # of fixes in one trace; recorded traces have a few dozen drafts
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
        [partial(_drafts, rule, analysis, scope, outcomes) for rule in rules], analysis.threads
    )
    drafts = [draft for of_rule in yielded for draft in of_rule]
    by_slug = {rule.slug: rule for rule in rules}
    found, fixes, kept = [], [], []
    claimed = settled(drafts, (scope.start_ns, scope.end_ns))
    replayed = _replayed(claimed)

    def made(draft: Draft, given: tuple[Edit, ...] = ()) -> Finding | Exception | None:
        with analysis.timed(FINDINGS):
            known = forecast if id(draft) in replayed else None
            return _finding(draft, scope, by_slug[draft.rule], known, given)

    general = [draft for draft in claimed if draft.order is Claims.LAUNCHES]
    specific = [draft for draft in claimed if draft.order is not Claims.LAUNCHES]
    made_of = side_by_side([partial(made, draft) for draft in specific], analysis.threads)
    given = _of_the_cpu(specific, made_of)
    made_of += side_by_side([partial(made, draft, given) for draft in general], analysis.threads)
    for draft, finding in zip(specific + general, made_of, strict=True):
        if isinstance(finding, Exception):
            outcomes[draft.rule] = _failed(outcomes[draft.rule], finding)
        elif finding is not None:
            found.append(finding)
            fixes.append(draft.hits.edits())
            kept.append(draft)
            outcomes[draft.rule] = replace(outcomes[draft.rule], status=Status.FOUND)
    for slug in {draft.rule for draft in drafts}:
        if outcomes[slug].status is Status.CLEAR:
            outcomes[slug] = replace(outcomes[slug], why=_UNSAID)
    with analysis.timed(FINDINGS):
        faults = faults_of(kept, found, forecast)
    return Judgement(tuple(found), tuple(fixes), faults, tuple(outcomes.values()))


def _of_the_cpu(drafts: Sequence[Draft], made: Sequence[Finding | Exception | None]) -> tuple[Edit, ...]:
    """The edits of what is said of the CPU above info.

    Whatever takes a step's launches off the CPU takes all else along that the CPU does between them, so that its own
    saving is what is left when that is fixed.
    """
    told = (
        draft.hits.edits()
        for draft, finding in zip(drafts, made, strict=True)
        if isinstance(finding, Finding) and finding.severity is not Severity.INFO
        if not isinstance(draft.hits.at, Work)
    )
    return tuple(chain.from_iterable(told))


def _replayed(drafts: Sequence[Draft]) -> set[int]:
    """Drafts whose fixes are replayed, by identity: those that own most time, so that hostile traces come to an end.

    No two own the same time, so what comes after a hundred owns less than a hundredth of it.
    """
    costly = sorted(drafts, key=lambda draft: -draft.cost_ns)
    return {id(draft) for draft in costly[:_MOST_REPLAYS]}


def _drafts(rule: Rule, analysis: Analysis, scope: Scope, outcomes: dict[str, Outcome]) -> list[Draft]:
    try:
        with analysis.timed(rule.slug):
            return list(
                drafts_of(rule.slug, rule.claims, rule.hits(analysis), scope if scope.asked else None)
            )
    except Unavailable as reason:
        outcomes[rule.slug] = replace(outcomes[rule.slug], status=Status.NOT_APPLICABLE, why=str(reason))
    except Exception as error:  # a rule may fail in any way; the report says how
        outcomes[rule.slug] = _failed(outcomes[rule.slug], error)
    return []


def _finding(
    draft: Draft, scope: Scope, rule: Rule, forecast: Forecast | None, given: tuple[Edit, ...]
) -> Finding | Exception | None:
    """None where it costs and saves too little to be said; what its rule fails with."""
    costs = draft.lost.owner.size > 0
    if costs and draft.cost_ns == 0 and not draft.hits.of_job:
        return None
    try:
        edits = draft.hits.edits()
        saving = forecast.saving(edits, given) if forecast is not None and edits else None
        little = draft.cost_ns < rule.min_share * scope.length_ns if costs else not draft.hits.info
        sure = saving is not None and (saving.low_share > 0 or saving.share >= _LIKELY)
        if little and not draft.hits.of_job and (saving is None or not sure or saving.share < rule.min_share):
            return None
        return finding_of(draft, scope, saving, min(draft.hits.most, _most(draft, forecast)))
    except Exception as error:
        return error


def _most(draft: Draft, forecast: Forecast | None) -> float:
    """What idle time can be worth that nobody knows how to fix: what is idle without the profiler, too.

    Under the profiler the CPU is slower, and a device that it keeps busy without seems to wait for it.
    """
    if forecast is None or not isinstance(draft.hits.at, IdleTime):
        return 1.0
    idle = forecast.idle_share
    return idle if idle >= _SURELY_IDLE else min(idle, _LITTLE)


def _failed(outcome: Outcome, error: Exception) -> Outcome:
    _log.debug("rule %s failed", outcome.rule, exc_info=error)
    return replace(outcome, status=Status.FAILED, why=f"{type(error).__name__}: {error}")
