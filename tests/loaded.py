"""Traces on disk, read once per process of the test run however many tests look at them.

Nothing here may be changed by a test: traces, analyses and reports are read-only.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from functools import cache, lru_cache
from pathlib import Path

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.report.diagnosis import report_of

KEPT = 6  # shared traces; tests of one of them run one after the other
_FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"  # small: all are kept
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")  # the same in all processes of one test run


def loaded(path: Path) -> Trace:
    """The trace in the file."""
    return analysed(path).trace


def analysed(path: Path) -> Analysis:
    """The trace with the indexes that tests have asked for so far."""
    return _of_fixture(path) if path.is_relative_to(_FIXTURES) else _of_shared(path)


@cache
def _of_fixture(path: Path) -> Analysis:
    return Analysis(load_file(path))


@lru_cache(maxsize=KEPT)
def _of_shared(path: Path) -> Analysis:
    return Analysis(load_file(path))


@cache
def reported(path: Path) -> Report:
    """What `diagnose` says of it; small, so all are kept, and processes of one run share them."""
    kept = _kept(path)
    if kept is not None and kept.exists():
        made: Report = pickle.loads(kept.read_bytes())
        return made
    analysis = analysed(path)
    made = report_of([(analysis.trace.meta.rank, analysis)])
    if kept is not None:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(made))
        part.replace(kept)
    return made


def selected(path: Path, *rules: str) -> Report:
    """What these rules alone say of it."""
    analysis = analysed(path)
    return report_of([(analysis.trace.meta.rank, analysis)], select=rules)


def _kept(path: Path) -> Path | None:
    if not _RUN:
        return None
    folder = Path(tempfile.gettempdir()) / f"traceanalyzer-reports-{_RUN}"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(str(path).encode()).hexdigest()
