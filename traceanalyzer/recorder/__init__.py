"""Records a program: times steps without the profiler, records some, times again, and writes all of it into the file.

    from traceanalyzer.recorder import profile

    with profile("trace.json.gz", skip=10, steps=6) as recording:
        for batch in loader:
            train_step(batch)
            recording.step()

`traceanalyzer record -- python train.py` does the same to a program that nobody edits. Nothing here imports torch but
functions that run in the program, and nothing imports the analyzer: the program needs torch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import Session


@contextmanager
def profile(
    path: str = "trace.json.gz",
    *,
    steps: int = 6,
    skip: int = 10,
    timed: int = 24,
    shapes: bool = False,
    stacks: bool = False,
    memory: bool = False,
    tensors: bool | None = None,
    force: bool = False,
) -> Iterator[Session]:
    """A recording session for a loop that calls `step()` at the end of each step.

    Args:
        path: the trace to write, `.json` or `.json.gz`; of several ranks `{rank}` or `-rankN` is put in.
        steps: how many to record.
        skip: how many to leave to warm-up first.
        timed: how many to time without the profiler, before the window and again after it.
        shapes, stacks, memory: switches of the profiler; stacks slow the recorded steps most.
        tensors: record an execution trace of two more steps; None: if the program is a single process.
        force: replace a file at `path`; else the trace gets another name, `trace-2.json.gz`.

    Yields:
        a `Session`; the path that it wrote is `session.written` afterwards, None where there were too few steps.
    """
    from .options import Options
    from .session import Session

    switches = {"shapes": shapes, "stacks": stacks, "memory": memory, "tensors": tensors, "force": force}
    session = Session(Options(path=path, steps=steps, skip=skip, timed=timed, **switches))  # type: ignore[arg-type]
    try:
        yield session
    finally:
        session.close()
