"""What `open` serves, and what it shows where there is no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import written
from tests.report import report_samples as samples
from traceanalyzer.cli import open as command
from traceanalyzer.cli.overlays import overlays_of_files
from traceanalyzer.model.errors import TraceAnalyzerError
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
