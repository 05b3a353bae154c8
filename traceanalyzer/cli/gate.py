"""Which findings fail a run: those as severe as was asked for that no baseline knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.model.errors import BadOption

if TYPE_CHECKING:
    from traceanalyzer.model.finding import Finding
    from traceanalyzer.model.report import Report

_REMEDY = "Write one with traceanalyzer diagnose TRACE --format json -o FILE."


def known_findings(path: Path) -> Mapping[str, int]:
    """Fingerprint -> rank of the worst severity, of a report that `diagnose --format json` wrote.

    Raises:
        BadOption: the file is none.
    """
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.render.data.source_lines import fingerprint_of

    known: dict[str, int] = {}
    for told in _findings(path):
        try:
            lines = (told.get("evidence") or {}).get("lines")
            name = fingerprint_of(str(told["rule"]), str(told["cause"]), told.get("by"), lines)
            rank = Severity(told["severity"]).rank
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadOption("one of its findings cannot be read", where=path, remedy=_REMEDY) from None
        known[name] = min(rank, known.get(name, rank))
    return known


def _findings(path: Path) -> list[Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadOption(f"cannot be read: {error.strerror}", where=path, remedy=_REMEDY) from error
    except (ValueError, RecursionError):
        raise BadOption("is no JSON", where=path, remedy=_REMEDY) from None
    findings = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(findings, list):
        raise BadOption("is no report of findings", where=path, remedy=_REMEDY)
    return findings


def failing(report: Report, fail_on: str, known: Mapping[str, int] | None) -> list[Finding]:
    """The findings that fail the run: with a baseline only those that are new, or more severe than they were."""
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.render.data.source_lines import fingerprint

    if fail_on == "never":
        return []
    severe = [finding for finding in report.findings if finding.severity.rank <= Severity(fail_on).rank]
    if known is None:
        return severe
    return [finding for finding in severe if finding.severity.rank < known.get(fingerprint(finding), 99)]
