"""Where the ranks of a job are read: here, by several processes, or one after the other; what is said of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, refused, written
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
        (
            (171 * MB, 171 * MB),
            1,
            1 << 40,
            1,
        ),  # more than 4 GiB by this measure are too much for this process
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
    monkeypatch.setattr(ranks, "_free_bytes", lambda: free)
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


def test_beside_large_files_standard_input_is_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "cores", lambda: 4)
    monkeypatch.setattr(ranks, "_free_bytes", lambda: None)
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
def test_free_memory_is_what_is_available(
    told: str, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: told)
    assert ranks._free_bytes() == free


def test_one_rank_of_a_job_is_diagnosed_alone_by_its_number(tmp_path: Path) -> None:
    for rank in (0, 3):
        written(tmp_path / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 4})
    alone = call("diagnose", tmp_path, "--rank", 3).stdout
    assert "rank3.json" in alone
    assert "rank0.json" not in alone
    assert alone == call("diagnose", tmp_path / "rank3.json").stdout
    assert "no trace of rank 1: the traces are of ranks 0, 3" in refused("diagnose", tmp_path, "--rank", 1)


@pytest.mark.parametrize(("files", "warned"), [(1, False), (2, True)])
def test_unranked_files_of_a_folder_cause_a_warning(files: int, warned: bool, tmp_path: Path) -> None:
    for number in range(files):
        written(tmp_path / f"part{number}.json")
    said = call("diagnose", tmp_path).stderr
    assert (f"{files} of the {files} traces declare no rank" in said) is warned


def test_of_files_that_all_declare_their_rank_nothing_is_said(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path / f"part{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    assert "declare no rank" not in call("diagnose", tmp_path).stderr


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
        threads.extend(
            ranks_.each(lambda analysis, _, __: analysis.threads, dict.fromkeys(ranks_.all)).values()
        )

    written(tmp_path / "trace.json")
    monkeypatch.setattr(ranks, "load_all", load)
    assert call("diagnose", tmp_path / "trace.json", *options).exit_code == 0
    assert seen == [asked]
    ranks.with_ranks([tmp_path / "trace.json"], None, say, jobs=1)
    assert threads == [1]
