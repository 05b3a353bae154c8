"""Traces -> indexes -> rules -> Report: the one place that knows every stage.

Not called `diagnose`: a module of that name would take the place of the package's function, which is this and `load`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Here, JobView, Rank, Ranks
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption, Unavailable
from traceanalyzer.model.finding import MAX_OCCURRENCES, Finding, Occurrence, Outcome, Severity, Status
from traceanalyzer.model.report import AnalysedWindow, Fault, Report, TraceReport
from traceanalyzer.model.step_times import GivenStep, StepEstimate
from traceanalyzer.model.trace import Trace
from traceanalyzer.model.units import format_ns, parse_window
from traceanalyzer.replay.job_saving import JobForecast
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.finding_order import by_fault, triaged
from traceanalyzer.report.iterations import iterations_of
from traceanalyzer.report.job_findings import of_job, outcomes_of
from traceanalyzer.report.job_replay import replayed_together, too_short
from traceanalyzer.report.job_summary import job_report
from traceanalyzer.report.rank_report import Asked, OfRank, Settings, judged, whole_findings
from traceanalyzer.report.summary import attempt, span_of
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.rule.registry import broken_files

Traces = Trace | Mapping[int, Trace]
Offsets = tuple[int | None, int | None]
StepTime = float | str | Sequence[float] | GivenStep | None
Window = Offsets | str | Finding | Occurrence | AnalysedWindow


def with_iterations(report: Report, ranks: Ranks) -> Report:
    """The report, with what the other iterations of the job say."""
    sources = [trace.meta.source for trace in report.traces]
    return replace(report, iterations=iterations_of(ranks, sources)) if ranks.iterations else report


def report_of(
    analysed: Sequence[tuple[int | None, Analysis]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Settings | None = None,
    step_ms: StepTime = None,
) -> Report:
    """As `diagnose`, of what `analyses_of` returned.

    Raises BadOption: an unknown rule or limit, or a step time that no step can take.
    """
    analyses = dict(analysed)
    return report_of_ranks(Here(analyses), view_of(analyses), Asked.of(select, ignore, settings, step_ms))


def view_of(analyses: Mapping[Rank, Analysis]) -> JobView | None:
    """What all ranks of a job have in common; None of one of them, and of traces that have nothing in common."""
    views = (attempt({}, "job", partial(one.index, JobView), None) for one in analyses.values())
    return next((one for one in views if one is not None and one.waits.keys() <= analyses.keys()), None)


def report_of_ranks(ranks: Ranks, view: JobView | None, asked: Asked, as_peers: Sequence[int] = ()) -> Report:
    """As `report_of`, wherever the traces are; `view` is what `introduce` returned.

    `as_peers` are ranks of a job: what its step would be if these were as the others.
    """
    if asked.step_ms is not None:
        refused = ranks.each(too_short, dict.fromkeys(ranks.all), asked.step_ms).values()
        for reason in filter(None, refused):
            remedy = "Give the time of one whole step of this run, in ms."
            raise BadOption(f"step time {asked.step_ms.text} ms: {reason}", remedy=remedy)
    limits = {f"{rule.slug}.{name}": value for rule in asked.rules for name, value in rule.in_force()}
    unavailable: dict[str, str] = {}
    forecast = None
    if view is not None:
        together = partial(replayed_together, ranks, view, asked.step_ms, as_peers)
        forecast = attempt(unavailable, "step", together, None)
    replayed = {} if forecast is None else forecast.forecasts
    job_ns = None if forecast is None else forecast.step.unprofiled_ns
    asks = {rank: (rank, job_ns if rank in replayed else None) for rank in ranks.all}
    said = list(ranks.each(judged, asks, asked).values())
    if view is not None:
        return _of_job(ranks, said, view, forecast, limits, unavailable, as_peers)
    if as_peers:
        raise BadOption("--as-peers needs the traces of several ranks that have collectives in common")
    return _of_each(ranks, said, limits)


def _of_each(ranks: Ranks, said: Sequence[OfRank], limits: Mapping[str, int | float]) -> Report:
    """What is said of traces that have nothing in common, or of one alone."""
    heads = [one.head for one in said]
    outcomes = (*(outcome for one in said for outcome in one.outcomes), *_broken(heads))
    every = {one.head.rank: dict.fromkeys(range(len(one.findings)), MAX_OCCURRENCES) for one in said}
    whole = ranks.each(whole_findings, every)
    every_finding = [finding for one in said for finding in whole[one.head.rank].values()]
    findings, faults = by_fault(every_finding, [one.faults for one in said])
    findings, faults = triaged(findings, faults, outcomes)
    traces = []
    for own, one in zip(faults, said, strict=True):
        head = left_together(one.head, findings)
        head = replace(head, faults=own, together=agreeing(head.together, head.step, own, findings))
        traces.append(_with_verdict(head, findings, one.costs))
    return Report(
        traces=tuple(traces),
        findings=findings,
        outcomes=outcomes,
        limits=limits,
        failures=tuple(str(failure) for one in said for failure in one.failures),
    )


def left_together(head: TraceReport, findings: Sequence[Finding]) -> TraceReport:
    """The head without what its fixes give together, where none of them is above `info`."""
    left = any(
        found.saving is not None and found.severity is not Severity.INFO and not found.pedantic
        for found in findings
        if found.rank == head.rank
    )
    return head if left or head.together is None else replace(head, together=head.step)


def agreeing(
    together: StepEstimate | None, step: StepEstimate | None, faults: Sequence[Fault], findings: Sequence[Finding]
) -> StepEstimate | None:
    """The step with all fixes, which saves no less than the largest of them; with one fix exactly as much."""
    printed = {n for n, one in enumerate(findings, 1) if not one.pedantic}
    above = (one for one in faults if one.severity is not Severity.INFO and printed.intersection(one.findings))
    savings = [one.saving for one in above if one.saving is not None]
    if together is None or step is None or not savings:
        return together
    most = max(savings, key=lambda one: one.step_ns)
    if len(savings) > 1 and together.unprofiled_ns <= step.unprofiled_ns - most.step_ns:
        return together
    whole_ns = step.unprofiled_ns
    left = whole_ns - most.step_ns, whole_ns - most.high_ns, whole_ns - most.low_ns
    return replace(together, unprofiled_ns=left[0], low_ns=left[1], high_ns=left[2])


def _broken(heads: Sequence[TraceReport]) -> Iterator[Outcome]:
    """Rules that have not run, since their files are left out."""
    for head in heads:
        for one in broken_files():
            yield Outcome(one.slug, Status.FAILED, f"{one.file} is left out: {one.error}", head.rank)


def _of_job(
    ranks: Ranks,
    said: Sequence[OfRank],
    view: JobView,
    forecast: JobForecast | None,
    limits: Mapping[str, int | float],
    unavailable: dict[str, str],
    as_peers: Sequence[int],
) -> Report:
    """What was said of the ranks as what is said of the job."""
    if set(as_peers) - set(view.waits):
        raise BadOption(f"rank {min(set(as_peers) - set(view.waits))} is not among the traces")
    job = of_job(ranks, said, forecast)
    outcomes = outcomes_of([one.outcomes for one in said])
    outcomes = (*outcomes, *_broken([replace(said[0].head, rank=None)]))
    findings, faults_of_all = by_fault(job.findings, [job.faults])
    findings, (faults,) = triaged(findings, faults_of_all, outcomes)
    together = None if forecast is None else forecast.fixed(job.fixes)
    together = None if forecast is None else agreeing(together, forecast.step, faults, findings)
    peers = partial(_as_peers, forecast, as_peers)
    what_if = attempt(unavailable, "as peers", peers, None) if as_peers else None
    report = job_report(ranks, said, view, forecast, together, findings, unavailable)
    return Report(
        traces=tuple(
            _with_verdict(_head(one.head, forecast, together, faults, findings), findings, one.costs) for one in said
        ),
        findings=findings,
        outcomes=outcomes,
        limits=limits,
        job=replace(report, as_peers=what_if),
        failures=tuple(map(str, (*(failure for one in said for failure in one.failures), *job.failures))),
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
    if forecast is None or head.rank is None or head.rank not in forecast.forecasts:
        return replace(head, faults=own)
    return replace(head, faults=own, step=forecast.of_rank(head.rank), together=together)


def _with_verdict(head: TraceReport, findings: Sequence[Finding], costs: Sequence[Cost]) -> TraceReport:
    verdict = verdict_of(head, findings, costs)
    return replace(head, verdict=verdict.sentence, summary=verdict)


def by_rank(traces: Traces) -> list[tuple[int | None, Trace]]:
    """The traces with the rank that the report calls each by; a trace alone may have none."""
    return sorted(traces.items()) if isinstance(traces, Mapping) else [(traces.meta.rank, traces)]


def analyses_of(traces: Traces, window: Window | None = None) -> list[tuple[int | None, Analysis]]:
    """The traces as they are analysed, with the rank that the report calls each by; arguments as of `diagnose`.

    Those of a job know who of them waits for whom.
    """
    analysed = [(rank, restricted(trace, window)) for rank, trace in by_rank(traces)]
    view = attempt({}, "job", partial(introduce, Here(dict(analysed))), None)
    for rank, one in analysed:
        if view is not None and rank in view.waits:
            one.provide(view)
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
        remedy = f"The last event ends {length} after the first one starts; times count from that start."
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
