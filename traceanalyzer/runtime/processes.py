"""Ranks of a job in processes of this machine: as many as there are cores, and as memory allows."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
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


class ProcessEnded(Exception):
    """A process ended before its answers had arrived."""


class Processes:
    """Processes of this machine, each with some of the ranks: a `Pool`.

    `states` is the `module:name` of what makes, given the `most_bytes` of memory that each may hold, what a process
    keeps between tasks. Raises OSError: the system begins no process.
    """

    def __init__(self, count: int, states: str, most_bytes: int | None = None) -> None:
        self.workers = [Worker(states, most_bytes) for _ in range(count)]
        self._owner: dict[str, Worker] = {}

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        waiting: dict[Worker | None, deque[_Batch]] = {one: deque() for one in (None, *self.workers)}
        for owner, queue in waiting.items():
            owned = [task for task in tasks if self._owner.get(task.key) is owner]
            size = 1 if owner is None else _BATCH
            queue.extend(tuple(owned[at : at + size]) for at in range(0, len(owned), size))
        answers: dict[str, Any] = {}
        failures: Counter[str] = Counter()
        running: dict[Worker, _Batch] = {}
        idle = list(self.workers)
        while True:
            for worker in idle:
                if queue := waiting[worker] or waiting[None]:
                    running[worker] = queue.popleft()
                    worker.submit(running[worker])
            if not running:
                return answers
            ready = wait([worker.connection for worker in running])
            idle = [worker for worker in running if worker.connection in ready]
            for worker in idle:
                batch = running.pop(worker)
                found = self._found(worker, batch, failures)
                if found is None:
                    waiting[worker].extendleft((task,) for task in reversed(batch))
                    continue
                for task, answer in zip(batch, found, strict=True):
                    self._owner[task.key], answers[task.key] = worker, answer
                    told(task)

    @staticmethod
    def _found(worker: Worker, batch: _Batch, failures: Counter[str]) -> list[Any] | None:
        """The answers; None where the tasks are to be done again, each alone, since the process ended."""
        try:
            return worker.answers()
        except ProcessEnded:
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
        for worker in self.workers:
            worker.end()


class Worker:
    """One process; begun again where it ends, since every answer is told by its task."""

    def __init__(self, states: str, most_bytes: int | None) -> None:
        self._begin_with = states, most_bytes
        self._begin()

    def _begin(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *self._begin_with))
        with _environment():
            self.process.start()
        # With the other end in the process alone, a message that its death cuts short ends there.
        theirs.close()

    def submit(self, batch: _Batch) -> None:
        try:
            self.connection.send(batch)
        except OSError:  # it ended while it had nothing to do
            self.restart()
            self.connection.send(batch)

    def answers(self, most_s: float | None = None) -> list[Any]:
        """The answers to the batch that was submitted last.

        Raises TimeoutError: none within `most_s`. Raises ProcessEnded, and what the tasks raised.
        """
        if not self.connection.poll(most_s):
            raise TimeoutError
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ProcessEnded from None
        answers, error = pickle.loads(message)
        if error is not None:
            raise error
        return list(answers)

    def restart(self) -> None:
        self.end()
        self._begin()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


@contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name in _ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(before)


def _serve(connection: Connection, states: str, most_bytes: int | None) -> None:
    """Answer batches until the parent ends."""
    _prepare()
    kept = resolve_name(states)(most_bytes)
    while True:
        try:
            batch: _Batch = connection.recv()
        except EOFError:
            return
        try:
            message = pickle.dumps(([task.run(kept) for task in batch], None))
        except Exception as error:
            message = pickle.dumps((None, error))
        connection.send_bytes(message)


def _prepare() -> None:
    """Write nothing where the parent's output goes, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
