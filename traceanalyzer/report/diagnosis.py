"""Traces -> indexes -> rules -> Report: the one place that knows every stage.

Not called `diagnose`: a module of that name would take the place of the function in the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from traceanalyzer.job.introduce import introduce
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption, Unavailable
from traceanalyzer.model.fault import Fault
from traceanalyzer.model.finding import Finding, Occurrence, Outcome, Status
from traceanalyzer.model.garbage import uncollected
from traceanalyzer.model.measured import GIVEN, MeasuredStep, measured_step
from traceanalyzer.model.offsets import parse_window
from traceanalyzer.model.report import AnalysedWindow, Report, StepEstimate, TraceReport
from traceanalyzer.model.trace import Trace
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.job_saving import JobForecast
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.apart import told_first
from traceanalyzer.report.by_fault import by_fault
from traceanalyzer.report.costs import Cost, largest_costs
from traceanalyzer.report.job_facts import compares_ranks, job_report
from traceanalyzer.report.job_replay import compare, job_forecast, ranks_of, sample_alike
from traceanalyzer.report.of_job import of_job, outcomes_of
from traceanalyzer.report.pace import at_pace, together_at_pace
from traceanalyzer.report.summary import attempt, scope_of, span_of, summarise
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.rule.judging import Judgement, indexes_of, judge
from traceanalyzer.rule.registry import Rule, broken_files, configured, select_rules

Traces = Trace | Mapping[int, Trace]
Offsets = tuple[int | None, int | None]
Window = Offsets | str | Finding | Occurrence | AnalysedWindow
Settings = Mapping[str, str | int | float]
Estimates = tuple[StepEstimate | None, StepEstimate | None]

_NO_ESTIMATES: Estimates = (None, None)


def diagnose(
    traces: Traces | str | Path,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Settings | None = None,
    window: Window | None = None,
    step_ms: float | None = None,
) -> Report:
    """Run rules over a trace, or over all traces of a job, and report what they found.

    Args:
        traces: what `load` returned, or the path of a file or folder to load.
        select: slugs of the rules to run; all when empty.
        ignore: slugs of rules to leave out.
        settings: limits to override, `{"scheduler-gap.min_gap_ns": 20_000}`.
        window: analyse only [start, end): as text, "2ms:8ms", or in ns, both from each trace's `Meta.origin_ns`, where
            None leaves a side open; or something with a span of the trace's clock, such as a finding.
        step_ms: how long a step takes without the profiler, where you have measured it, in ms.

    Raises:
        UnreadableTrace, NotATrace: the file cannot be read.
        BadOption: an unknown rule or limit, a window outside the trace, or a step time that is not positive.
    """
    given = _loaded(traces) if isinstance(traces, str | Path) else traces
    analysed = analyses_of(given, window)
    return report_of(analysed, select=select, ignore=ignore, settings=settings, step_ms=step_ms)


def _loaded(path: str | Path) -> Traces:
    from traceanalyzer.read.load import load, load_job

    return load_job(path) if Path(path).is_dir() else load(path)


def report_of(
    analysed: Sequence[tuple[int | None, Analysis]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Settings | None = None,
    step_ms: float | None = None,
    as_peers: Sequence[int] = (),
) -> Report:
    """As `diagnose`, of what `analyses_of` returned.

    Args:
        as_peers: ranks of a job; what its step would be if these were as the others.

    Raises:
        BadOption: an unknown rule or limit, a step time that is not positive, or a rank that is not there.
    """
    if step_ms is not None and not 0 < step_ms < math.inf:
        raise BadOption(f"step time {step_ms} ms: not a positive time")
    rules = configured(select_rules(select, ignore), settings or {})
    ranks = ranks_of(analysed)
    unavailable: dict[str, str] = {}
    forecast = attempt(unavailable, "step", partial(_together, ranks, step_ms), None) if ranks else None
    with uncollected():
        judged = [_judged(rules, one, rank, step_ms) for rank, one in analysed]
    limits = {f"{rule.slug}.{name}": value for rule in rules for name, value in rule.in_force()}
    if len(ranks) == len(analysed) > 1:
        return _of_job(judged, ranks, forecast, limits, unavailable, as_peers)
    if as_peers:
        raise BadOption("--as-peers needs the traces of several ranks that have collectives in common")
    heads = [head for head, _, _ in judged]
    outcomes = (*(outcome for _, said, _ in judged for outcome in said.outcomes), *_broken(heads))
    paced = at_pace(heads, [finding for _, said, _ in judged for finding in said.findings])
    findings, faults = by_fault(paced, [said.faults for _, said, _ in judged])
    findings, faults = told_first(findings, faults, outcomes)
    return Report(
        traces=tuple(
            _with_verdict(replace(together_at_pace(head, findings), faults=own), findings, one)
            for head, own, (_, _, one) in zip(heads, faults, judged, strict=True)
        ),
        findings=findings,
        outcomes=outcomes,
        limits=limits,
    )


def _broken(heads: Sequence[TraceReport]) -> Iterator[Outcome]:
    """Rules that have not run, since their files cannot be imported."""
    for head in heads:
        for one in broken_files():
            yield Outcome(one.slug, Status.FAILED, f"{one.file} cannot be imported: {one.error}", head.rank)


def _together(ranks: Mapping[int, Analysis], step_ms: float | None) -> JobForecast:
    """The ranks replayed together; each of them is told what it does that its peers do not.

    Raises:
        Unavailable: they cannot be replayed together.
    """
    sample_alike(ranks)
    compare(ranks)
    return job_forecast(ranks, step_ms)


def _of_job(
    judged: Sequence[tuple[TraceReport, Judgement, Analysis]],
    ranks: Mapping[int, Analysis],
    forecast: JobForecast | None,
    limits: Mapping[str, int | float],
    unavailable: dict[str, str],
    as_peers: Sequence[int],
) -> Report:
    """What was said of the ranks as what is said of the job."""
    if set(as_peers) - set(ranks):
        raise BadOption(f"rank {min(set(as_peers) - set(ranks))} is not among the traces")
    said = of_job({head.rank: own for head, own, _ in judged if head.rank is not None}, forecast)
    outcomes = outcomes_of([own.outcomes for _, own, _ in judged])
    outcomes = (*outcomes, *_broken([replace(judged[0][0], rank=None)]))
    findings, faults_of_all = by_fault(said.findings, [said.faults], compares_ranks())
    findings, (faults,) = told_first(findings, faults_of_all, outcomes)
    together = None
    if forecast is not None:
        together = forecast.fixed(said.edits)
    what_if = (
        attempt(unavailable, "as peers", partial(_as_peers, forecast, as_peers), None) if as_peers else None
    )
    heads = [_head(head, forecast, together, faults, findings) for head, _, _ in judged]
    return Report(
        traces=tuple(
            _with_verdict(head, findings, one) for head, (_, _, one) in zip(heads, judged, strict=True)
        ),
        findings=findings,
        outcomes=outcomes,
        limits=limits,
        job=replace(job_report(ranks, forecast, together, findings, unavailable), as_peers=what_if),
    )


def _as_peers(forecast: JobForecast | None, ranks: Sequence[int]) -> Mapping[str, StepEstimate]:
    if forecast is None:
        raise Unavailable("the job could not be replayed")
    return {",".join(map(str, ranks)): forecast.as_peers(ranks)}


def _head(
    head: TraceReport,
    forecast: JobForecast | None,
    together: StepEstimate | None,
    faults: Sequence[Fault],
    findings: Sequence[Finding],
) -> TraceReport:
    """A rank's, whose step is the job's; a fault stands with the rank that its first finding is about."""
    own = tuple(fault for fault in faults if findings[fault.findings[0] - 1].rank == head.rank)
    if forecast is None or head.rank is None:
        return replace(head, faults=own)
    return replace(head, faults=own, step=forecast.of_rank(head.rank), together=together)


def _with_verdict(head: TraceReport, findings: Sequence[Finding], analysis: Analysis) -> TraceReport:
    none: tuple[Cost, ...] = ()
    costs = attempt({}, "costs", partial(largest_costs, analysis), none)
    verdict = verdict_of(head, findings, costs)
    return replace(head, verdict=verdict.sentence, summary=verdict)


def _judged(
    rules: Sequence[Rule], analysis: Analysis, rank: int | None, step_ms: float | None
) -> tuple[TraceReport, Judgement, Analysis]:
    """The head of one trace's report, what the rules say of it, and the analysis that knows the user's step."""
    unavailable: dict[str, str] = {}
    analysis.build_all([Forecast, *indexes_of(rules)])
    measured = _measured(analysis, step_ms)
    if measured is not None and not measured.unused:
        step_ms = measured.ms
    forecast = attempt(unavailable, "step", lambda: _forecast(analysis, step_ms), None)
    if forecast is not None and step_ms is not None:
        analysis = analysis.knowing(forecast)
    said = judge(rules, analysis, scope_of(analysis, rank), forecast)
    step, together = attempt(unavailable, "step", lambda: _estimates(forecast, said), _NO_ESTIMATES)
    head = summarise(analysis, rank)
    unavailable = {**(head.unavailable or {}), **unavailable}
    head = replace(head, step=step, together=together, measured=measured, unavailable=unavailable)
    return head, said, analysis


def _measured(analysis: Analysis, step_ms: float | None) -> MeasuredStep | None:
    """What the recorder measured, with the reason where it is not used."""
    measured = measured_step(analysis.trace.meta.extra)
    if measured is None:
        return None
    if step_ms is not None:
        return replace(measured, unused=GIVEN)
    forecast = attempt({}, "step", lambda: analysis.index(Forecast), None)
    return replace(measured, unused=None if forecast is None else forecast.doubt(measured.ms))


def _forecast(analysis: Analysis, step_ms: float | None) -> Forecast:
    """The program's replays, pinned to the user's step time where it was given.

    Raises:
        Unavailable: the program cannot be replayed.
    """
    forecast = analysis.index(Forecast)
    return forecast if step_ms is None else forecast.pinned(step_ms)


def _estimates(forecast: Forecast | None, said: Judgement) -> tuple[StepEstimate | None, StepEstimate | None]:
    """The step, and the step when every fault above `info` is put right."""
    if forecast is None:
        return _NO_ESTIMATES
    return forecast.step, forecast.fixed(said.to_fix)


def by_rank(traces: Traces) -> list[tuple[int | None, Trace]]:
    """The traces with the rank that the report calls each by; a trace alone may have none."""
    return sorted(traces.items()) if isinstance(traces, Mapping) else [(traces.meta.rank, traces)]


def analyses_of(traces: Traces, window: Window | None = None) -> list[tuple[int | None, Analysis]]:
    """The traces as they are analysed, with the rank that the report calls each by; arguments as of `diagnose`.

    Those of a job know who of them waits for whom.
    """
    analysed = [(rank, restricted(trace, window)) for rank, trace in by_rank(traces)]
    ranks = {rank: one for rank, one in analysed if rank is not None}
    attempt({}, "job", partial(introduce, ranks), None)
    return analysed


def restricted(trace: Trace, window: Window | None) -> Analysis:
    """The analysis of [start, end) alone; `window` as of `diagnose`.

    Raises:
        BadOption: the window is empty or misses the trace, or its text is no window.
    """
    if window is None:
        return Analysis(trace)
    first, last = span_of(trace)
    begin, finish = _offsets(window, trace.meta.origin_ns)
    start = first if begin is None else trace.meta.origin_ns + begin
    end = last if finish is None else trace.meta.origin_ns + finish
    if end <= first or start >= last:
        length = format_ns(last - trace.meta.origin_ns)
        remedy = f"The last event ends {length} after the first one starts; times count from there."
        raise BadOption("the window lies outside the trace", where=trace.meta.source, remedy=remedy)
    if start >= end:
        raise BadOption("the window ends before it starts", where=trace.meta.source)
    return Analysis(trace, (max(start, first), min(end, last)))


def _offsets(window: Window, origin_ns: int) -> Offsets:
    """Both sides in ns from the origin, as plain integers."""
    if isinstance(window, str):
        return parse_window(window)
    if isinstance(window, tuple):
        start, end = (None if side is None else int(side) for side in window)
        return start, end
    return window.start_ns - origin_ns, window.end_ns - origin_ns
