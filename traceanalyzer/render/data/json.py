"""Report -> JSON: one document, or one record per line. docs/output.md describes every field."""

from dataclasses import asdict
from typing import Any

import orjson

from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.data.encode import LINE, indented_json, to_json
from traceanalyzer.version import SCHEMA_VERSION, __version__


def head(report: Report) -> dict[str, Any]:
    """Which schema, which tool, and the limits in force."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "traceanalyzer", "version": __version__},
        "limits": report.limits,
    }


def document(report: Report) -> dict[str, Any]:
    return {
        **head(report),
        **({} if report.job is None else {"job": report.job}),
        **({} if report.iterations is None else {"iterations": report.iterations}),
        "traces": [_trace(trace) for trace in report.traces],
        "accounting": [
            {"rank": trace.rank, **asdict(device)} for trace in report.traces for device in trace.accounting
        ],
        "findings": report.findings,
        "outcomes": report.outcomes,
    }


def render_json(report: Report) -> bytes:
    return indented_json(document(report))


def render_jsonl(report: Report) -> bytes:
    """One record per line; `record` says what it is: report, trace, accounting, finding or outcome."""
    whole = orjson.loads(to_json(document(report)))
    records = [{"record": "report", **head(report)}]
    records += [{"record": name, **whole[name]} for name in ("job", "iterations") if name in whole]
    for name in ("traces", "accounting", "findings", "outcomes"):
        records += [{"record": name.removesuffix("s"), **item} for item in whole[name]]
    return b"".join(to_json(record, LINE) for record in records)


def _trace(trace: TraceReport) -> dict[str, Any]:
    window = trace.window
    steps: dict[str, Any] | None = None
    if trace.steps is not None:
        steps = {**asdict(trace.steps.every), **asdict(trace.steps)}
        del steps["every"]
    return {
        "rank": trace.rank,
        "source": trace.meta.source,
        "events": trace.meta.events,
        "verdict": trace.verdict,
        "summary": trace.summary,
        "step": trace.step,
        "together": trace.together,
        "faults": trace.faults,
        "parts": {"of": trace.parts_of, "shares": trace.parts} if trace.parts else None,
        "cpu_use": {**trace.cpu_use, "op_threads": trace.op_threads} if trace.cpu_use else None,
        "measured": trace.measured,
        "waiting_ns": trace.waiting_ns,
        "window": {"start_ns": window.start_ns, "end_ns": window.end_ns, "length_ns": window.length_ns},
        "asked": window.asked,
        "steps": steps,
        "busy": trace.busy,
        "missing": trace.missing,
        "unavailable": trace.unavailable or {},
        "meta": trace.meta,
    }
