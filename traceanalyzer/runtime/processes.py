"""Ranks of a job in processes of this machine: as many as there are cores, and as memory allows."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the processes are to begin before this one imports what it needs later
    from traceanalyzer.runtime.pool import Task

# A program of its own rather than a fork, as in read/parallel.py.
_PROGRAM = """
import gc, pickle, sys
out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
from traceanalyzer.cli.loading import reuse_freed_memory
reuse_freed_memory()
from traceanalyzer.runtime.processes import serve
serve(sys.stdin.buffer, out)
"""
_TRIES = 2  # a process that ends twice over one file ends over it every time


class Processes:
    """Processes of this machine, each with some of the ranks: a `Pool`.

    Args:
        count: how many.
        states: `module:name` of what makes, given `most_bytes`, what a process keeps between tasks.
        most_bytes: of memory that each may hold before it puts ranks on disk.
    """

    def __init__(self, count: int, states: str, most_bytes: int | None = None) -> None:
        self._workers = [_Worker(states, most_bytes) for _ in range(count)]
        self._owner: dict[str, _Worker] = {}

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        """As `Pool` has it."""
        own: dict[int, deque[Task]] = {id(worker): deque() for worker in self._workers}
        free: deque[Task] = deque()
        for task in tasks:
            owner = self._owner.get(task.key)
            (free if owner is None else own[id(owner)]).append(task)
        answers: dict[str, Any] = {}
        lock = Lock()

        def work(worker: _Worker) -> None:
            mine = own[id(worker)]
            while mine or free:
                try:
                    task = (mine or free).popleft()
                except IndexError:  # another one was quicker
                    return
                answer = worker.answer(task)
                with lock:
                    self._owner[task.key] = worker
                    answers[task.key] = answer
                    told(task)

        threads = [Thread(target=work, args=(worker,), daemon=True) for worker in self._workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()


class _Worker:
    """One process; begun again where it ends, since every answer is told by its task."""

    def __init__(self, states: str, most_bytes: int | None) -> None:
        self._begin_with = states, most_bytes
        self.process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-P", "-c", _PROGRAM]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, env=environment)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(sys.path) + pickle.dumps(self._begin_with))
        process.stdin.flush()
        return process

    def answer(self, task: Task) -> Any:
        """What the process answers, or the error that it raised or ended with."""
        for _ in range(_TRIES):
            try:
                stdin, stdout = self.process.stdin, self.process.stdout
                assert stdin is not None
                assert stdout is not None
                pickle.dump(task, stdin, pickle.HIGHEST_PROTOCOL)
                stdin.flush()
                return pickle.load(stdout)
            except (OSError, EOFError, pickle.UnpicklingError):
                self.end()
                self.process = self._begun()
        from traceanalyzer.runtime.pool import Lost

        problem = "its process ended each time, perhaps out of memory"
        return Lost(problem, where=task.key)

    def end(self) -> None:
        """Whatever it does, it ends."""
        self.process.kill()
        with suppress(OSError):  # what it has not read
            self.process.__exit__(None, None, None)


def serve(tasks: IO[bytes], out: IO[bytes]) -> None:
    """Do tasks until there are no more: what a process of `Processes` runs."""
    name, most_bytes = pickle.load(tasks)
    states = resolve_name(name)(most_bytes)
    with suppress(EOFError):
        while True:
            pickle.dump(pickle.load(tasks).run(states), out, pickle.HIGHEST_PROTOCOL)
            out.flush()
