"""Rules over one trace: hits, claims, savings, findings. Whatever happens in one rule, the others go on."""

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.interpreter import side_by_side
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.gpus import GUESSED_RATE
from traceanalyzer.rule.claims import PendingFinding, resolve_claims, takes_all_launches
from traceanalyzer.rule.consistency import BOUNDS, Failure, claim_of, passed
from traceanalyzer.rule.faults import FaultOf, faults_of
from traceanalyzer.rule.grouping import Scope, build_finding, group_hits
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import Rule
from traceanalyzer.rule.views import Work

_LIKELY = Severity.HIGH.least_share  # saved: said also where the interval reaches nothing; chosen
_UNSAID = "the pattern is there, but costs too little, or other findings own the time"
_MOST_REPLAYS = 100  # of fixes in one trace; recorded traces have a few dozen
FINDINGS = "findings"  # as `Analysis.times` calls the making of findings, with the replay of their fixes

_Result = Finding | BaseException | None
"""What becomes of a pending finding: None where it costs and saves too little, an error where its rule fails."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of one trace.

    Attributes:
        fixes: the edits of each finding, parallel to `findings`; those that take all launches off the CPU come last.
        faults: which fault each finding belongs to.
        failures: the checks that findings failed, and what became of these.
    """

    findings: tuple[Finding, ...]
    fixes: tuple[tuple[Edit, ...], ...]
    faults: FaultOf
    outcomes: tuple[Outcome, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def to_fix(self) -> frozenset[int]:
        """The faults above `info` that have a finding above `info`: what the report advises to fix."""
        severities = self.faults.severities
        return frozenset(
            fault
            for fault, finding in zip(self.faults.number, self.findings, strict=True)
            if finding.severity is not Severity.INFO and severities[fault] is not Severity.INFO
            if not finding.doubtful
        )

    def edits_of(self, faults: Container[int]) -> tuple[Edit, ...]:
        fixes = zip(self.faults.number, self.fixes, strict=True)
        return tuple(edit for fault, fix in fixes if fault in faults for edit in fix)


def indexes_of(rules: Iterable[Rule]) -> list[type]:
    return [need.kind for rule in rules for need in rule.needs.values()]


def judge(rules: Iterable[Rule], analysis: Analysis, scope: Scope, forecast: Forecast | None) -> Judgement:
    """Run every rule, settle who owns which time, and ask what each fix saves, where the program can be replayed."""
    ran = side_by_side([partial(_run, rule, analysis, scope) for rule in rules], analysis.threads)
    failures = [failure for run in ran for failure in run.failures]
    judge = _Judge({run.rule.slug: run.rule for run in ran}, analysis, scope, forecast, failures)
    results, errors = _without_failed([pending for run in ran for pending in run.pending], judge)
    findings = {pending: result for pending, result in results.items() if isinstance(result, Finding)}
    with analysis.timed(FINDINGS):
        faults = faults_of(tuple(findings), tuple(findings.values()), forecast)
    fixes = tuple(pending.hits.edits() for pending in findings)
    by_rule: dict[str, list[_Result]] = {run.rule.slug: [] for run in ran}
    for pending, result in results.items():
        by_rule[pending.rule].append(result)
    outcomes = tuple(_outcome(run, by_rule[run.rule.slug], errors.get(run.rule.slug)) for run in ran)
    return Judgement(tuple(findings.values()), fixes, faults, outcomes, tuple(sorted(set(failures), key=str)))


def _without_failed(
    pending: list[PendingFinding], judge: "_Judge"
) -> tuple[dict[PendingFinding, _Result], dict[str, BaseException]]:
    """(what becomes of each, the error of each rule that fails only now): a rule that fails keeps no time of others."""
    errors: dict[str, BaseException] = {}
    while True:
        scope = judge.scope
        results = _made(resolve_claims(pending, (scope.start_ns, scope.end_ns)), judge)
        failed = {each.rule: result for each, result in results.items() if isinstance(result, BaseException)}
        if not failed:
            return results, errors
        errors |= failed
        pending = [each for each in pending if each.rule not in failed]


@dataclass(frozen=True, slots=True)
class _Ran:
    """One rule, what it yielded, and what became of it as far as that tells."""

    rule: Rule
    outcome: Outcome
    pending: tuple[PendingFinding, ...] = ()
    failures: tuple[Failure, ...] = ()


def _run(rule: Rule, analysis: Analysis, scope: Scope) -> _Ran:
    outcome = Outcome(rule.slug, Status.CLEAR, None, scope.rank, rule.group)
    failures: list[Failure] = []

    def left_out(hits: Hits, error: ValueError) -> None:
        failures.append(Failure(rule.slug, hits.cause, hits.named_by, scope.rank, BOUNDS, str(error), True))

    try:
        with analysis.timed(rule.slug):
            within = scope if scope.asked else None
            pending = group_hits(rule.slug, rule.claims, rule.hits(analysis, left_out), within)
            ranked = tuple(replace(each, precedence=rule.precedence) for each in pending)
            return _Ran(rule, outcome, ranked, tuple(failures))
    except Unavailable as reason:
        return _Ran(rule, replace(outcome, status=Status.NOT_APPLICABLE, why=str(reason)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a rule may fail in any way; the report says how
        return _Ran(rule, _failed(outcome, rule, error))


def _failed(outcome: Outcome, rule: Rule, error: BaseException) -> Outcome:
    import logging

    logging.getLogger(__name__).debug("rule %s failed", outcome.rule, exc_info=error)
    return replace(outcome, status=Status.FAILED, why=f"{error_text(error)} ({place_of(error, rule.function)})")


def _outcome(ran: _Ran, results: Sequence[_Result], error: BaseException | None) -> Outcome:
    if error is not None:
        return _failed(ran.outcome, ran.rule, error)
    if any(isinstance(result, Finding) for result in results):
        return replace(ran.outcome, status=Status.FOUND)
    return replace(ran.outcome, why=_UNSAID) if results else ran.outcome


def _made(claimed: Sequence[PendingFinding], judge: "_Judge") -> dict[PendingFinding, _Result]:
    """What becomes of each: first measured delays, whose time nobody else saves, last what takes all launches away."""
    stages: tuple[list[PendingFinding], ...] = [], [], []
    for pending in claimed:
        measured = pending.hits.measured_share is not None
        stages[0 if measured else 1 + takes_all_launches(pending)].append(pending)
    delays, specific, general = stages
    replayed = _replayed(claimed)
    results = judge.results(delays, replayed)
    given = _edits(results)
    results |= judge.results(specific, replayed, given)
    # What takes a step's launches off the CPU takes all else along that the CPU does between them, so that its own
    # saving is what is left when that is fixed.
    of_cpu = {
        pending: one
        for pending, one in results.items()
        if pending.hits.measured_share is None and not isinstance(pending.hits.occurrences, Work)
    }
    return results | judge.results(general, replayed, (*given, *_edits(of_cpu)))


def _replayed(claimed: Sequence[PendingFinding]) -> set[PendingFinding]:
    """Those that own most time: all fixes are too many to replay in hostile traces."""
    return set(sorted(claimed, key=lambda pending: -pending.cost_ns)[:_MOST_REPLAYS])


def _edits(results: Mapping[PendingFinding, _Result]) -> tuple[Edit, ...]:
    """The edits of what is said above info."""
    fixed = (
        pending.hits.edits()
        for pending, result in results.items()
        if isinstance(result, Finding) and result.severity is not Severity.INFO
    )
    return tuple(chain.from_iterable(fixed))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Makes findings of what is pending in one trace."""

    rules: Mapping[str, Rule]
    analysis: Analysis
    scope: Scope
    forecast: Forecast | None
    failures: list[Failure]

    def results(
        self, every: Sequence[PendingFinding], replayed: Set[PendingFinding], given: tuple[Edit, ...] = ()
    ) -> dict[PendingFinding, _Result]:
        """What becomes of each, as if the edits `given` were made already."""
        forecasts = (self.forecast if pending in replayed else None for pending in every)
        calls = [partial(self._result, *pair, given) for pair in zip(every, forecasts, strict=True)]
        return dict(zip(every, side_by_side(calls, self.analysis.threads), strict=True))

    def _result(self, pending: PendingFinding, forecast: Forecast | None, given: tuple[Edit, ...]) -> _Result:
        if pending.lost.owner.size and not pending.cost_ns and not pending.hits.of_job:
            return None
        try:
            with self.analysis.timed(FINDINGS):
                edits = pending.hits.edits()
                saving = forecast.saving(edits, given) if forecast is not None and edits else None
                saving = saving.unsure() if saving and pending.hits.evidence.get(GUESSED_RATE) else saving
                if not self._is_said(pending, saving):
                    return None
                idle_share = None if forecast is None else forecast.idle_share
                finding = build_finding(pending, self.scope, saving, idle_share)
                checked, failures = passed(claim_of(finding, pending.hits, self.analysis, self.forecast))
                self.failures.extend(failures)
                return checked
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of the rule's edits or message
            return error

    def _is_said(self, pending: PendingFinding, saving: Saving | None) -> bool:
        """Whether it costs enough, or surely saves enough; what loses nothing where it is worth knowing."""
        hits, least = pending.hits, self.rules[pending.rule].min_share
        enough = pending.cost_ns >= least * self.scope.length_ns if pending.lost.owner.size else hits.info
        sure = saving is not None and (saving.low_share > 0 or saving.share >= _LIKELY)
        if hits.measured_share is not None:
            return hits.measured_share >= least
        return enough or hits.of_job or (saving is not None and sure and saving.share >= least)


def error_text(error: BaseException) -> str:
    """`ValueError: the message`, with a remedy for writes to read-only arrays."""
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be made"
    if isinstance(error, ValueError) and "read-only" in text:
        text = f"what views, indexes and a yielded finding have is shared, so copy it first ({text})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException, function: Callable[..., Any]) -> str:
    """`host/my_rule.py, line 31`: where in the rule's file an error was raised; where it came later, its first line."""
    import traceback

    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return str(getattr(function, "__name__", type(function).__name__))
    name = "/".join(Path(code.co_filename).parts[-2:])
    line = code.co_firstlineno
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == code.co_filename:
            line = number
    return f"{name}, line {line}"
