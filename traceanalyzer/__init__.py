"""Reads a torch.profiler trace and says why the GPU is idle or slow.

    from traceanalyzer import diagnose

    report = diagnose("trace.json.gz")
    for finding in report.findings:
        print(finding.severity, finding.cost_ns, finding.message)

Names are imported when first used: `traceanalyzer --help` needs neither numpy nor pandas.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from traceanalyzer.version import __version__

if TYPE_CHECKING:
    from traceanalyzer.comparison.compare import compare
    from traceanalyzer.comparison.result import Comparison
    from traceanalyzer.integrations.watching import watch
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.model.errors import (
        BadOption,
        NotATrace,
        OutputExists,
        TraceAnalyzerError,
        Unavailable,
        UnreadableTrace,
    )
    from traceanalyzer.model.finding import Confidence, Finding, Occurrence, Outcome, Severity, Status
    from traceanalyzer.model.report import (
        AnalysedWindow,
        DeviceTime,
        Fault,
        IdleCause,
        Report,
        StepsSummary,
        TraceReport,
        Verdict,
    )
    from traceanalyzer.model.step_times import Saving, StepEstimate
    from traceanalyzer.model.trace import Job, Meta, Trace
    from traceanalyzer.read.load import load, load_job
    from traceanalyzer.report.diagnosis import diagnose
    from traceanalyzer.report.tables import idle_gaps, kernels, queue_depth

_HOMES = {
    "AnalysedWindow": "model.report",
    "Analysis": "model.analysis",
    "BadOption": "model.errors",
    "Comparison": "comparison.result",
    "Confidence": "model.finding",
    "DeviceTime": "model.report",
    "Fault": "model.report",
    "Finding": "model.finding",
    "IdleCause": "model.report",
    "Job": "model.trace",
    "Meta": "model.trace",
    "NotATrace": "model.errors",
    "Occurrence": "model.finding",
    "Outcome": "model.finding",
    "OutputExists": "model.errors",
    "Report": "model.report",
    "Saving": "model.saving",
    "Severity": "model.finding",
    "Status": "model.finding",
    "StepEstimate": "model.saving",
    "StepsSummary": "model.report",
    "Trace": "model.trace",
    "TraceAnalyzerError": "model.errors",
    "TraceReport": "model.report",
    "Unavailable": "model.errors",
    "UnreadableTrace": "model.errors",
    "Verdict": "model.report",
    "compare": "comparison.compare",
    "diagnose": "report.diagnosis",
    "idle_gaps": "report.tables",
    "kernels": "report.tables",
    "load": "read.load",
    "load_job": "read.load",
    "queue_depth": "report.tables",
    "watch": "integrations.watching",
}

__all__ = [
    "AnalysedWindow",
    "Analysis",
    "BadOption",
    "Comparison",
    "Confidence",
    "DeviceTime",
    "Fault",
    "Finding",
    "IdleCause",
    "Job",
    "Meta",
    "NotATrace",
    "Occurrence",
    "Outcome",
    "OutputExists",
    "Report",
    "Saving",
    "Severity",
    "Status",
    "StepEstimate",
    "StepsSummary",
    "Trace",
    "TraceAnalyzerError",
    "TraceReport",
    "Unavailable",
    "UnreadableTrace",
    "Verdict",
    "__version__",
    "compare",
    "diagnose",
    "idle_gaps",
    "kernels",
    "load",
    "load_job",
    "queue_depth",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"traceanalyzer.{_HOMES[name]}"), name)
    if (known := sys.modules.get("traceanalyzer.model.report")) is not None:
        known.Report.drawn = _drawn
    globals()[name] = value
    return value


def _drawn(report: Report) -> str:
    """A report as notebooks show it."""
    from traceanalyzer.render.html.summary import summary_svg

    return summary_svg(report)


def __dir__() -> list[str]:
    return sorted(__all__)
