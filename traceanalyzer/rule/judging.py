"""Rules over one trace: hits, claims, savings, findings. Whatever happens in one rule, the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Finding, Outcome, Saving, Status
from traceanalyzer.rule.claims import Draft, settled
from traceanalyzer.rule.grouping import Scope, drafts_of, finding_of
from traceanalyzer.rule.registry import Rule

if TYPE_CHECKING:
    from traceanalyzer.replay.edits import Edit

_log = logging.getLogger(__name__)

Savings = Callable[[Sequence["Edit"]], Saving | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of one trace.

    Attributes:
        fixes: the edits of each finding, parallel to `findings`.
    """

    findings: tuple[Finding, ...]
    fixes: tuple[tuple[Edit, ...], ...]
    outcomes: tuple[Outcome, ...]


def judge(rules: Iterable[Rule], analysis: Analysis, scope: Scope, saving_of: Savings) -> Judgement:
    """Run every rule, settle who owns which time, and ask what each fix saves."""
    rules = tuple(rules)
    outcomes = {rule.slug: Outcome(rule.slug, Status.CLEAR, None, scope.rank) for rule in rules}
    drafts = [draft for rule in rules for draft in _drafts(rule, analysis, scope, outcomes)]
    least = {rule.slug: rule.min_share for rule in rules}
    found, fixes = [], []
    for draft in settled(drafts, (scope.start_ns, scope.end_ns)):
        finding = _finding(draft, scope, least[draft.rule], saving_of, outcomes)
        if finding is not None:
            found.append(finding)
            fixes.append(draft.hits.edits())
            outcomes[draft.rule] = Outcome(draft.rule, Status.FOUND, None, scope.rank)
    return Judgement(tuple(found), tuple(fixes), tuple(outcomes.values()))


def _drafts(rule: Rule, analysis: Analysis, scope: Scope, outcomes: dict[str, Outcome]) -> list[Draft]:
    try:
        return list(drafts_of(rule.slug, rule.claims, rule.hits(analysis)))
    except Unavailable as reason:
        outcomes[rule.slug] = Outcome(rule.slug, Status.NOT_APPLICABLE, str(reason), scope.rank)
    except Exception as error:  # a rule may fail in any way; the report says how
        outcomes[rule.slug] = _failed(rule.slug, error, scope)
    return []


def _finding(
    draft: Draft, scope: Scope, min_share: float, saving_of: Savings, outcomes: dict[str, Outcome]
) -> Finding | None:
    """None where it costs and saves too little to be said, or its rule fails."""
    try:
        least_ns = min_share * scope.length_ns
        if draft.lost.owner.size and draft.cost_ns < max(least_ns, 1):
            return None
        saving = saving_of(draft.hits.edits()) if draft.hits.edits() else None
        if not draft.lost.owner.size and not draft.hits.info and (saving is None or saving.share < min_share):
            return None
        return finding_of(draft, scope, saving)
    except Exception as error:
        outcomes[draft.rule] = _failed(draft.rule, error, scope)
        return None


def _failed(slug: str, error: Exception, scope: Scope) -> Outcome:
    _log.debug("rule %s failed", slug, exc_info=error)
    return Outcome(slug, Status.FAILED, f"{type(error).__name__}: {error}", scope.rank)
