"""Processes that have the ranks, without any: who is asked, how often, and what a process does with its tasks."""

from __future__ import annotations

import io
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.job_ranks import Declared
from traceanalyzer.report.rank_pool import Lost, Task
from traceanalyzer.report.rank_states import RankFile
from traceanalyzer.runtime import processes as workers
from traceanalyzer.runtime.processes import Processes, serve


class Noting:
    """Stands for a process: notes what it is asked."""

    def __init__(self, states: str, most_bytes: int | None) -> None:
        self.most_bytes, self.asked, self.ended = most_bytes, list[str](), False

    def answer(self, task: Task) -> str:
        time.sleep(0.003)  # so that none of them does all
        self.asked.append(task.file.path)
        return f"answer of {task.file.path}"

    def end(self) -> None:
        self.ended = True


def tasks(*paths: str) -> list[Task]:
    return [Task(RankFile(path)) for path in paths]


def test_a_rank_is_asked_by_the_process_that_has_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_Worker", Noting)
    pool, told = Processes(2, "traceanalyzer.report.rank_states:States", 77), list[str]()
    every: list[Any] = pool._workers
    assert [one.most_bytes for one in every] == [77, 77]
    found = pool.run(tasks(*"abcdef"), lambda task: told.append(task.file.path))
    assert found == {name: f"answer of {name}" for name in "abcdef"}
    assert sorted(told) == list("abcdef")
    first = [set(one.asked) for one in every]
    assert all(first)
    assert first[0] | first[1] == set("abcdef")
    for _ in range(5):
        assert pool.run(tasks(*"fcab"), lambda _: None).keys() == set("fcab")
    assert [set(one.asked) for one in every] == first
    pool.close()
    assert [one.ended for one in every] == [True, True]


def process_of(answers: bytes, log: list[str]) -> Any:
    """One that answers this, and then ends."""
    return SimpleNamespace(
        stdin=io.BytesIO(),
        stdout=io.BytesIO(answers),
        kill=lambda: log.append("killed"),
        __exit__=lambda *_: None,
    )


@pytest.mark.parametrize(
    ("answers", "said", "begun"),
    [
        ([b"", pickle.dumps("answer")], "answer", 2),
        ([b"no pickle", pickle.dumps("answer")], "answer", 2),
        ([pickle.dumps("answer")], "answer", 1),
        ([b"", b"", pickle.dumps("late")], None, 3),
    ],
)
def test_ended_process_restarts_once_then_loses_the_rank(
    monkeypatch: pytest.MonkeyPatch, answers: list[bytes], said: str | None, begun: int
) -> None:
    """After which there is one again, for other ranks."""
    log: list[str] = []
    left = [process_of(one, log) for one in answers]
    monkeypatch.setattr(workers._Worker, "_begun", lambda _: left.pop(0))
    worker = workers._Worker("traceanalyzer.report.rank_states:States", None)
    (task,) = tasks("rank3.json")
    found = worker.answer(task)
    assert len(answers) - len(left) == begun
    assert log == ["killed"] * (begun - 1)
    if said is not None:
        assert found == said
        assert pickle.loads(worker.process.stdin.getvalue()) == task  # type: ignore[union-attr]
    else:
        assert isinstance(found, Lost)
        assert found.where == "rank3.json"
        assert worker.answer(task) == "late"


def test_process_does_its_tasks_in_turn_until_none_is_left(tmp_path: Path) -> None:
    """A file that is not there is an answer, too."""
    made = TraceBuilder(distributedInfo={"rank": 3, "world_size": 4})
    made.kernel(0, 1_000, 1)
    path = str(made.write(tmp_path / "a.json"))
    given = [Task(RankFile(path)), Task(RankFile(f"{path}.gone")), Task(RankFile(path))]
    out = io.BytesIO()
    serve(
        io.BytesIO(b"".join(map(pickle.dumps, (("traceanalyzer.report.rank_states:States", None), *given)))),
        out,
    )
    out.seek(0)
    first, gone, again = (pickle.load(out) for _ in given)
    assert isinstance(first, Declared)
    assert (first.rank, first.source, again) == (3, path, first)
    assert isinstance(gone, UnreadableTrace)
    assert out.read() == b""
