"""The line that says how far a long reading is."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.commands import written
from traceanalyzer.cli import loading
from traceanalyzer.cli.progress import ProgressLine


def test_progress_waits_a_second_and_cleans_up() -> None:
    now, stream = [0.0], io.StringIO()
    with ProgressLine(stream, lambda: now[0]) as progress:
        progress(1 << 20, 8 << 20, 100)
        assert stream.getvalue() == ""
        now[0] = 2.0
        progress(4 << 20, 8 << 20, 12_345)
        now[0] = 2.1
        progress(5 << 20, 8 << 20, 20_000)
        now[0] = 2.5
        progress(6 << 20, None, 20_000)
    written = stream.getvalue().split("\r\x1b[K")
    assert written == [
        "",
        "4.00 MiB of 8.00 MiB, 12,345 events, 2.00 MiB/s",
        "6.00 MiB, 20,000 events, 2.40 MiB/s",
        "",
    ]


def test_progress_of_a_job_names_the_end_of_the_file() -> None:
    now, stream = [0.0], io.StringIO()
    with ProgressLine(stream, lambda: now[0]) as progress:
        for second, file in ((0.9, "early"), (1.0, "x" * 9 + "y" * 50), (1.1, "soon"), (1.2, "rank2.json")):
            now[0] = second
            progress.of_rank(file, 3, 8)
    assert stream.getvalue().split("\r\x1b[K") == [
        "",
        f"3 of 8 ranks, {'y' * 50}",
        "3 of 8 ranks, rank2.json",
        "",
    ]


def test_progress_of_a_short_read_writes_nothing() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        progress(1, 1, 1)
    assert stream.getvalue() == ""


def test_progress_goes_to_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, terminal = written(tmp_path / "trace.json"), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("traceanalyzer.cli.progress.SILENT_S", 0.0)
    for stream, quiet, expected in (
        (io.StringIO(), False, False),
        (terminal, True, False),
        (terminal, False, True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        loading.load_all([trace], quiet=quiet)
        assert ("events" in stream.getvalue()) is expected
