"""What commands ask of the readers, of the analysis and of the terminal: each option reaches what it is for."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.commands import call, diagnosed, refused, written
from tests.job.ranks import Reductions
from tests.report.pools import Here
from traceanalyzer.cli import ranks
from traceanalyzer.cli.app import cli
from traceanalyzer.job.ranks import Here as OneByOne
from traceanalyzer.model.errors import BadOption
from traceanalyzer.render.data.results import rank_tables
from traceanalyzer.rule.registry import all_rules


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks that reduce together."""
    (folder := tmp_path / "job").mkdir()
    for rank, made in Reductions({0: (500,) * 2, 1: (900,) * 2}).traces().items():
        made.write(folder / f"rank{rank}.json")
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None, str | None]]:
    """(files, jobs, scheduler) of each question where to read; nothing is read."""
    found: list[tuple[int, int | None, str | None]] = []

    def pool(files: Any, jobs: int | None, scheduler: str | None) -> Here:
        found.append((len(files), jobs, scheduler))
        raise BadOption("asked")

    monkeypatch.setattr(ranks, "_pool", pool)
    return found


@pytest.mark.parametrize("command", ["diagnose", "collectives", "export"])
@pytest.mark.parametrize("scheduler", [None, "tcp://host:8786"])
def test_a_job_is_read_by_the_scheduler_that_is_named(
    command: str, scheduler: str | None, job: Path, tmp_path: Path, asked: list[tuple[int, int | None, str | None]]
) -> None:
    more = [tmp_path / "out", "--results"] if command == "export" else []
    given = ["--scheduler", scheduler] if scheduler else []
    assert refused(command, job, *more, *given) == "asked"
    assert asked == [(2, None, scheduler)]


@pytest.mark.parametrize(("cores", "jobs"), [(1, 1), (3, 1), (4, 2), (9, 4)])
def test_processes_of_a_job_share_the_cores(cores: int, jobs: int, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two that read a rank may take half of them, and one at least."""
    files = sorted(job.iterdir())
    pools: list[Here] = []

    def pool(*_: object) -> Here:
        pools.append(Here())
        return pools[-1]

    monkeypatch.setattr(ranks, "_pool", pool)
    monkeypatch.setattr(ranks, "cores", lambda: cores)
    ranks.with_ranks(files, (0, 900), lambda found, view: found.all, cache=False)
    assert {(one.file.jobs, one.file.cache, one.file.window) for one in pools[0].asked} == {(jobs, False, (0, 900))}
    with ranks.readers(files, None, None) as found:
        found.once(rank_tables, [str(files[0])])
    assert {one.file.jobs for one in pools[1].asked} == {jobs}


def test_files_that_no_pool_is_worth_are_read_one_by_one(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ranks.readers(sorted(job.iterdir()), None, None) as found:
        assert isinstance(found, OneByOne)
        assert found.all == ()


def test_one_trace_of_a_folder_is_of_its_rank_alone(tmp_path: Path) -> None:
    """As a job of one rank it is no job: nothing is said of several."""
    (folder := tmp_path / "job").mkdir()
    written(folder / "a.json", distributedInfo={"rank": 3, "world_size": 4})
    result = call("diagnose", folder)
    assert "declare no rank" not in result.stderr
    assert diagnosed(folder, "--rank", 3) == result.stdout
    assert "no trace of rank 0: the traces are of ranks 3" in refused("diagnose", folder, "--rank", 0)


@pytest.mark.parametrize("columns", [60, 100])
def test_rules_are_listed_by_name_as_wide_as_the_terminal(columns: int) -> None:
    """Their titles begin in one column, behind the longest name and a blank."""
    env = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    lines = CliRunner(env=env).invoke(cli, ["rules"]).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    slugs = [rule.slug for rule in all_rules()]
    room = max(map(len, slugs)) + 2
    named = [line for line in lines if line[0] != " "]
    assert [line[:room].strip() for line in named] == slugs
    assert all(line[room] != " " for line in lines)
    said = " ".join(" ".join(lines).split())
    assert all(f"{rule.title} ({rule.group})" in said for rule in all_rules())
