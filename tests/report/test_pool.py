"""Ranks in other processes: the same bytes as here, whatever becomes of the processes."""

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, diagnosed
from tests.job.ranks import Reductions, job_of
from tests.support.merged_traces import labelled, rank_trace
from tests.support.merged_traces import written as write_merged
from traceanalyzer import Report, diagnose, load_job
from traceanalyzer.cli import ranks as ranks_of_commands
from traceanalyzer.read.cache import content_hash, place_of
from traceanalyzer.read.folders import layout_of
from traceanalyzer.render.data.json import render_json
from traceanalyzer.report.diagnosis import report_of_ranks, with_iterations
from traceanalyzer.report.iterations import file_summary
from traceanalyzer.report.rank_pool import Elsewhere, Lost, Pool, Task, in_pool
from traceanalyzer.report.rank_report import Asked
from traceanalyzer.report.rank_states import RankFile, States
from traceanalyzer.runtime.answer_cache import AnswerCache
from traceanalyzer.runtime.processes import Processes

Shared = Callable[[str], Path]
UNEVEN = {0: (500, 500, 500, 500), 1: (900, 900, 900, 900), 2: (500, 510, 500, 500), 3: (500, 500, 520, 500)}
NO_LIMIT = None


def pooled(pool: Pool, folder: Path, told: Callable[[str, int, int], None] | None = None) -> bytes:
    """The report of a folder as JSON, its ranks in the pool."""
    return render_json(pooled_report(pool, folder, told))


def pooled_report(pool: Pool, folder: Path, told: Callable[[str, int, int], None] | None = None) -> Report:
    """The report of a folder, its ranks in the pool."""

    def say(ranks: Any, view: Any) -> Report:
        return with_iterations(report_of_ranks(ranks, view, Asked()), ranks)

    return in_pool(pool, layout_of([folder]), RankFile(), say, told)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Four ranks, of which one is late."""
    job_of(Reductions(UNEVEN), tmp_path)
    return tmp_path


@pytest.fixture(scope="module", params=[NO_LIMIT, 1])
def processes(request: pytest.FixtureRequest) -> Iterator[Processes]:
    """Two processes; with next to no memory all ranks go to disk between two questions."""
    with closing(Processes(2, "traceanalyzer.report.rank_states:States", request.param)) as pool:
        yield pool


def test_processes_say_the_same(processes: Processes, job: Path) -> None:
    assert pooled(processes, job) == render_json(diagnose(load_job(job)))


def test_processes_say_the_same_of_recorded_ranks(processes: Processes, shared: Shared, tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copy(shared(f"jobs/torchrec_sleep/rank{rank}"), tmp_path)
    assert pooled(processes, tmp_path) == render_json(diagnose(load_job(tmp_path)))


@pytest.mark.parametrize("when", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_changes_nothing(when: int, job: Path) -> None:
    """While files are read, and while the ranks are asked."""
    answers = 0
    with closing(Processes(2, "traceanalyzer.report.rank_states:States")) as pool:

        def told(file: str, so_far: int, count: int) -> None:
            nonlocal answers
            answers += 1
            if answers == when:
                pool.workers[0].process.kill()

        assert pooled(pool, job, told) == render_json(diagnose(load_job(job)))
    assert answers > when


class Ending:
    """A pool in this process in which one file ends whoever has it, after so many questions."""

    def __init__(self, name: str, after: int) -> None:
        self.states, self.name, self.after = States(), name, after

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        return {task.file.path: self._answer(task) for task in tasks}

    def _answer(self, task: Task) -> Any:
        path = task.file.path
        if path.endswith(self.name) and len(task.calls) >= self.after:
            return Lost("the process ended", where=path)
        return task.run(self.states)

    def close(self) -> None:
        """There is none."""


@pytest.mark.slow
def test_rank_with_a_dying_process_is_named_and_job_goes_on(job: Path) -> None:
    """Before each question that it is asked."""
    said = [pooled(Ending("rank2.json", after), job) for after in range(10)]
    (job / "rank2.json").write_bytes(b"")
    without = diagnose(load_job(job))
    assert without.job is not None
    assert [one.rank for one in without.job.ranks] == [0, 1, 3]
    empty = b"rank2.json was skipped: " + without.traces[0].meta.damage[0].message.partition(": ")[2].encode()
    for one in said:
        assert b"rank2.json was skipped: the process ended" in one
        assert one.replace(b"rank2.json was skipped: the process ended", empty) == render_json(without)


def test_files_asked_about_once_are_counted_completely(processes: Processes, job: Path) -> None:
    told: list[tuple[str, int, int]] = []
    files = sorted(map(str, job.iterdir()))
    Elsewhere(processes, {}, RankFile(), lambda *one: told.append(one)).once(file_summary, files)
    assert sorted(file for file, _, _ in told) == files
    assert [(count, many) for _, count, many in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_files_that_are_no_traces_are_named(processes: Processes, job: Path) -> None:
    (job / "rank9.json").write_text('{"traceEvents": [')
    assert pooled(processes, job) == render_json(diagnose(load_job(job)))


def test_commands_use_processes_where_files_are_large(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [diagnosed(job, *options) for options in OPTIONS]
    begun: list[Processes] = []

    def counted(*arguments: Any) -> Processes:
        begun.append(Processes(*arguments))
        return begun[-1]

    monkeypatch.setattr(ranks_of_commands, "WORTH_BYTES", 0)
    monkeypatch.setattr(ranks_of_commands, "cores", lambda: 2)
    monkeypatch.setattr("traceanalyzer.runtime.processes.Processes", counted)
    assert [diagnosed(job, *options) for options in OPTIONS] == here
    assert len(begun) == len(OPTIONS)
    assert diagnosed(job, *OPTIONS[0], "--jobs", "1") == here[0]
    assert len(begun) == len(OPTIONS)
    monkeypatch.setattr(ranks_of_commands, "_HERE_BYTES", 0)
    assert diagnosed(job, *OPTIONS[0], "--jobs", "1") == here[0]
    assert len(begun) == len(OPTIONS) + 1


OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--format", "json", "--window", "0:3ms", "--as-peers", "1"),
    ("--rank", "1", "--step-ms", "1", "--select", "load-imbalance"),
)


@pytest.mark.slow
def test_a_merged_file_among_them_is_read_here(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / "rank1.json").unlink()
    write_merged(job / "rank0.json", labelled([rank_trace(rank) for rank in (0, 1)]))
    here = diagnosed(job)
    monkeypatch.setattr(ranks_of_commands, "WORTH_BYTES", 0)
    monkeypatch.setattr(ranks_of_commands, "cores", lambda: 2)
    assert diagnosed(job) == here


@pytest.mark.slow
def test_tables_are_the_same(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("diagnose", job, "--accounting", job / "here.parquet")
    monkeypatch.setattr(ranks_of_commands, "WORTH_BYTES", 0)
    monkeypatch.setattr(ranks_of_commands, "cores", lambda: 2)
    call("diagnose", job, "--accounting", job / "there.parquet")
    assert (job / "here.parquet").read_bytes() == (job / "there.parquet").read_bytes()


class _Counting:
    """One process' states, here; how many bytes the ranks answer in all."""

    def __init__(self) -> None:
        self.states, self.answered = States(), Counter[str]()

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        given = {task.file.path: task.run(self.states) for task in tasks}
        self.answered.update({path: len(pickle.dumps(one)) for path, one in given.items()})
        return given

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "name", [pytest.param("ranks2/rank0_metrics.bad", marks=pytest.mark.slow), "ddp/straggler_cpu"]
)
def test_a_rank_answers_at_most_300_kilobytes(name: str, tmp_path: Path, shared: Shared) -> None:
    paths = [shared(f"{name}.rank{rank}") for rank in (0, 1)]
    for path in paths:
        (tmp_path / path.name).symlink_to(path)
    pool = _Counting()
    report = pooled_report(pool, tmp_path)
    assert report.findings == diagnose(load_job(*paths)).findings
    assert 0 < max(pool.answered.values()) <= 300_000


