"""Processes that have the ranks: who is asked, what becomes of one that ends, and what they begin with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from traceanalyzer.report.rank_pool import Lost
from traceanalyzer.runtime.processes import Processes


@dataclass
class Memory:
    """What a process of these tests keeps between tasks."""

    most_bytes: int | None
    asked: int = 0


@dataclass(frozen=True)
class Ask:
    """A task: what the process says of itself; some end it."""

    key: str
    ends: str = "never"
    once: bool = False

    def run(self, states: Memory) -> Any:
        if self.ends == "first" and not Path(self.key).exists():
            Path(self.key).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ends == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ends == "unpicklable":
            return lambda: None
        states.asked += 1
        print("printed by a process")
        return os.getpid(), states.most_bytes, sys.path, dict(os.environ)

    def questions(self) -> bytes:
        return self.key.encode()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Two, which may hold 77 bytes each."""
    with closing(Processes(2, f"{__name__}:Memory", 77)) as pool:
        yield pool


def answers(pool: Processes, *tasks: Ask) -> dict[str, Any]:
    """What is answered, each task told once."""
    told: list[Any] = []
    found = pool.run(tasks, told.append)
    assert sorted(task.key for task in told) == sorted(task.key for task in tasks)
    return found


def test_a_file_stays_with_its_process(processes: Processes) -> None:
    tasks = [Ask(name) for name in "abcdef"]
    first = {key: answer[0] for key, answer in answers(processes, *tasks).items()}
    assert set(first.values()) <= {worker.pid for worker in processes.workers}
    for _ in range(3):
        again = answers(processes, *reversed(tasks))
        assert {key: answer[0] for key, answer in again.items()} == first


def test_a_process_begins_without_threads_and_the_current_folder(
    processes: Processes, capfd: pytest.CaptureFixture[str]
) -> None:
    _, most_bytes, path, environment = answers(processes, Ask("a"))["a"]
    assert most_bytes == 77
    assert "" not in path
    assert {environment[name] for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")} == {"1"}
    assert environment["PYTHONSAFEPATH"] == "1"
    assert "PYTHONSAFEPATH" not in os.environ
    assert capfd.readouterr().out == ""


def test_a_process_that_ends_once_begins_again(processes: Processes, tmp_path: Path) -> None:
    found = answers(processes, Ask(str(tmp_path / "flag"), "first"), Ask("b"))
    assert [answer[1] for answer in found.values()] == [77, 77]


def test_a_file_that_ends_its_process_twice_is_lost(processes: Processes, tmp_path: Path) -> None:
    answers(processes, Ask("a"), Ask("b"), Ask("c"))
    found = answers(processes, Ask("b"), Ask("a", "always"), Ask("c"))
    assert isinstance(found["a"], Lost)
    assert found["a"].where == "a"
    assert [found[key][1] for key in "bc"] == [77, 77]


def test_an_idle_process_that_was_killed_is_replaced(processes: Processes) -> None:
    before = answers(processes, Ask("a"))["a"][0]
    os.kill(before, signal.SIGKILL)
    assert answers(processes, Ask("a"))["a"][0] != before


def test_an_answer_that_cannot_be_sent_is_an_error(processes: Processes) -> None:
    assert isinstance(answers(processes, Ask("a", "unpicklable"))["a"], Exception)


def test_processes_end_when_their_parent_is_killed() -> None:
    code = (
        "import sys, time; sys.path[:0] = ['.']\n"
        "from tests.report.test_workers import Ask, Processes\n"
        "if __name__ == '__main__':\n"
        "    pool = Processes(1, 'tests.report.test_workers:Memory')\n"
        "    print(pool.run([Ask('a')], lambda _: None)['a'][0], flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(200):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").exists() and ") Z " in Path(f"/proc/{worker}/stat").read_text():
            return  # ended; nobody waits for it
        time.sleep(0.05)
    pytest.fail("the process outlives its parent")
