"""What costs time in Python itself: its cyclic collector, its lock, and the import of pandas; and what it may use."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["cores", "free_bytes", "pd", "side_by_side", "threads_for", "uncollected"]

T = TypeVar("T")

# What runs under the interpreter's lock, half of an analysis, leaves a third thread nothing to do.
_MAX_THREADS = 2
# Rows of both lanes; numpy passes over fewer before a thread has its turn.
_MIN_THREADED_ROWS = 200_000


class _LazyPandas:
    """Stands for pandas, whose import takes 0.3 s: each name is fetched once and becomes an attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import pandas

        value = getattr(pandas, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _LazyPandas()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the cyclic collector: it would walk over the same objects again and again and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_bytes() -> int | None:
    """Memory that programs may take without others going to disk; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def threads_for(rows: int) -> int:
    """Number of threads that pay for a trace of so many rows."""
    return min(cores(), _MAX_THREADS) if rows >= _MIN_THREADED_ROWS else 1


def side_by_side(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """What each task gives, in their order, whichever thread did it and when.

    Each free thread takes the first task that is left. Where one fails no further ones are begun.

    Raises Exception: what the first of the tasks that failed raised.
    """
    if threads == 1:
        return [task() for task in tasks]
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait  # takes 10 ms to import

    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(task) for task in tasks]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
    return [task.result() for task in begun]