class _Broken(Exception):
    """The run ends here."""


class _Until(_Counting):
    """Ends after so many answers."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.left, self.asked = most, 0

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        if self.left is not None and self.asked + len(tasks) > self.left:
            raise _Broken
        self.asked += len(tasks)
        return super().run(tasks, told)


@pytest.mark.slow
def test_a_job_that_was_broken_off_goes_on(
    job: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it was; and a second time nothing is asked, until a file changes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    whole = _Until()
    expected = pooled(whole, job)
    for left in (6, 14, 22):
        with pytest.raises(_Broken):
            pooled(AnswerCache(_Until(left), place_of), job)
    last = _Until()
    assert pooled(AnswerCache(last, place_of), job) == expected
    assert 0 < last.asked <= whole.asked - 20
    none = _Until(0)
    assert pooled(AnswerCache(none, place_of), job) == expected
    assert none.asked == 0

    (kept,) = (Path(os.environ["XDG_CACHE_HOME"]) / "traceanalyzer").glob(
        f"{content_hash(job / 'rank3.json')}-*.answers"
    )
    kept.write_bytes(kept.read_bytes()[:-10])  # the machine went down while it wrote
    torn = _Until()
    assert pooled(AnswerCache(torn, place_of), job) == expected
    assert torn.asked > 0

    os.utime(job / "rank1.json", ns=(1, 1))
    changed = _Until()
    assert pooled(AnswerCache(changed, place_of), job) == expected
    assert 0 < changed.asked < whole.asked
    assert len(list(kept.parent.glob("*.answers"))) == len(UNEVEN)
