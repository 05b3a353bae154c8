"""Report -> text for people: header, one bar per device, findings, footer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from traceanalyzer.model.finding import Finding, Report, Severity
from traceanalyzer.model.offsets import format_offset
from traceanalyzer.model.trace import Device, Meta
from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.footer import footer
from traceanalyzer.render.text.page import JOINED, Page
from traceanalyzer.version import __version__

_COLOURS = {Severity.HIGH: "red", Severity.MEDIUM: "yellow", Severity.LOW: "blue", Severity.INFO: "dim"}


_WORTH_SAYING = 0.01  # share of the step from which on the profiler's own time gets a line


def render_text(
    report: Report, *, width: int = 80, colour: bool = False, ascii_only: bool = False, quiet: bool = False
) -> str:
    """The report as text; `quiet` keeps the findings alone."""
    page = Page(width, colour, ascii_only)
    heads = list(zip(report.summary, report.metas, strict=True))
    if not quiet:
        page.sides(f"traceanalyzer {__version__}", _verdict(report.findings))
        for summary, meta in heads:
            _header(page, summary, meta, several=len(heads) > 1)
        for row in report.accounting:
            device_bar(page, row, several=len(heads) > 1)
    origins = {summary["rank"]: meta.origin_ns for summary, meta in heads}
    for number, finding in enumerate(report.findings, 1):
        _finding(page, number, finding, origins[finding.rank], _places(report))
    if not quiet:
        footer(page, report)
    return page.text() if page.lines else ""


def _verdict(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no findings"
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[severity]} {severity}" for severity in Severity if counts[severity])


def _header(page: Page, summary: Mapping[str, Any], meta: Meta, *, several: bool) -> None:
    page.blank()
    rank = f"rank {summary['rank']}: " if several or meta.rank is not None else ""
    page.pair("trace", f"{rank}{meta.source}")
    busy = {entry["device"]: entry["share"] for entry in summary["busy"]}
    for device in meta.devices:
        page.pair(f"device {device.ordinal}", _device(device, busy.get(device.ordinal)))
    if not meta.devices:
        page.pair("device", f"none: {summary['unavailable'].get('busy', 'no event of a GPU')}")
    page.pair("window", _window(summary, meta))
    page.pair("steps", _steps(summary))
    if summary["profiler"] and summary["profiler"]["share"] >= _WORTH_SAYING:
        page.pair("profiler", _profiler(summary["profiler"]))
    page.pair("events", f"{meta.events:,} read, {meta.dialect}")
    if summary["missing"]:
        page.pair("without", f"{', '.join(summary['missing'])} (not recorded)")


def _device(device: Device, busy: float | None) -> str:
    known = [device.name or "unnamed"]
    known += [f"{device.sms} SMs"] if device.sms else []
    known += [format_bytes(device.memory_bytes)] if device.memory_bytes else []
    return ", ".join(known) + ("" if busy is None else f"; busy {format_share(busy)} of the window")


def _window(summary: Mapping[str, Any], meta: Meta) -> str:
    window = summary["window"]
    start, end = (format_offset(window[side] - meta.origin_ns) for side in ("start_ns", "end_ns"))
    asked = ", as asked for with --window" if summary["asked"] else ""
    return f"{format_ns(window['length_ns'])}, from {start} to {end}{asked}"


def _profiler(estimate: Mapping[str, Any]) -> str:
    share, low, high = (f"{100 * estimate[name]:.0f} %" for name in ("share", "low_share", "high_share"))
    return f"estimated to take {share} of the CPU's step time itself ({low} to {high})"


def _steps(summary: Mapping[str, Any]) -> str:
    steps = summary["steps"]
    if steps is None:
        return f"none: {summary['unavailable'].get('steps', 'unknown')}"
    if not steps["marked"]:
        return str(steps["source"])
    times = [format_ns(steps[name]) for name in ("median_ns", "min_ns", "max_ns")]
    spread = f"median {times[0]}, from {times[1]} to {times[2]}" if steps["count"] > 1 else times[0]
    return f"{steps['count']:,}; {spread} ({steps['source']})"


def _finding(page: Page, number: int, finding: Finding, origin_ns: int, places: Sequence[str]) -> None:
    page.blank()
    loss = f"  {format_share(finding.cost_share)}  {format_ns(finding.cost_ns)}" if finding.cost_ns else ""
    title = f"{number}  {finding.rule}: {finding.cause}"
    page.sides(title, f"{finding.severity}{loss}", style=_COLOURS[finding.severity])
    page.put(finding.message, indent=3)
    page.put(f"-> {finding.advice}", indent=3, hang=3)
    page.put(
        ", ".join(clause.replace(" ", JOINED) for clause in _where(finding, origin_ns, places)), indent=3
    )


def _where(finding: Finding, origin_ns: int, places: Sequence[str]) -> list[str]:
    """Confidence, and where to look: the costliest occurrence."""
    start, length = format_offset(finding.start_ns - origin_ns), format_ns(finding.end_ns - finding.start_ns)
    several = finding.count > 1 or finding.evidence.get("gaps", 1) > 1 or finding.evidence.get("slow", 1) > 1
    which = "look" if several else "once"
    named = [f"{place} {getattr(finding, place)}" for place in places if getattr(finding, place) is not None]
    first, last = f"confidence {finding.confidence}", f"Perfetto timestamp {finding.start_ns}"
    return [first, f"{which} at {start} for {length}", *named, last]


def _places(report: Report) -> list[str]:
    """What tells places apart in this report."""
    several = len(report.metas) > 1
    devices = several or any(len(meta.devices) > 1 for meta in report.metas)
    return ["rank"] * several + ["device"] * devices + ["step", "stream", "thread"]
