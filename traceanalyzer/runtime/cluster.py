"""Ranks of a job on the workers of a Dask cluster, next to their files; needs the extra `cluster`."""

from collections.abc import Callable, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Any

from traceanalyzer.model.errors import BadOption
from traceanalyzer.runtime.pool import Lost, Task
from traceanalyzer.version import install_command

_SHARE = 0.5  # of a worker's memory, from which on ranks go to its disk: Dask itself begins at 0.6
_ANSWER_S = 30  # in which a scheduler answers


class Cluster:
    """The workers that a scheduler knows: a `Pool`.

    A rank is asked where it was read. Where that worker is gone another one reads the file and is asked all again.

    `states` is the `module:name` of what makes, given a limit in bytes, what a worker keeps between tasks.

    Raises BadOption: no scheduler answers at the address, `tcp://host:8786`, or Dask is not installed.
    """

    def __init__(self, address: str, states: str) -> None:
        self._states = states
        try:
            from distributed import Client

            self._client: Any = Client(address, timeout=_ANSWER_S, set_as_default=False)
        except ImportError:
            remedy = install_command("cluster")
            raise BadOption("--scheduler needs dask.distributed", remedy=remedy) from None
        except (OSError, ValueError) as error:
            raise BadOption(f"--scheduler {address}: no scheduler answers: {error}") from None
        self._owner: dict[str, str] = {}

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        from distributed import as_completed

        known = self._client.scheduler_info(n_workers=-1)["workers"]
        futures: dict[Any, Task] = {}
        for task in tasks:
            owner = self._owner.get(task.key)
            where = {"workers": [owner], "allow_other_workers": True} if owner in known else {}
            futures[self._client.submit(answered, task, self._states, pure=False, **where)] = task
        answers: dict[str, Any] = {}
        for future in as_completed(list(futures), loop=self._client.loop, raise_errors=False):
            task = futures[future]
            answers[task.key] = self._answer(future, task)
            told(task)
        return answers

    def _answer(self, future: Any, task: Task) -> Any:
        from distributed import KilledWorker

        try:  # its worker may have ended since it was finished: then it is made again, and waited for
            answer, self._owner[task.key] = future.result()
        except KilledWorker:
            return Lost("its workers ended one after the other, perhaps out of memory", where=task.key)
        except Exception as error:
            return error
        return answer

    def close(self) -> None:
        """Leave the cluster as it is."""
        self._client.close()


def answered(task: Task, states: str) -> tuple[Any, str]:
    """(what the task gives, the address of the worker that did it): what a worker runs."""
    from distributed import get_worker

    worker = get_worker()
    limit_bytes = getattr(worker.memory_manager, "memory_limit", None)
    return task.run(_states(states, limit_bytes)), worker.address


@cache
def _states(name: str, limit_bytes: int | None) -> Any:
    return resolve_name(name)(None if limit_bytes is None else int(_SHARE * limit_bytes))
