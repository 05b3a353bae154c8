"""Report -> text for people: verdict and findings first, then where the time went, the trace, and the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.escape import printable, shortened
from traceanalyzer.render.text.finding import put_finding, put_places
from traceanalyzer.render.text.footer import footer
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.trace import put_trace
from traceanalyzer.report.apart import apart
from traceanalyzer.report.slowest import rank_of, slowest_of, unprofiled_ns
from traceanalyzer.version import __version__

_VERDICTS = 3  # of ranks that stand before the findings: more would push these off the first screen


def render_text(
    report: Report, *, width: int = 80, colour: bool = False, ascii_only: bool = False, quiet: bool = False
) -> str:
    """The report as text; `quiet` keeps the findings alone."""
    page = Page(width, colour, ascii_only)
    parts = apart(report)
    findings = parts.others
    if not quiet:
        _title(page, report.traces, findings.values())
        _verdicts(page, report.traces)
    for number, finding in findings.items():
        put_finding(page, number, finding, report)
    if findings:
        put_places(page, findings, report.traces)
    if not quiet:
        _time(page, report.traces)
        footer(page, report, parts.profilers_own, parts.minor)
    return page.text() if page.lines else ""


def _title(page: Page, traces: Sequence[TraceReport], findings: Collection[Finding]) -> None:
    counts = Counter(finding.severity for finding in findings)
    named = [f"{counts[severity]} {severity}" for severity in Severity if counts[severity]]
    right = ", ".join(named) or "no findings"
    left = f"traceanalyzer {__version__}  "
    what = Path(traces[0].meta.source).name if len(traces) == 1 else f"{len(traces)} ranks"
    page.sides(left + shortened(printable(what), page.width - len(left) - len(right) - 2), right)


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
    if trace.verdict:
        page.blank()
        page.put(f"{rank}{trace.verdict}", style="bold")


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
