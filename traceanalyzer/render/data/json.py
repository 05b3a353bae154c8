"""Report -> JSON: one document, or one record per line. docs/output.md describes every field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.report import Report, StepsSummary, TraceReport
from traceanalyzer.render.data.encode import LINE, indented_json, json_text, to_json
from traceanalyzer.report.facts import Fact
from traceanalyzer.version import SCHEMA_VERSION, __version__


def facts_fields(facts: Sequence[Fact]) -> Mapping[str, Any]:
    """Fields of the JSON document."""
    return {"facts": [asdict(fact) for fact in facts]}


def facts_frame(facts: Sequence[Fact]) -> pd.DataFrame:
    """One row per fact: name, text, and as JSON text its values and event ids."""
    rows = [(one.name, one.text, json_text(one.values), json_text(one.event_ids)) for one in facts]
    return pd.DataFrame(rows, columns=["name", "text", "values", "event_ids"]).astype("str")


def head(report: Report) -> dict[str, Any]:
    """Which schema, which tool, and the limits in force."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "traceanalyzer", "version": __version__},
        "limits": report.limits,
    }


def document(report: Report) -> dict[str, Any]:
    """The whole report as one mapping; its values may still be dataclasses."""
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
    """One JSON document, indented by two."""
    return indented_json(document(report))


def render_jsonl(report: Report) -> bytes:
    """One record per line; `record` says what it is: report, trace, accounting, finding or outcome."""
    return b"".join(to_json(record, LINE) for record in _records(report))


def _records(report: Report) -> Iterator[dict[str, Any]]:
    whole = orjson.loads(to_json(document(report)))
    yield {"record": "report", **head(report)}
    for name in ("job", "iterations"):
        if name in whole:
            yield {"record": name, **whole[name]}
    for name in ("traces", "accounting", "findings", "outcomes"):
        for item in whole[name]:
            yield {"record": name.removesuffix("s"), **item}


def _trace(trace: TraceReport) -> dict[str, Any]:
    window = trace.window
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
        "steps": None if trace.steps is None else _steps(trace.steps),
        "busy": trace.busy,
        "missing": trace.missing,
        "unavailable": trace.unavailable or {},
        "meta": trace.meta,
    }


def _steps(steps: StepsSummary) -> dict[str, Any]:
    described = {name: value for name, value in asdict(steps).items() if name != "every"}
    return {**asdict(steps.every), **described}
