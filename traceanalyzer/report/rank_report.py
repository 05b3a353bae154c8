"""What one trace is asked for a report: its head, and what the rules say of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Self

from traceanalyzer.job.ranks import Rank
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.device_times import DeviceTime, RegionCost
from traceanalyzer.model.finding import Finding, Outcome, Severity
from traceanalyzer.model.interpreter import uncollected
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.step_times import GivenStep, StepEstimate
from traceanalyzer.replay.sample import JobStep
from traceanalyzer.replay.saving import MIN_OPEN_SHARE, Forecast
from traceanalyzer.report.costs import Cost, largest_costs
from traceanalyzer.report.finding_order import faults_in_turn
from traceanalyzer.report.job_replay import Said, recorded_step
from traceanalyzer.report.profiler_commands import with_profiler_commands
from traceanalyzer.report.step_parts import largest_regions, step_parts
from traceanalyzer.report.summary import ALL_CUT, attempt, cpu_use, scope_of, summarise
from traceanalyzer.rule.consistency import Failure
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.judging import Judgement, indexes_of, judge
from traceanalyzer.rule.registry import Rule, configured, select_rules


def as_recorded(step: StepEstimate | None, devices: Sequence[DeviceTime]) -> StepEstimate | None:
    """The estimate, whose bound is the GPU if all devices compute all the time even under the profiler.

    The profiler only makes launches later. The replay follows the busiest stream alone, so that it cannot tell.
    """
    if step is None or not step.open or not devices:
        return step
    computing = min(
        sum(ns for name, ns in one.parts_ns.items() if name.startswith("compute")) / max(one.length_ns, 1)
        for one in devices
    )
    return step if computing <= 1 - MIN_OPEN_SHARE else replace(step, bound="gpu", bounds=("gpu",))


Settings = Mapping[str, str | int | float]
Estimates = tuple[StepEstimate | None, StepEstimate | None]

_NO_ESTIMATES: Estimates = (None, None)
_NO_USE: tuple[Mapping[str, float], int] = ({}, 0)
_NO_PARTS: tuple[str, Mapping[str, float]] = ("", {})


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for: which rules, their limits, and the step's time without the profiler."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    settings: tuple[tuple[str, str | int | float], ...] = ()
    step_ms: GivenStep | None = None

    @classmethod
    def of(
        cls,
        select: Iterable[str],
        ignore: Iterable[str],
        settings: Settings | None,
        step_ms: float | str | Sequence[float] | GivenStep | None,
    ) -> Self:
        """As the arguments of `diagnose`. Raises BadOption: a step time that is not positive."""
        return cls(tuple(select), tuple(ignore), tuple((settings or {}).items()), GivenStep.of(step_ms))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Raises BadOption: an unknown rule or limit."""
        return _rules(self)


@cache
def _rules(asked: Asked) -> tuple[Rule, ...]:
    return tuple(configured(select_rules(asked.select, asked.ignore), dict(asked.settings)))


@dataclass(frozen=True, slots=True)
class Brief:
    """What of a rank's finding is compared with those of other ranks; the names are those of `Finding`.

    `number` and `fault` are its places among the rank's findings and faults; `fixable` ones are edits of the program.
    """

    rank: Rank
    number: int
    rule: str
    cause: str
    by: str | None
    severity: Severity
    cost_share: float
    cost_per_step_ns: int
    saved_share: float | None
    fixable: bool
    fault: int

    @property
    def share(self) -> float:
        """What it saves, or else costs."""
        return self.cost_share if self.saved_share is None else self.saved_share


@dataclass(frozen=True, slots=True)
class OfRank:
    """What one trace says, its findings in brief."""

    head: TraceReport
    findings: tuple[Brief, ...]
    faults: FaultOf
    outcomes: tuple[Outcome, ...]
    costs: tuple[Cost, ...]
    failures: tuple[Failure, ...] = ()


