"""Findings as text: what is wrong and what to do about it, and below them all where to look at one of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.text.escape import printable
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.savings import amount_words, finding_name, grade
from traceanalyzer.report.words import short_ops

SEVERITY_STYLES = {
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "blue",
    Severity.INFO: "dim",
}
_TITLES = ("times", "steps", "confidence", "example at", "long", "step", "on", "timestamp")
_BESIDE = 50  # columns of a title for the rule and the grade
# Columns that a narrow page does without, the first first: the timestamp leads there.
_SPARE = ("step", "on", "long", "steps")


def put_finding(page: Page, number: int, finding: Finding, report: Report) -> None:
    """Name and grade, what happened, what to do, what it costs."""
    (trace,) = (one for one in report.traces if one.rank == finding.rank)
    page.blank()
    title = f"{number}  {finding_name(finding, page.width - _BESIDE)}{_whose(finding, report)}"
    page.sides(title, grade(finding), style=SEVERITY_STYLES[finding.severity])
    page.put(short_ops(finding.message), indent=3)
    page.put(f"-> {finding.advice}", indent=3, hang=3)
    amounts = amount_words(finding, trace.step)
    if amounts:
        page.put(amounts, indent=3, style="dim")


def _whose(finding: Finding, report: Report) -> str:
    """The rank or device that the finding is about, where there are several."""
    if len(report.traces) > 1:
        return f" (rank {finding.rank})"
    several = any(len(trace.meta.devices) > 1 or len(trace.accounting) > 1 for trace in report.traces)
    return f" (device {finding.device})" if several and finding.device is not None else ""


def put_places(page: Page, findings: Mapping[int, Finding], traces: Sequence[TraceReport]) -> None:
    """A line per finding, by number: how often it occurs, how sure its cause is, and where a typical occurrence is."""
    origins = {trace.rank: trace.meta.origin_ns for trace in traces}
    rows = [_TITLES, *(_place(finding, origins[finding.rank]) for finding in findings.values())]
    numbers = ["#", *map(str, findings)]
    shown = [title for title in _TITLES if any(row[_TITLES.index(title)] for row in rows[1:])]
    lines = _lines(numbers, rows, shown)
    for title in _SPARE:
        if max(map(len, lines)) <= page.width:
            break
        shown = [name for name in shown if name != title]
        lines = _lines(numbers, rows, shown)
    page.blank()
    page.lines.append(page.styled(lines[0], "dim"))
    page.lines += lines[1:]


def _place(finding: Finding, origin_ns: int) -> tuple[str, ...]:
    on = "" if finding.thread is None else f"thread {finding.thread}"
    return (
        f"{finding.count:,}",
        f"{finding.steps:,}" if finding.steps else "",
        str(finding.confidence),
        f"{(finding.start_ns - origin_ns) / 1e6:.3f} ms",
        format_ns(finding.end_ns - finding.start_ns),
        "" if finding.step is None else str(finding.step),
        on if finding.stream is None else f"stream {finding.stream}",
        str(finding.start_ns),
    )


def _lines(numbers: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[str]) -> list[str]:
    """The columns side by side: numbers to the right, words to the left, the finding's number first."""
    lines = [f"{number:<{max(map(len, numbers))}}" for number in numbers]
    for title in shown:
        cells = [printable(row[_TITLES.index(title)]) for row in rows]
        side, room = "<" if title in ("confidence", "on") else ">", max(map(len, cells))
        lines = [f"{line}  {cell:{side}{room}}" for line, cell in zip(lines, cells, strict=True)]
    return [line.rstrip() for line in lines]
