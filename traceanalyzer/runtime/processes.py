"""Ranks of a job in processes of this machine: as many as there are cores, and as memory allows."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from pkgutil import resolve_name
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the processes are to begin before this one imports what it needs later
    from traceanalyzer.runtime.pool import Task

_TRIES = 2  # a process that ends twice over one file ends over it every time
_BATCH = 16  # questions to one process at a time: each message takes as long as a small answer
# No threads of numpy, and no modules from the folder in which the user works.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}

_Batch = tuple["Task", ...]


class Processes:
    """Processes of this machine, each with some of the ranks: a `Pool`.

    `states` is the `module:name` of what makes, given the `most_bytes` of memory that each may hold, what a process
    keeps between tasks. Raises OSError: the system has no semaphores, which processes share.
    """

    def __init__(self, count: int, states: str, most_bytes: int | None = None) -> None:
        self.workers = [Worker(states, most_bytes) for _ in range(count)]
        self._owner: dict[str, Worker] = {}

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        """As `Pool` has it."""
        waiting: dict[Worker | None, deque[_Batch]] = {one: deque() for one in (None, *self.workers)}
        for owner, queue in waiting.items():
            owned = [task for task in tasks if self._owner.get(task.key) is owner]
            size = 1 if owner is None else _BATCH
            queue.extend(tuple(owned[at : at + size]) for at in range(0, len(owned), size))
        answers: dict[str, Any] = {}
        failures: Counter[str] = Counter()
        running: dict[Future[list[Any]], tuple[Worker, _Batch]] = {}
        idle = list(self.workers)
        while True:
            for worker in idle:
                if queue := waiting[worker] or waiting[None]:
                    batch = queue.popleft()
                    running[worker.submit(batch)] = worker, batch
            if not running:
                return answers
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            idle = []
            for future in done:
                worker, batch = running.pop(future)
                idle.append(worker)
                found = self._found(future, worker, batch, failures)
                if found is None:
                    waiting[worker].extendleft((task,) for task in reversed(batch))
                    continue
                for task, answer in zip(batch, found, strict=True):
                    self._owner[task.key], answers[task.key] = worker, answer
                    told(task)

    @staticmethod
    def _found(
        future: Future[list[Any]], worker: Worker, batch: _Batch, failures: Counter[str]
    ) -> list[Any] | None:
        """The answers; None where the tasks are to be done again, each alone, since the process ended."""
        try:
            return future.result()
        except BrokenProcessPool:
            worker.restart()
            if len(batch) > 1:
                return None
            key = batch[0].key
            failures[key] += 1
            if failures[key] < _TRIES:
                return None
            from traceanalyzer.runtime.pool import Lost

            return [Lost("its process ended each time, perhaps out of memory", where=key)]
        except Exception as error:  # an answer that cannot be pickled
            return [error] * len(batch)

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.end()


class Worker:
    """One process; begun again where it ends, since every answer is told by its task."""

    def __init__(self, states: str, most_bytes: int | None) -> None:
        self._begin_with = states, most_bytes
        self._begin()

    def _begin(self) -> None:
        self._executor = ProcessPoolExecutor(1, get_context("spawn"), _prepare, self._begin_with)
        with _environment():
            self._pid = self._executor.submit(os.getpid)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._pid.result()

    def submit(self, batch: _Batch) -> Future[list[Any]]:
        """The answers to come."""
        try:
            return self._executor.submit(_answers, batch)
        except BrokenProcessPool:  # it ended while it had nothing to do
            self.restart()
            return self._executor.submit(_answers, batch)

    def restart(self) -> None:
        """Begin again, without what the process knew."""
        self.end()
        self._begin()

    def end(self) -> None:
        """Whatever it does, it ends."""
        with suppress(BrokenProcessPool, OSError):
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._executor.shutdown(cancel_futures=True)


@contextmanager
def _environment() -> Iterator[None]:
    """The variables that a process begins with."""
    before = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name in _ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(before)


# -- in the process --------------------------------------------------------------------------------------

_states: Any = None


def _prepare(states: str, most_bytes: int | None) -> None:
    """Write nothing where the parent's output goes, end with the parent, and make what is kept between tasks."""
    global _states
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    Thread(target=_end_with_parent, daemon=True).start()
    _states = resolve_name(states)(most_bytes)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answers(batch: _Batch) -> list[Any]:
    return [task.run(_states) for task in batch]