@uncollected()
def judged(analysis: Analysis, given: tuple[Rank, int | None], asked: Asked) -> OfRank:
    """The head of one trace's report, and what the rules say of it; `given` is the rank and a replayed job's step."""
    (rank, of_job_ns), unavailable = given, dict[str, str]()
    whole, index, step_ms = analysis, analysis.index, asked.step_ms
    if of_job_ns is not None:
        analysis.provide(JobStep(of_job_ns))
    analysis.build_all([Forecast, *indexes_of(asked.rules)])
    measured = recorded_step(analysis, None, step_ms)
    if measured is not None and (step_ms is not None or not measured.unused):
        step_ms = measured.given(step_ms)
    forecast = attempt(
        unavailable, "step", lambda: index(Forecast).pinned(step_ms) if step_ms else index(Forecast), None
    )
    if forecast is not None and step_ms is not None:
        analysis = analysis.with_index(forecast)
    said = judge(asked.rules, analysis, scope_of(analysis, rank), forecast)
    step_ns = None if forecast is None else forecast.step.unprofiled_ns
    said = replace(said, findings=with_profiler_commands(said.findings, analysis, step_ns))
    whole.provide(Said(said))
    head = summarise(analysis, rank)
    part = head.steps is not None and head.steps.source.endswith(ALL_CUT)
    replayed = None if part else forecast  # a part of a step has no step time
    alone = of_job_ns is None
    estimates = partial(_estimates, replayed, said if alone else None)
    step, fixed = attempt(unavailable, "step", estimates, _NO_ESTIMATES)
    after: dict[int, StepEstimate] = {}
    if alone:
        after = attempt(unavailable, "steps_after", partial(_steps_after, replayed, said), after)
    faults = replace(said.faults, steps_after=after)
    step = as_recorded(step, head.accounting)
    unavailable = {**(head.unavailable or {}), **unavailable}
    parts_of, parts = _NO_PARTS if part else attempt({}, "parts", partial(step_parts, analysis), _NO_PARTS)
    regions: tuple[RegionCost, ...] = attempt({}, "regions", partial(largest_regions, analysis), ())
    used, threads = _NO_USE if part else attempt({}, "cpu_use", partial(cpu_use, analysis), _NO_USE)
    head = replace(head, parts_of=parts_of, parts=parts, regions=regions, cpu_use=used, op_threads=threads)
    head = replace(head, step=step, together=fixed, measured=measured, unavailable=unavailable)
    costs: tuple[Cost, ...] = () if part else attempt({}, "costs", partial(largest_costs, analysis), ())
    return OfRank(head, tuple(_briefs(rank, said)), faults, said.outcomes, costs, said.failures)


def whole_findings(analysis: Analysis, chosen: Mapping[int, int], _: None) -> dict[int, Finding]:
    """Some findings whole; by their numbers, with how many of the occurrences of each."""
    said = analysis.index(Said).judged.findings
    return {
        number: replace(said[number], occurrences=said[number].occurrences[:most]) for number, most in chosen.items()
    }


def _briefs(rank: Rank, said: Judgement) -> Iterable[Brief]:
    told = zip(said.findings, said.fixes, said.faults.number, strict=True)
    for number, (one, fix, fault) in enumerate(told):
        saved = None if one.saving is None else one.saving.share
        costs = one.cost_share, one.cost_per_step_ns
        yield Brief(rank, number, one.rule, one.cause, one.by, one.severity, *costs, saved, bool(fix), fault)


def _estimates(forecast: Forecast | None, said: Judgement | None) -> Estimates:
    """The step, and the step when every fault above `info` is put right, where that is wanted."""
    if forecast is None:
        return _NO_ESTIMATES
    return forecast.step, None if said is None else forecast.fixed(said.edits_of(said.to_fix))


def _steps_after(forecast: Forecast | None, said: Judgement) -> dict[int, StepEstimate]:
    """Fault above `info` -> the step when it and those before it are put right."""
    if forecast is None:
        return {}
    in_turn = [fault for fault in faults_in_turn(said.findings, said.faults) if fault in said.to_fix]
    return {fault: forecast.fixed(said.edits_of(in_turn[:n])) for n, fault in enumerate(in_turn, 1)}
