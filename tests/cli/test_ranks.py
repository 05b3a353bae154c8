"""Ranks of a job: where they are read, and their collectives."""

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.commands import call, refused, written
from tests.job.ranks import Reductions
from tests.report.pools import Here
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli import ranks
from traceanalyzer.cli.loading import load_all

MB = 1 << 20


def of_sizes(folder: Path, *sizes: int) -> list[Path]:
    """Files of so many bytes, which take no room."""
    paths = []
    for number, size in enumerate(sizes):
        path = folder / f"rank{number}.json"
        path.touch()
        os.truncate(path, size)
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("sizes", "jobs", "free", "processes"),
    [
        ((24 * MB, 24 * MB), None, 1 << 40, 2),
        ((24 * MB, 24 * MB - 1), None, 1 << 40, 0),
        ((24 * MB, 24 * MB), None, None, 2),
        ((24 * MB, 24 * MB - 1), None, None, 0),
        ((24 * MB, 24 * MB), 1, None, 0),
        ((12 * MB,) * 6, None, 1 << 40, 4),  # one per core
        ((12 * MB,) * 6, 3, 1 << 40, 3),
        ((64 * MB,), None, 1 << 40, 0),
        ((171 * MB, 171 * MB), 1, 1 << 40, 1),  # more than 4 GiB by this measure are too much for this process
        ((170 * MB, 170 * MB), 1, 1 << 40, 0),
        ((24 * MB, 24 * MB), 1, 961 * MB, 0),
        ((24 * MB, 24 * MB), 1, 959 * MB, 1),  # 576 MB are 0.6 of 960
        ((24 * MB,) * 4, None, 1_461 * MB, 2),  # 150 + 12 * 24 MB each, of 0.6 of what is free
        ((24 * MB,) * 4, None, 1_459 * MB, 1),
        ((36 * MB, 12 * MB, 12 * MB), None, 1_461 * MB, 1),  # by the largest
        ((36 * MB, 12 * MB, 12 * MB), None, 10 * MB, 1),
    ],
)
def test_processes_depend_on_cores_files_and_memory(
    sizes: tuple[int, ...],
    jobs: int | None,
    free: int | None,
    processes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may hold its part of 0.6 of the memory that is free."""
    monkeypatch.setattr(ranks, "cores", lambda: 4)
    monkeypatch.setattr(ranks, "free_bytes", lambda: free)
    count, most_bytes = ranks._processes(of_sizes(tmp_path, *sizes), jobs)
    assert count == processes
    assert most_bytes == (int(0.6 * free) // count if count and free else None)


@pytest.mark.parametrize(
    ("paths", "processes"),
    [
        (["https://example.org/a.json", "https://example.org/b.json"], 2),
        (["https://example.org/a.json"] * 9, 4),
        (["memory://a.json", "memory://b.json"], 0),
        (["https://example.org/a.json", "memory://b.json"], 0),
        (["https://example.org/a.json", "b.json"], 2),
        (["https://example.org/a.json"], 0),
        (["-", "a.json"], 0),
    ],
)
def test_remote_files_are_read_by_processes_except_memory(
    paths: Any, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "cores", lambda: 4)
    assert ranks._processes(paths, None) == (processes, None)


def test_beside_large_files_standard_input_is_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "cores", lambda: 4)
    monkeypatch.setattr(ranks, "free_bytes", lambda: None)
    files = of_sizes(tmp_path, 40 * MB, 40 * MB)
    assert ranks._processes(files, None) == (2, None)
    assert ranks._processes([*files, Path("-")], None) == (0, None)


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ("MemTotal: 9 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\nSwapFree: 5 kB\n", 2 * MB),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable: much kB\n", None),
    ],
)
def test_free_memory_is_what_is_available(told: str, free: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: told)
    assert ranks.free_bytes() == free


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_what_is_parsed_is_kept_where_that_is_asked_for(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file, and of each file of a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (job := tmp_path / "job").mkdir()
    for rank in (0, 1):
        written(job / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    output = ("-o", tmp_path / "page.html", "--force") if command == "report" else ()
    assert call(command, job / "rank0.json", *output).exit_code == 0
    assert not (tmp_path / "cache").exists()
    for given, kept in ((job / "rank0.json", 1), (job, 2)):
        assert call(command, given, *output, "--cache").exit_code == 0
        assert len(list((tmp_path / "cache" / "traceanalyzer").iterdir())) == kept


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), {"quiet": False, "jobs": None, "cache": False}),
        (("--quiet",), {"quiet": True, "jobs": None, "cache": False}),
        (("--jobs", "3", "--cache"), {"quiet": False, "jobs": 3, "cache": True}),
    ],
)
def test_how_to_read_is_passed_on(
    options: tuple[str, ...], asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the analysis takes no more threads than there are jobs."""
    seen, threads = list[dict[str, Any]](), list[int]()

    def load(paths: object, **given: Any) -> Any:
        seen.append({name: given[name] for name in asked})
        return load_all([tmp_path / "trace.json"], quiet=True)

    def say(ranks_: Any, view: object) -> None:
        threads.extend(ranks_.each(lambda analysis, _, __: analysis.threads, dict.fromkeys(ranks_.all)).values())

    written(tmp_path / "trace.json")
    monkeypatch.setattr(ranks, "load_all", load)
    assert call("diagnose", tmp_path / "trace.json", *options).exit_code == 0
    assert seen == [asked]
    ranks.with_ranks([tmp_path / "trace.json"], None, say, jobs=1)
    assert threads == [1]


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks that reduce together, of which rank 1 is late, and one without any collective."""
    made = Reductions({0: (500,) * 5, 1: (900,) * 5}, group="mesh_dp").traces()
    alone = TraceBuilder(distributedInfo={"rank": 2, "world_size": 3})
    alone.op("aten::mm", 0, 9_000)
    alone.launched((1_000, 5_000), (10_000, 5_000), 1)
    for rank, trace in (made | {2: alone}).items():
        trace.write(tmp_path / f"rank{rank}.json")
    return tmp_path


def test_text_of_at_most_80_columns_names_groups_by_their_ranks(folder: Path) -> None:
    lines = call("collectives", folder).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("g1: ranks 0-1: mesh_dp")
    assert any(line.split()[:2] == ["g1", "allreduce"] for line in lines)
    assert "rank 2: no collective in common with another rank" in lines
    assert any("with one uneven rank alone: rank 1" in line for line in lines)


def test_json_and_parquet_have_every_field(folder: Path, tmp_path: Path) -> None:
    found = json.loads(call("collectives", folder, "--format", "json").stdout)
    (rate,) = found["collectives"]
    assert (rate["ranks"], rate["count"], rate["transfer_ns"]) == ([0, 1], 5, 100_000)
    assert (rate["exposed_ns"], rate["overlap"], rate["waiting_ns"]) == (500_000, 0.0, 5 * 400_000)
    assert found["alone"] == [2]
    assert found["slowdown"]["s"] == pytest.approx(found["slowdown"]["by_rank"]["1"], abs=0.01)
    assert found["slowdown"]["s"] > 1.1
    assert sorted(found["clocks"]) == ["0", "1"]
    call("collectives", folder, "--format", "parquet", "--output", tmp_path / "out.parquet")
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert row == rate


def test_all_collectives_are_listed_and_files_are_not_replaced(tmp_path: Path) -> None:
    """Twelve sizes, each once: in CSV as in JSON, in the same order."""
    traces = Reductions(dict.fromkeys((0, 1), (500,) * 12), elements=tuple(1 << 8 + at for at in range(12))).traces()
    paths = []
    for rank, trace in traces.items():
        for event in trace.events:
            if "Collective name" in event.get("args", {}):
                event["args"]["dtype"] = "Float"
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    found = json.loads(call("collectives", *paths, "--format", "json").stdout)["collectives"]
    rows = list(csv.DictReader(call("collectives", *paths, "--format", "csv").stdout.splitlines()))
    sizes = [int(row["bytes"]) for row in rows]
    assert sizes == [one["bytes"] for one in found]
    assert sorted(sizes) == [1 << 10 + at for at in range(12)]
    (there := tmp_path / "there.csv").write_text("mine")
    given = ("collectives", *paths, "--format", "csv", "-o", there)
    assert "already exists" in refused(*given)
    assert there.read_text() == "mine"
    assert call(*given, "--force").stdout == ""
    assert len(there.read_text().splitlines()) == 13
