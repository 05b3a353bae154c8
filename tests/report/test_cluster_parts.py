"""A cluster without one: where ranks are asked, what their workers answer, and what becomes of workers that end."""

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.model.errors import BadOption
from traceanalyzer.report.rank_pool import Lost, Task
from traceanalyzer.report.rank_states import RankFile
from traceanalyzer.runtime import cluster
from traceanalyzer.runtime.cluster import Cluster


class Killed(Exception):
    """As `distributed.KilledWorker`."""


STATES = "traceanalyzer.report.rank_states:States"


class Scheduler:
    """As `distributed.Client`: knows workers, and runs what is submitted on the one that is asked for, or the last."""

    def __init__(self, *workers: str, fails: dict[str, Exception] | None = None) -> None:
        self.workers, self.fails = list(workers), fails or {}
        self.submitted: list[tuple[str, list[str] | None]] = []
        self.loop, self.closed, self.address = None, False, ""

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1  # all of them
        return {"workers": dict.fromkeys(self.workers)}

    def submit(self, ask: Any, task: Task, states: str, *, pure: bool, **where: Any) -> Any:
        assert ask is cluster.answered
        assert states == STATES
        assert not pure  # the same question may be asked again
        if where:
            assert where["allow_other_workers"]
        self.submitted.append((task.file.path, where.get("workers")))
        worker = where.get("workers", self.workers[-1:])[0]

        def result() -> tuple[str, str]:
            if task.file.path in self.fails:
                raise self.fails[task.file.path]
            return f"answer of {task.file.path}", worker

        return Future(result)

    def close(self) -> None:
        self.closed = True


class Future:
    """What was submitted; told from others by itself."""

    def __init__(self, result: Any) -> None:
        self.result = result


def reached(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler) -> Cluster:
    def client(address: str, **_: Any) -> Scheduler:
        scheduler.address = address
        return scheduler

    def as_completed(futures: Iterable[Any], **_: Any) -> Iterable[Any]:
        return list(futures)[::-1]

    made = SimpleNamespace(Client=client, as_completed=as_completed, KilledWorker=Killed)
    monkeypatch.setitem(sys.modules, "distributed", made)
    return Cluster("tcp://there:8786", STATES)


def tasks(*paths: str) -> list[Task]:
    return [Task(RankFile(path)) for path in paths]


def test_rank_is_asked_at_the_worker_that_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, told = Scheduler("w1"), list[str]()
    pool = reached(monkeypatch, scheduler)
    answers = pool.run(tasks("a", "b"), lambda task: told.append(task.file.path))
    assert answers == {"a": "answer of a", "b": "answer of b"}
    assert told == ["b", "a"]  # as they are done
    scheduler.workers = ["w1", "w2"]
    pool.run(tasks("a", "c"), lambda _: None)
    scheduler.workers = ["w2"]
    pool.run(tasks("a", "c"), lambda _: None)
    scheduler.workers = ["w1", "w2"]
    pool.run(tasks("a"), lambda _: None)
    assert scheduler.submitted == [
        *(("a", None), ("b", None)),
        *(("a", ["w1"]), ("c", None)),
        *(("a", None), ("c", ["w2"])),
        ("a", ["w2"]),
    ]
    pool.close()
    assert (scheduler.closed, scheduler.address) == (True, "tcp://there:8786")


def test_lost_or_failing_rank_answers_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = ValueError("no such luck")
    pool = reached(monkeypatch, Scheduler("w1", fails={"a": Killed("w1"), "c": failed}))
    found = pool.run(tasks("a", "b", "c"), lambda _: None)
    assert isinstance(found["a"], Lost)
    assert found["a"].where == "a"
    assert "perhaps out of memory" in str(found["a"])
    assert (found["b"], found["c"]) == ("answer of b", failed)


def test_silent_scheduler_and_missing_package_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(*_: object, **__: object) -> None:
        raise OSError("timed out")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=client))
    with pytest.raises(BadOption, match="tcp://there:8786: no scheduler answers: timed out"):
        Cluster("tcp://there:8786", STATES)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadOption, match=r"needs dask\.distributed") as error:
        Cluster("tcp://there:8786", STATES)
    assert error.value.remedy == "pip install 'torch-traceanalyzer[cluster]'"


@pytest.mark.parametrize(("limit", "most"), [(2_000, 1_000), (0, 0), (None, None)])
def test_a_worker_puts_ranks_on_disk_from_half_of_its_memory_on(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, most: int | None
) -> None:
    """It keeps its ranks from one question to the next, and says who it is."""
    used: list[Any] = []

    def task(path: str) -> Any:
        return SimpleNamespace(run=lambda states: used.append(states) or f"answer of {path}")

    worker = SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=limit), address="tcp://w1:1")
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=lambda: worker))
    cluster._states.cache_clear()
    for path in ("a", "b"):
        assert cluster.answered(task(path), STATES) == (f"answer of {path}", "tcp://w1:1")
    assert used[0] is used[1]
    assert used[0].most_bytes == most
