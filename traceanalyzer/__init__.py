"""Reads a torch.profiler trace and says why the GPU is idle or slow.

    from traceanalyzer import load, diagnose

    report = diagnose(load("trace.json.gz"))
    for finding in report.findings:
        print(finding.severity, finding.cost_ns, finding.message)

Names are imported when first used: `traceanalyzer --help` needs neither numpy nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from traceanalyzer.version import __version__

if TYPE_CHECKING:
    from traceanalyzer.model.finding import Finding, Report
    from traceanalyzer.model.trace import Trace, TraceSet
    from traceanalyzer.read.load import load
    from traceanalyzer.report.diagnosis import diagnose

__all__ = ["Finding", "Report", "Trace", "TraceSet", "__version__", "diagnose", "load"]

_HOMES = {
    "Finding": "traceanalyzer.model.finding",
    "Report": "traceanalyzer.model.finding",
    "Trace": "traceanalyzer.model.trace",
    "TraceSet": "traceanalyzer.model.trace",
    "diagnose": "traceanalyzer.report.diagnosis",
    "load": "traceanalyzer.read.load",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
