"""Report -> JSON: one document, or one record per line. docs/output.md describes every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from traceanalyzer.model.finding import Report
from traceanalyzer.version import __version__

SCHEMA_VERSION = 1
"""Raised when a field goes away or changes its meaning; new fields leave it as it is."""

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def head(report: Report) -> dict[str, Any]:
    """Which schema, which tool, and the limits in force."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "traceanalyzer", "version": __version__},
        "limits": report.limits,
    }


def document(report: Report) -> dict[str, Any]:
    """The whole report as one mapping; its values may still be dataclasses."""
    traces = [{**summary, "meta": meta} for summary, meta in zip(report.summary, report.metas, strict=True)]
    return {
        **head(report),
        "traces": traces,
        "accounting": report.accounting,
        "findings": report.findings,
        "outcomes": report.outcomes,
    }


def render_json(report: Report) -> bytes:
    """One JSON document, indented by two."""
    return orjson.dumps(document(report), option=_OPTIONS | orjson.OPT_INDENT_2)


def render_jsonl(report: Report) -> bytes:
    """One record per line; `record` says what it is: report, trace, accounting, finding or outcome."""
    return b"".join(orjson.dumps(record, option=_OPTIONS) for record in _records(report))


def _records(report: Report) -> Iterator[dict[str, Any]]:
    whole = orjson.loads(orjson.dumps(document(report), option=_OPTIONS))
    yield {"record": "report", **head(report)}
    for name in ("traces", "accounting", "findings", "outcomes"):
        for item in whole[name]:
            yield {"record": name.removesuffix("s"), **item}
