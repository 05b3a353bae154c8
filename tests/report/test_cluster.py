"""Ranks on a cluster: a real one of this machine, of which a worker is killed in the middle."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from threading import Event
from typing import Any

import pytest

from tests.cli.commands import call, diagnosed, refused
from tests.cli.test_results import files, stored
from tests.job.ranks import Reductions, job_of
from tests.report.test_pool import UNEVEN, pooled
from traceanalyzer import diagnose, load_job
from traceanalyzer.render.data.json import render_json
from traceanalyzer.report.rank_pool import Task
from traceanalyzer.report.rank_states import RankFile

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers in processes of their own; a nanny begins another where one ends.

    Their folder is their own, too: clusters that share one wait for each other's lock.
    """
    workers = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB"}
    folder = str(tmp_path_factory.mktemp("workers"))
    with distributed.LocalCluster(**workers, dashboard_address=None, local_directory=folder) as made:
        yield made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Four ranks, of which one is late."""
    job_of(Reductions(UNEVEN), tmp_path)
    return tmp_path


def pids(cluster: Any) -> list[int]:
    """Of the workers that live, as their nannies know them: a worker that has just ended answers nobody."""
    return [nanny.pid for nanny in cluster.workers.values()]


@pytest.mark.slow
@pytest.mark.parametrize("when", [0, 10])
def test_a_worker_that_is_killed_changes_nothing(cluster: Any, when: int, job: Path) -> None:
    """None is; or one while files are read; or one that has ranks, in the middle of the questions."""
    from traceanalyzer.runtime.cluster import Cluster

    victim, answers = pids(cluster)[0], 0

    def told(file: str, so_far: int, count: int) -> None:
        nonlocal answers
        answers += 1
        if answers == when:
            os.kill(victim, SIGKILL)

    pool = Cluster(cluster.scheduler_address, "traceanalyzer.report.rank_states:States")
    said = pooled(pool, job, told)
    pool.close()
    assert answers > when
    assert said == render_json(diagnose(load_job(job)))
    assert (victim in pids(cluster)) == (when == 0)


@pytest.mark.slow
def test_unfetched_answer_of_an_ended_worker_is_redone(
    cluster: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The future that was finished is lost when it is looked at, and finished once more some time later."""
    from distributed.client import FutureState

    from traceanalyzer.runtime.cluster import Cluster

    fetch, lose, lost = Cluster._answer, FutureState.lose, Event()
    seen: list[str] = []

    def late(self: Any, future: Any, task: Any) -> Any:
        if not lost.is_set():
            (owner,) = self._client.who_has([future])[future.key]
            os.kill(next(one.pid for one in cluster.workers.values() if one.worker_address == owner), SIGKILL)
            assert lost.wait(60)
            seen.append(future.status)
        return fetch(self, future, task)

    def told(state: Any) -> None:
        lose(state)
        lost.set()

    monkeypatch.setattr(Cluster, "_answer", late)
    monkeypatch.setattr(FutureState, "lose", told)
    with closing(Cluster(cluster.scheduler_address, "traceanalyzer.report.rank_states:States")) as pool:
        said = pooled(pool, job)
    assert seen == ["lost"]
    assert said == render_json(diagnose(load_job(job)))


@pytest.mark.slow
def test_a_task_that_was_given_up_is_an_error_and_no_answer(cluster: Any) -> None:
    from traceanalyzer.runtime.cluster import Cluster

    with closing(Cluster(cluster.scheduler_address, "traceanalyzer.report.rank_states:States")) as pool:
        future = pool._client.submit(time.sleep, 1)
        future.cancel()
        assert isinstance(pool._answer(future, Task(RankFile("rank0.json"))), CancelledError)


@pytest.mark.slow
def test_results_are_the_same_bytes_when_a_worker_is_killed(cluster: Any, job: Path, tmp_path: Path) -> None:
    from traceanalyzer.runtime.cluster import Cluster

    with closing(Cluster(cluster.scheduler_address, "traceanalyzer.report.rank_states:States")) as pool:
        stored(pool, job, tmp_path / "out", pids(cluster)[0])
    call("export", job, tmp_path / "here", "--results", "--run", "job")
    assert files(tmp_path / "out") == files(tmp_path / "here")


@pytest.mark.slow
def test_diagnose_asks_a_scheduler(cluster: Any, job: Path) -> None:
    assert diagnosed(job, "--scheduler", cluster.scheduler_address) == diagnosed(job)


def test_without_a_scheduler_it_is_refused(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.runtime.cluster._ANSWER_S", 0.2)
    assert "no scheduler answers" in refused("diagnose", job, "--scheduler", "tcp://127.0.0.1:9")
