"""What stands for the processes that read the ranks of a job."""

from collections.abc import Callable, Sequence
from typing import Any

from traceanalyzer.report.rank_pool import Task
from traceanalyzer.report.rank_states import States


class Here:
    """Stands for the processes, without any."""

    def __init__(self) -> None:
        self.states, self.asked = States(), list[Task]()

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        """As `Pool` has it."""
        self.asked += tasks
        answers = {}
        for task in tasks:
            answers[task.file.path] = task.run(self.states)
            told(task)
        return answers

    def close(self) -> None:
        """Nothing to end."""
