"""Report -> workflow commands of GitHub Actions, which become annotations; the job's summary is Markdown."""

from __future__ import annotations

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.encode import unicode_text
from traceanalyzer.render.data.source_lines import source_line
from traceanalyzer.render.words.savings import finding_name

_COMMANDS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "notice"}


def render_github(report: Report) -> str:
    """One command per finding above `info`, at the user's line where it is known."""
    return "".join(_command(f) for f in report.findings if f.severity in _COMMANDS)


def _command(finding: Finding) -> str:
    place = source_line(finding)
    where = {"file": place.file, "line": str(place.line)} if place else {}
    properties = {**where, "title": f"{finding_name(finding)} ({finding.severity})"}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {listed}::{_data(f'{finding.message}. {finding.advice}')}\n"


def _data(text: str) -> str:
    """As the runner reads it: percent signs and ends of lines are escaped."""
    return unicode_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
