"""Recordings with marked steps, and what trace-health reports of them."""

from pathlib import Path

from tests.support.cached_reports import selected
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, Trace, diagnose
from traceanalyzer.model.finding import Status

US, MS = 1_000, 1_000_000


def findings_by_cause(trace: Trace | Path, rule: str = "trace-health") -> dict[str, Finding]:
    report = selected(trace, rule) if isinstance(trace, Path) else diagnose(trace, select=[rule])
    assert [outcome for outcome in report.outcomes if outcome.status is Status.FAILED] == []
    return {found.cause: found for found in report.findings}


def stepped(pieces: int = 40, *, first: int = 3, steps: int = 4) -> TraceBuilder:
    """Steps of 1 ms with some launches each, without their work."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(first + number, number * MS, MS - 10 * US)
        for piece in range(pieces):
            at = number * MS + (piece + 1) * 20 * US
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + US, 5 * US, number * pieces + piece + 1)
    return trace
