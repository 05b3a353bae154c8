"""`diagnose`: what is refused before reading, which rules run, and what reading is asked for."""

from __future__ import annotations

import json
import runpy
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.commands import call, diagnosed, refused, written
from tests.job.ranks import Reductions
from tests.support.fixtures import FIXTURES
from traceanalyzer.cli import loading, ranks, report_output
from traceanalyzer.cli.app import cli
from traceanalyzer.report import diagnosis

TRACE = FIXTURES / "exposed-copy" / "bad.json.gz"


@pytest.mark.parametrize(
    "given", [("--select", "host-gapp"), ("--ignore", "host-gapp"), ("--set", "host-gapp.min_gap_ns=1")]
)
def test_an_unknown_rule_is_refused_before_the_trace_is_missed(
    given: tuple[str, str], tmp_path: Path
) -> None:
    said = refused("diagnose", tmp_path / "absent.json", *given)
    assert "Did you mean host-gap?" in said
    assert "absent.json" not in said


@pytest.mark.parametrize(
    ("given", "rules"),
    [((), ["launch-bound"]), (("--select", "host-gap"), ["host-gap"]), (("--no-config",), None)],
)
def test_rules_of_the_command_line_override_the_project(
    given: tuple[str, ...], rules: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.traceanalyzer]\nselect = ["launch-bound"]\n')
    monkeypatch.chdir(tmp_path)
    trace = written(tmp_path / "trace.json")
    report = json.loads(diagnosed(trace, "--format", "json", *given))
    ran = [outcome["rule"] for outcome in report["outcomes"]]
    assert (len(ran) > 2) if rules is None else (ran == rules)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((), {"cache": False, "jobs": None, "quiet": False, "scheduler": None}),
        (("--cache",), {"cache": True, "jobs": None, "quiet": False, "scheduler": None}),
        (("--jobs", "3", "--quiet"), {"cache": False, "jobs": 3, "quiet": True, "scheduler": None}),
    ],
)
def test_reading_is_asked_for_as_the_options_say(
    given: tuple[str, ...], asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    def with_ranks(traces: object, window: object, say: object, **options: Any) -> bool:
        found.update(options)
        return False

    monkeypatch.setattr(ranks, "with_ranks", with_ranks)
    assert call("diagnose", "absent.json", *given).exit_code == 0
    assert {name: found[name] for name in asked} == asked


def test_ranks_that_should_be_like_their_peers_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [
        made.write(tmp_path / f"rank{rank}.json")
        for rank, made in Reductions({0: (500,) * 5, 1: (900,) * 5}).traces().items()
    ]
    asked: list[object] = []
    whole = diagnosis.report_of_ranks

    def report_of_ranks(*given: Any) -> Any:
        asked.extend(given[3:])
        return whole(*given)

    monkeypatch.setattr(diagnosis, "report_of_ranks", report_of_ranks)
    call("diagnose", *traces, "--as-peers", 1, "--as-peers", 0)
    assert asked == [(1, 0)]


@pytest.mark.parametrize("option", ["--verbose", "--quiet"])
def test_file_report_does_not_depend_on_the_terminal(option: str, tmp_path: Path) -> None:
    for charset in ("utf-8", "ascii"):
        given = ["diagnose", str(TRACE), option, "-o", str(tmp_path / charset)]
        assert CliRunner(charset=charset).invoke(cli, given).exception is None
    assert (tmp_path / "ascii").read_bytes() == (tmp_path / "utf-8").read_bytes()


def test_a_group_whose_rule_is_shown_does_not_point_to_it_again() -> None:
    """data-movement is of the group copies and has a cause of that name; hotspots are of another group."""
    page = call("explain", "copies").stdout
    assert "see traceanalyzer explain hotspot" in page
    assert "see traceanalyzer explain data-movement" not in page


def test_what_comes_before_progress_comes_once() -> None:
    done: list[str] = []
    told = loading._after(lambda: done.append("first"), lambda *said: done.append("told"))
    for at in range(3):
        told(at, 3, at)
    assert done == ["first", "told", "told", "told"]


def test_the_start_is_before_what_the_process_worked_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10 s by the clock after 4 s of work: at 6 s."""
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 10_000_000_000)
    monkeypatch.setattr(time, "process_time_ns", lambda: 4_000_000_000)
    assert runpy.run_path(str(report_output.__file__))["_STARTED_NS"] == 6_000_000_000


@pytest.mark.parametrize(("free", "processes"), [(300, 2), (299, 1), (900, 3), (1, 1)])
def test_each_process_has_memory_for_the_largest_file(
    free: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files of 10, 20 and 50 bytes, three times as large in memory, however large they are together."""
    files = [tmp_path / f"{size}.json" for size in (10, 20, 50)]
    for path in files:
        path.write_bytes(b" " * int(path.stem))
    limits = {"WORTH_BYTES": 1, "_RANK_BYTES": 3, "_BEGUN_BYTES": 0, "_SHARE": 1.0, "_HERE_BYTES": 0}
    for name, value in limits.items():
        monkeypatch.setattr(ranks, name, value)
    monkeypatch.setattr(ranks, "_free_bytes", lambda: free)
    monkeypatch.setattr(ranks, "cores", lambda: 8)
    assert ranks._processes(files, None) == (processes, free // processes)
