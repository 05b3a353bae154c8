"""What tests of rules about the host share."""

from collections.abc import Callable
from pathlib import Path

from tests.support.cached_reports import selected
from traceanalyzer import Finding, Trace, diagnose
from traceanalyzer.model.finding import Severity, Status

Shared = Callable[[str], Path]
MS = 1_000_000
ENGINE = 2000  # thread of the autograd engine


def said_by(trace: Trace | Path, rule: str) -> list[Finding]:
    """What the rule says of it."""
    report = selected(trace, rule) if isinstance(trace, Path) else diagnose(trace, select=[rule])
    judged = Status.FOUND, Status.CLEAR
    assert [outcome.why for outcome in report.outcomes if outcome.status not in judged] == []
    return list(report.findings)


def alarms(trace: Trace | Path, rule: str) -> list[Finding]:
    """What of it is above info."""
    return [one for one in said_by(trace, rule) if one.severity is not Severity.INFO]
