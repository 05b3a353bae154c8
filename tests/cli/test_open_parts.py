"""What `open` serves, and what it shows where there is no finding."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest

from tests.cli.commands import written
from tests.report import report_samples as samples
from traceanalyzer.cli import open as command
from traceanalyzer.cli.overlays import overlays_of_files
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.overlay import Drift, Overlay, Slices
from traceanalyzer.model.report import AnalysedWindow
from traceanalyzer.render.perfetto import archive


@pytest.mark.parametrize("most", [None, 100])
def test_a_trace_that_is_too_large_for_a_zip_is_served_as_a_tar(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what there was of the zip goes away first: both would take twice the room."""
    _, overlays = overlays_of_files([written(tmp_path / "trace.json")])
    if most is not None:
        monkeypatch.setattr(archive, "MOST_ZIP_BYTES", most)
    (folder := tmp_path / "served").mkdir()
    packed = command._packed(overlays, folder)
    assert [packed] == list(folder.iterdir())
    assert packed.name == ("trace.zip" if most is None else "trace.tar")


def test_without_findings_there_is_nothing_to_show_first() -> None:
    bare, own = samples.report(findings=()), "https://perfetto.example.org"
    assert command._chosen(bare, None) is None
    assert (
        command._address(bare, (), None, own, "http://here/a.zip")
        == f"{own}/#!/?url=http%3A%2F%2Fhere%2Fa.zip"
    )
    with pytest.raises(TraceAnalyzerError, match=r"no such finding\n  The report has none\."):
        command._chosen(bare, 1)


def test_finding_is_shown_at_times_without_clock_drift() -> None:
    """That gains 1000 us a second: 2 ms less at 2 s, as are the window's ends; with all tracks of idle time."""
    second, ms = 10**9, 10**6
    at = np.array([0])
    names = ("Findings: low", "Findings: high", "Idle: device 0", "No Idle", "Idle: device 1")
    tracks = tuple(Slices(name, at, at + 1, at, ["a"], [{}]) for name in names)
    overlay = Overlay(None, "trace.json", 0, tracks, (), Drift(1_000.0, 0))
    found = samples.finding(0, severity=Severity.LOW, start_ns=2 * second, end_ns=3 * second)
    window = AnalysedWindow(2 * second, 3 * second)
    report = samples.report(samples.trace(window=window), findings=(found,))
    parts = parse_qs(command._address(report, (overlay,), 1, "https://own", "http://a.zip").partition("?")[2])
    assert (parts["ts"], parts["dur"]) == ([str(2 * second - 2 * ms)], [str(second - ms)])
    assert parts["visStart"] == [str(2 * second - 2 * ms)]
    assert parts["visEnd"] == [str(3 * second - 3 * ms)]
    pin, *_ = json.loads(parts["startupCommands"][0])
    assert pin["args"][0] == "^(Findings: low|Idle: device 0|Idle: device 1)$"
