"""A job whose ranks are read by processes: what is said of it, kept, and shown is what one process says."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.commands import call, written
from tests.report.pools import Here
from traceanalyzer.cli import ranks


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    """Grows by each job that is read elsewhere."""
    made: list[Here] = []

    def pool(files: object, jobs: int | None, scheduler: str | None) -> Here:
        made.append(Here())
        return made[-1]

    monkeypatch.setattr(ranks, "_pool", pool)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two iterations of two ranks."""
    for iteration in (10, 20):
        (folder := tmp_path / "job" / f"iteration_{iteration}").mkdir(parents=True)
        for rank in (0, 1):
            written(folder / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    return tmp_path / "job"


OPTIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("--rank", "1"),
    ("--window", "0ms:2ms"),
    ("--quiet",),
    ("--format", "json"),
    ("--select", "trace-health", "--fail-on", "low"),
)


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_both_streams_are_the_same(
    options: tuple[str, ...], job: Path, pools: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two iterations the one that is read is named, once."""
    there = call("diagnose", job, *options)
    assert len(pools) == 1
    monkeypatch.setattr(ranks, "_pool", lambda *_: None)
    here = call("diagnose", job, *options)
    assert (there.stdout, there.stderr, there.exit_code) == (here.stdout, here.stderr, here.exit_code)
    assert there.stderr.count("2 iterations of a job, 10 to 20: 20 is read") == 1


def test_files_that_declare_no_rank_are_said(tmp_path: Path, pools: list[Here]) -> None:
    for name in ("a.json", "b.json"):
        written(tmp_path / name)
    assert "warning: 2 of the 2 traces declare no rank" in call("diagnose", tmp_path).stderr
    assert len(pools) == 1


def test_what_ranks_answered_is_kept_where_that_is_asked_for(
    job: Path, tmp_path: Path, pools: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = call("diagnose", job)
    assert not (tmp_path / "cache").exists()
    first, second = call("diagnose", job, "--cache"), call("diagnose", job, "--cache")
    assert plain.stdout == first.stdout == second.stdout
    assert len(pools[0].asked) == len(pools[1].asked) > 0
    assert [task for task in pools[1].asked if not task.once]
    assert not [task for task in pools[2].asked if not task.once]  # of other iterations nothing is kept
    kept = {one.suffix for one in (tmp_path / "cache" / "traceanalyzer").iterdir()}
    assert kept == {".arrow", ".answers"}


@pytest.mark.parametrize(("quiet", "shown"), [((), True), (("--quiet",), False)])
def test_how_many_ranks_are_done_is_shown_on_a_terminal(
    quiet: tuple[str, ...], shown: bool, job: Path, pools: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("traceanalyzer.cli.loading.SILENT_S", 0.0)
    monkeypatch.setattr("traceanalyzer.cli.loading.EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    asked = ranks.with_ranks([job], None, lambda found, view: found.all, quiet=bool(quiet))
    assert asked == (0, 1)
    assert ("2 of 2 ranks, " in terminal.getvalue()) is shown


def test_what_is_imported_meanwhile_is_imported_before(job: Path, pools: list[Here]) -> None:
    order: list[str] = []
    ranks.with_ranks([job], None, lambda *_: order.append("said"), meanwhile=lambda: order.append("imported"))
    assert order == ["imported", "said"]
