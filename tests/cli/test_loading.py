"""What commands import, and when: reading begins before the analysis is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.commands import written
from traceanalyzer.cli import loading

_AT_READING = """
import sys
from traceanalyzer.cli.app import run
import traceanalyzer.read.load as reader
reader.load_layout = lambda *_, **__: print(*sys.modules)
run(["diagnose", sys.argv[1]])
"""


def test_reading_begins_before_the_analysis_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json")
    done = subprocess.run(
        [sys.executable, "-c", _AT_READING, path], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "traceanalyzer.read.load" in imported
    assert imported.isdisjoint({"pandas", "traceanalyzer.rule.registry", "traceanalyzer.report.diagnosis"})


def test_what_is_done_meanwhile_is_done_once(tmp_path: Path) -> None:
    paths = [written(tmp_path / name) for name in ("rank0.json", "rank1.json")]
    done: list[str] = []
    loading.load_all(paths, quiet=True, meanwhile=lambda: done.append("once"))
    assert done == ["once"]
