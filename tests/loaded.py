"""Traces on disk, read once per process of the test run however many tests look at them.

Nothing here may be changed by a test: traces, analyses and reports are read-only.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.report.diagnosis import report_of

KEPT = 6  # traces; tests of one shared trace run one after the other


def loaded(path: Path) -> Trace:
    """The trace in the file."""
    return analysed(path).trace


@lru_cache(maxsize=KEPT)
def analysed(path: Path) -> Analysis:
    """The trace with the indexes that tests have asked for so far."""
    return Analysis(load_file(path))


@cache
def reported(path: Path) -> Report:
    """What `diagnose` says of it; small, so all are kept."""
    analysis = analysed(path)
    return report_of([(analysis.trace.meta.rank, analysis)])
