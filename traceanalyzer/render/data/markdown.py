"""Report -> Markdown for a pull request, an issue or a job's summary: the verdict, the findings, where time goes."""

from collections.abc import Iterator

from traceanalyzer.model.device_times import DeviceTime
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.words.escape import plain_markdown, to_markdown
from traceanalyzer.render.words.savings import amount_words, titled
from traceanalyzer.report.words import in_words

_BAR = 20  # characters of a whole window
_MARKS = {Severity.HIGH: "🔴", Severity.MEDIUM: "🟠", Severity.LOW: "🟡", Severity.INFO: "⚪"}


def render_markdown(report: Report) -> str:
    """Headings from the second level on, so that it can stand in any page."""
    return "\n".join(part for trace in report.traces for part in _trace(report, trace))


def _trace(report: Report, trace: TraceReport) -> Iterator[str]:
    yield f"## {plain_markdown(trace.meta.source)}\n"
    if trace.verdict:
        yield f"{plain_markdown(trace.verdict)}\n"
    findings = [one for one in report.findings if one.rank == trace.rank and not one.pedantic]
    told = [finding for finding in findings if finding.severity is not Severity.INFO]
    if told:
        yield _table(told, trace)
    for finding in told:
        text = plain_markdown(f"{finding.message}. {finding.advice}")
        yield f"- **{plain_markdown(titled(finding))}** ({finding.rule}): {text}"
    rest = len(findings) - len(told)
    counted = f"{rest} more for information." if rest else ""
    yield f"\n{counted}\n" if told else f"No finding above `info`. {counted}\n"
    for device in trace.accounting:
        yield _times(device)


def _table(findings: list[Finding], trace: TraceReport) -> str:
    rows = [[f"{_MARKS[f.severity]} {f.severity}", titled(f), amount_words(f, trace.step)] for f in findings]
    return to_markdown(["severity", "finding", "saves"], rows)


def _times(device: DeviceTime) -> str:
    rows = []
    for name, ns in device.classes_ns.items():
        if ns:
            share = ns / max(device.length_ns, 1)
            bar = "█" * max(round(_BAR * share), 1)
            rows.append([in_words(name), format_ns(ns), format_share(share), bar])
    return to_markdown([f"device {device.device}", "time", "share", ""], rows)
