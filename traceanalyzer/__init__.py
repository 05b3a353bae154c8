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
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from traceanalyzer.comparison.compare import compare
    from traceanalyzer.comparison.result import Comparison
    from traceanalyzer.integrations.watching import watch
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.model.device_times import DeviceTime, IdleCause
    from traceanalyzer.model.errors import (
        BadOption,
        NotATrace,
        OutputExists,
        TraceAnalyzerError,
        Unavailable,
        UnreadableTrace,
    )
    from traceanalyzer.model.finding import Confidence, Finding, Occurrence, Outcome, Severity, Status
    from traceanalyzer.model.report import AnalysedWindow, Fault, Report, StepsSummary, TraceReport, Verdict
    from traceanalyzer.model.step_times import Saving, StepEstimate
    from traceanalyzer.model.trace import Job, Meta, Trace
    from traceanalyzer.read.load import load, load_job
    from traceanalyzer.report.diagnosis import StepTime, Traces, Window
    from traceanalyzer.report.rank_report import Settings
    from traceanalyzer.report.tables import idle_gaps, kernels, listed_events, queue_depth

# Module -> the public names that it defines.
_PUBLIC = {
    "comparison.compare": "compare",
    "comparison.result": "Comparison",
    "integrations.watching": "watch",
    "model.analysis": "Analysis",
    "model.errors": "BadOption NotATrace OutputExists TraceAnalyzerError Unavailable UnreadableTrace",
    "model.finding": "Confidence Finding Occurrence Outcome Severity Status",
    "model.device_times": "DeviceTime IdleCause",
    "model.report": "AnalysedWindow Fault Report StepsSummary TraceReport Verdict",
    "model.step_times": "Saving StepEstimate",
    "model.trace": "Job Meta Trace",
    "read.load": "load load_job",
    "report.tables": "idle_gaps kernels listed_events queue_depth",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = ["__version__", "compare", "diagnose", "load", "load_job", "watch"]
__all__ += ["idle_gaps", "kernels", "listed_events", "queue_depth"]
__all__ += ["Analysis", "Comparison", "Job", "Meta", "Trace"]
__all__ += ["AnalysedWindow", "DeviceTime", "Fault", "IdleCause", "Report", "StepsSummary", "TraceReport", "Verdict"]
__all__ += ["Confidence", "Finding", "Occurrence", "Outcome", "Saving", "Severity", "Status", "StepEstimate"]
__all__ += ["BadOption", "NotATrace", "OutputExists", "TraceAnalyzerError", "Unavailable", "UnreadableTrace"]


def diagnose(
    traces: Traces | str | Path,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Settings | None = None,
    window: Window | None = None,
    step_ms: StepTime = None,
) -> Report:
    """Run rules over a trace, or over all traces of a job, and report what they found.

    Args:
        traces: what `load` returned, or the path of a file or folder to load.
        select: slugs of the rules to run; all when empty.
        ignore: slugs of rules to leave out.
        settings: limits to override, `{"scheduler-gap.min_gap_ns": 20_000}`.
        window: analyse only [start, end): as text, "2ms:8ms", or in ns, both from each trace's `Meta.origin_ns`, where
            None leaves a side open; or something with a span of the trace's clock, such as a finding.
        step_ms: how long a step takes without the profiler, where you have measured it, in ms: a time, several, or
            a range as text, "18:19".

    Raises:
        UnreadableTrace, NotATrace: the file cannot be read.
        BadOption: an unknown rule or limit, a window outside the trace, or a step time that no step can take.
    """
    from traceanalyzer.job.ranks import Here
    from traceanalyzer.model.trace import Job
    from traceanalyzer.read.load import load_any
    from traceanalyzer.report.diagnosis import analyses_of, report_of, with_iterations

    _extend_model()
    given = load_any(traces) if isinstance(traces, str | Path) else traces
    analysed = analyses_of(given, window)
    report = report_of(analysed, select=select, ignore=ignore, settings=settings, step_ms=step_ms)
    return with_iterations(report, Here({}, given.iterations)) if isinstance(given, Job) else report


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"traceanalyzer.{_MODULE_OF[name]}"), name)
    _extend_model()
    globals()[name] = value
    return value


def _extend_model() -> None:
    """Give the model, where it is imported, what needs rooms above it: drawings of reports and tables of traces."""
    if (report := sys.modules.get("traceanalyzer.model.report")) is not None:
        report.Report.drawn, report.Report.briefed = _summary_svg, _brief
    if (trace := sys.modules.get("traceanalyzer.model.trace")) is not None:
        trace.Trace.tables = {name: partial(_table, name) for name in ("kernels", "queue_depth", "idle_gaps")}


def _summary_svg(report: Report) -> str:
    """A report as notebooks show it."""
    from traceanalyzer.render.html.summary import summary_svg

    return summary_svg(report)


def _brief(report: Report, script: Path | None) -> str:
    """A report as a brief for the program's author."""
    from traceanalyzer.render.text.brief import render_brief

    return render_brief(report, script)


def _table(name: str, trace: Trace) -> pd.DataFrame:
    """The table of that name, whose module is imported when it is first asked for."""
    table: pd.DataFrame = __getattr__(name)(trace)
    return table


def __dir__() -> list[str]:
    return sorted(__all__)
