"""Report -> text for people: verdict, header, one bar per device, findings, footer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.offsets import format_offset
from traceanalyzer.model.report import Report, StepsSummary, StepTimes, TraceReport
from traceanalyzer.model.trace import Device
from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.escape import JOINED
from traceanalyzer.render.text.footer import footer
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.savings import cost_words, count_words, finding_name, grade, saving_words
from traceanalyzer.version import __version__

PROFILERS_OWN = "recording"  # group of the rules that find what the profiler itself did
NOBODYS = "scheduler-gap"  # the rule that has what no other rule owns
_MINOR_SHARE = 0.01  # of the window and of the step
_UNOWNED_SHARE = 0.1  # of the window; more idle time than this wants to be seen, whoever's it is
_COLOURS = {Severity.HIGH: "red", Severity.MEDIUM: "yellow", Severity.LOW: "blue", Severity.INFO: "dim"}


def render_text(
    report: Report, *, width: int = 80, colour: bool = False, ascii_only: bool = False, quiet: bool = False
) -> str:
    """The report as text; `quiet` keeps the findings alone."""
    page = Page(width, colour, ascii_only)
    own, minor, findings = _apart(report)
    several = len(report.traces) > 1
    if not quiet:
        page.sides(f"traceanalyzer {__version__}", _counts(findings))
        _verdicts(page, report.traces)
        for trace in report.traces:
            _header(page, trace, several=several)
        for trace in report.traces:
            for time in trace.accounting:
                device_bar(page, time, rank=trace.rank if several else None)
    by_rank = {trace.rank: trace for trace in report.traces}
    for number, finding in enumerate(findings, 1):
        _finding(page, number, finding, by_rank[finding.rank], _places(report))
    if not quiet:
        footer(page, report, own, minor)
    return page.text() if page.lines else ""


def _apart(report: Report) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """(what the profiler itself did and nobody can change, what is too little to act on, all other findings)."""
    recording = {outcome.rule for outcome in report.outcomes if outcome.group == PROFILERS_OWN}
    parts: tuple[list[Finding], list[Finding], list[Finding]] = [], [], []
    for finding in report.findings:
        its_own = finding.severity is Severity.INFO and finding.rule in recording
        parts[0 if its_own else 1 if _is_minor(finding) else 2].append(finding)
    return parts


def _is_minor(finding: Finding) -> bool:
    """Info without anything to do: idle time that no rule owns, and what costs and saves next to nothing."""
    if finding.severity is not Severity.INFO or not finding.cost_ns:
        return False
    saved = 0.0 if finding.saving is None else abs(finding.saving.share)
    least = _UNOWNED_SHARE if finding.rule == NOBODYS else _MINOR_SHARE
    return finding.cost_share < least and saved < _MINOR_SHARE


def _counts(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    named = [f"{counts[severity]} {severity}" for severity in Severity if counts[severity]]
    return ", ".join(named) or "no findings"


def _verdicts(page: Page, traces: Sequence[TraceReport]) -> None:
    for trace in traces:
        if trace.verdict:
            page.blank()
            rank = f"rank {trace.rank}: " if len(traces) > 1 else ""
            page.put(f"{rank}{trace.verdict}", style="bold")


def _header(page: Page, trace: TraceReport, *, several: bool) -> None:
    page.blank()
    meta, unavailable = trace.meta, trace.unavailable or {}
    rank = f"rank {trace.rank}: " if several or meta.rank is not None else ""
    page.pair("trace", f"{rank}{meta.source}")
    busy = {entry.device: entry.share for entry in trace.busy}
    known = {device.ordinal: device for device in meta.devices}
    for ordinal in sorted({*known, *busy}):
        page.pair(f"device {ordinal}", _device(known.get(ordinal, Device(ordinal)), busy.get(ordinal)))
    if not known and not busy:
        page.pair("device", f"none: {unavailable.get('busy', 'no event of a GPU')}")
    page.pair("window", _window(trace))
    page.pair("steps", _steps(trace.steps, unavailable.get("steps", "unknown")))
    if trace.steps is not None and trace.steps.cold is not None:
        page.pair("cold start", _cold(trace.steps.cold))
    page.pair("events", f"{meta.events:,} read")
    if trace.missing:
        page.pair("without", f"{', '.join(trace.missing)} (not recorded)")
    for part, why in unavailable.items():
        if why.startswith("failed"):
            page.pair("failed", f"{part}: {why}")


def _device(device: Device, busy: float | None) -> str:
    known = [device.name or "unnamed"]
    known += [f"{device.sms} SMs"] if device.sms else []
    known += [format_bytes(device.memory_bytes)] if device.memory_bytes else []
    return ", ".join(known) + ("" if busy is None else f"; busy {format_share(busy)} of the window")


def _window(trace: TraceReport) -> str:
    window = trace.window
    start, end = (format_offset(side - trace.meta.origin_ns) for side in (window.start_ns, window.end_ns))
    asked = ", as asked for with --window" if window.asked else ""
    return f"{format_ns(window.length_ns)}, from {start} to {end}{asked}"


def _steps(steps: StepsSummary | None, why: str) -> str:
    """Number, times and definition, of the steady ones where there is a cold start."""
    if steps is None:
        return f"none: {why}"
    if not steps.marked:
        return steps.source
    times = steps.every if steps.steady is None else steps.steady
    busy = "" if steps.steady is None else _while_busy(times)
    empty = f"; {steps.empty} more launched nothing" if steps.empty else ""
    return f"{_times(times)}{busy} ({steps.source}){empty}"


def _cold(times: StepTimes) -> str:
    steps = "the first step" if times.count == 1 else f"the first {times.count} steps"
    return f"apart from these: {steps} took {format_ns(times.total_ns)}{_while_busy(times)}"


def _times(times: StepTimes) -> str:
    median, least, most = (format_ns(ns) for ns in (times.median_ns, times.min_ns, times.max_ns))
    return f"{times.count:,}; " + (f"median {median}, from {least} to {most}" if times.count > 1 else median)


def _while_busy(times: StepTimes) -> str:
    return "" if times.busy_share is None else f", device busy {format_share(times.busy_share)}"


def _finding(page: Page, number: int, finding: Finding, trace: TraceReport, places: Sequence[str]) -> None:
    page.blank()
    title = f"{number}  {finding_name(finding)}"
    page.sides(title, grade(finding), style=_COLOURS[finding.severity])
    saved = "" if finding.saving is None else saving_words(finding.saving, trace.step)
    amounts = [text for text in (saved, cost_words(finding), count_words(finding)) if text]
    page.put("; ".join(amounts), indent=3)
    page.put(finding.message, indent=3)
    page.put(f"-> {finding.advice}", indent=3, hang=3)
    clauses = _where(finding, trace.meta.origin_ns, places)
    page.put(", ".join(clause.replace(" ", JOINED) for clause in clauses), indent=3)


def _where(finding: Finding, origin_ns: int, places: Sequence[str]) -> list[str]:
    """Confidence, and where to look: one occurrence."""
    start, length = format_offset(finding.start_ns - origin_ns), format_ns(finding.end_ns - finding.start_ns)
    which = "for example at" if finding.count > 1 else "at"
    named = [f"{place} {getattr(finding, place)}" for place in places if getattr(finding, place) is not None]
    first, last = f"confidence {finding.confidence}", f"Perfetto timestamp {finding.start_ns}"
    return [first, f"{which} {start}", f"{length} long", *named, last]


def _places(report: Report) -> list[str]:
    """What tells places apart in this report."""
    several = len(report.traces) > 1
    devices = several or any(len(trace.meta.devices) > 1 for trace in report.traces)
    return ["rank"] * several + ["device"] * devices + ["step", "stream", "thread"]
