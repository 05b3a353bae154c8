"""Report -> text for people: one screen, or with `--verbose` verdict, findings, time, trace, and every rule."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.finding import put_finding, put_places
from traceanalyzer.render.text.footer import footer
from traceanalyzer.render.text.job import put_iterations, put_job, put_ranks, slowdown_lines
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.screen import put_screen, put_title, put_verdict
from traceanalyzer.render.text.trace import put_trace
from traceanalyzer.report.finding_order import triage
from traceanalyzer.report.job_summary import rank_of, slowest_of, unprofiled_ns

_VERDICTS = 3  # of ranks that stand before the findings: more would push these off the first screen


def render_text(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> str:
    """The report as text: one screen, or with `verbose` all that is known; `quiet` keeps the findings alone."""
    page = Page(width, colour, ascii_only)
    if verbose:
        _all(page, report, quiet=quiet)
    else:
        put_screen(page, report, quiet=quiet)
    return page.text() if page.lines else ""


def _all(page: Page, report: Report, *, quiet: bool) -> None:
    parts = triage(report)
    findings = parts.others
    if not quiet:
        put_title(page, report, findings.values())
        if report.job is not None:
            put_job(page, report.job)
            put_ranks(page, report.job)
            page.lines += slowdown_lines(report.job.slowdown) if report.job.slowdown else ()
        else:
            _verdicts(page, report.traces)
        if report.iterations is not None:
            put_iterations(page, report.iterations)
    for number, finding in findings.items():
        put_finding(page, number, finding, report)
    if findings:
        put_places(page, findings, report.traces)
    if not quiet:
        _time(page, report.traces)
        footer(page, report, parts)


def _verdicts(page: Page, traces: Sequence[TraceReport]) -> None:
    """Each rank's, or of one job and of many ranks the slowest's: the others' stand with their time."""
    slowest = _speaking(traces)
    if slowest is not None:
        _verdict(page, slowest, f"rank {slowest.rank}{', the slowest' * (slowest.step is not None)}: ")
        return
    for trace in traces:
        _verdict(page, trace, f"rank {trace.rank}: " if len(traces) > 1 else "")


def _speaking(traces: Sequence[TraceReport]) -> TraceReport | None:
    """The rank whose verdict stands for all, if one does."""
    return slowest_of(traces) or (max(traces, key=unprofiled_ns) if len(traces) > _VERDICTS else None)


def _verdict(page: Page, trace: TraceReport, rank: str) -> None:
    if trace.summary.lines:
        page.blank()
    if trace.summary.lines and rank:
        page.put(rank.removesuffix(" "), style="bold")
    put_verdict(page, trace)


def _time(page: Page, traces: Sequence[TraceReport]) -> None:
    """Where the time of each device went, and what is known of each trace."""
    several, spoken = len(traces) > 1, _speaking(traces)
    for trace in traces:
        if spoken is not None and trace is not spoken:
            _verdict(page, trace, f"{rank_of(trace, slowest_of(traces))}: ")
        for time in trace.accounting:
            device_bar(page, time, rank=trace.rank if several else None)
    for trace in traces:
        put_trace(page, trace, several=several)
