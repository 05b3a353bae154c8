"""Report -> SARIF 2.1.0, for code scanning: only findings whose line in the user's program is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.encode import INDENTED, to_json
from traceanalyzer.render.data.source_lines import SourceLine, fingerprint, source_line
from traceanalyzer.version import __version__

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note", Severity.INFO: "none"}


def render_sarif(report: Report, titles: Mapping[str, str]) -> bytes:
    """One SARIF document. `titles`: rule -> what it finds, of every rule that may be named."""
    placed = [(finding, place) for finding in report.findings if (place := source_line(finding))]
    rules = sorted({finding.rule for finding, _ in placed})
    described = [{"id": rule, "shortDescription": {"text": titles.get(rule, rule)}} for rule in rules]
    driver = {"name": "traceanalyzer", "semanticVersion": __version__, "rules": described}
    results = [_result(finding, place, rules.index(finding.rule)) for finding, place in placed]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return to_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, INDENTED)


def _result(finding: Finding, place: SourceLine, rule_index: int) -> dict[str, Any]:
    region = {"startLine": max(place.line, 1)}
    location = {
        "artifactLocation": {"uri": place.file.replace("\\", "/").replace(" ", "%20")},
        "region": region,
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. {finding.advice}"},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"traceanalyzer/v1": fingerprint(finding)},
        "properties": {
            "severity": str(finding.severity),
            "cause": finding.cause,
            "saving": None if finding.saving is None else finding.saving.share,
        },
    }
