"""Independent pieces of work side by side: numpy lets go of the interpreter while it passes over long arrays."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

_MOST = 2  # what runs under the interpreter's lock, half of an analysis, leaves a third thread nothing to do
_WORTH_ROWS = 50_000  # of both lanes; fewer are passed over before a thread has its turn


def threads_for(rows: int) -> int:
    """How many threads pay for a trace of so many rows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST) if rows >= _WORTH_ROWS else 1


def side_by_side(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """What each task gives, in their order, whichever thread did it and when.

    Each free thread takes the first task that is left. Where one fails no further ones are begun.

    Raises:
        Exception: what the first of the tasks that failed raised.
    """
    results: dict[int, T] = {}
    failed: dict[int, BaseException] = {}
    waiting = deque(range(len(tasks)))

    def work() -> None:
        while waiting and not failed:
            try:
                at = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                results[at] = tasks[at]()
            except BaseException as error:  # of this thread, to be raised by the one that waits for it
                failed[at] = error

    helpers = [Thread(target=work, daemon=True) for _ in range(min(threads, len(tasks)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[min(failed)]
    return [results[at] for at in range(len(tasks))]
