"""Traces on disk, read once per process of the test run however many tests look at them.

Nothing here may be changed by a test: traces, analyses and reports are read-only.
"""

import hashlib
import os
import pickle
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

from tests.support.paths import REPOSITORY
from traceanalyzer import diagnose, load_job
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.rule.consistency import BOUNDS

KEPT = 6  # shared traces; tests of one of them run one after the other
_FIXTURES = REPOSITORY / "fixtures"  # small: all are kept
_SHARED = os.environ.get("TRACEANALYZER_TEST_RUN", "")  # a folder for all processes of one test run


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

    def made() -> Report:
        analysis = analysed(path)
        return report_of([(analysis.trace.meta.rank, analysis)])

    return _once(str(path), made)


@cache
def reported_job(*paths: Path) -> Report:
    """What `diagnose` says of a job: of its ranks' files, or of the folder that they are in."""
    return _once(" ".join(map(str, paths)), lambda: diagnose(load_job(*paths)))


def reported_pair(shared: Callable[[str], Path], name: str) -> Report:
    """Of the job of two ranks of this name."""
    return reported_job(*(shared(f"{name}.rank{rank}") for rank in (0, 1)))


def _once(key: str, make: Callable[[], Report]) -> Report:
    """What another process of this run has made, or else what is made now."""
    kept = _kept(key)
    if kept is not None and kept.exists():
        found: Report = pickle.loads(kept.read_bytes())
        return found
    made = make()
    assert not [failure for failure in made.failures if f"left out, {BOUNDS}" in failure]
    if kept is not None:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(made))
        part.replace(kept)
    return made


def selected(path: Path, *rules: str) -> Report:
    """What these rules alone say of it."""
    analysis = analysed(path)
    return report_of([(analysis.trace.meta.rank, analysis)], select=rules)


def _kept(key: str) -> Path | None:
    if not _SHARED:
        return None
    folder = Path(_SHARED) / "reports"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(key.encode()).hexdigest()
