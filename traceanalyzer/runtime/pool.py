"""What is asked of processes: tasks about files, each answered where the file's state is."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from traceanalyzer.model.errors import UnreadableTrace


class Lost(UnreadableTrace):
    """The process that had a file's state ended, and so did the next."""


class Task(Protocol):
    """One question about one file; it can be pickled."""

    @property
    def key(self) -> str:
        """Path of the file: tasks with the same key go to the same process."""

    @property
    def once(self) -> bool:
        """Whether the file is read for this task alone, so that its answer is not stored."""

    def run(self, states: Any) -> Any:
        """The answer, of what the process keeps between tasks; the error that it fails with is returned, too."""

    def questions(self) -> bytes:
        """Equal for tasks that have the same answer while the file and the code stay as they are."""


class Pool(Protocol):
    """Processes that do tasks, on this machine or on others."""

    def run(self, tasks: Sequence[Any], told: Callable[[Any], None]) -> dict[str, Any]:
        """Key -> answer of its task; `Lost` where the processes ended. `told` is called after each task."""

    def close(self) -> None:
        """End the processes."""
