"""Files and parts of traces that tests of reading and commands share."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.read.job_ranks import Declared
from traceanalyzer.read.parallel import Unsplittable, work

WINDOW = 2_000


def long_trace() -> TraceBuilder:
    """Operators without quirks, so that every cut is a good one."""
    trace = TraceBuilder()
    for number in range(400):
        trace.op(f"op{number % 7}", number * 1_000, 900, sizes=number % 5)
        trace.kernel(number * 1_000 + 100, 700, number)
    return trace


@contextmanager
def in_this_process(tasks: list[Any]) -> Iterator[list[io.BytesIO]]:
    """What workers write, without the 0.2 s that each of them takes to start."""
    outputs = [io.BytesIO() for _ in tasks]
    for out, task in zip(outputs, tasks, strict=True):
        with suppress(Unsplittable):  # as a worker ends: without a word
            work(out, *task)
        out.seek(0)
    yield outputs


def tar(*members: tuple[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def declared(source: str, rank: int | None = None, start: int = 0, end: int = 100, **more: Any) -> Declared:
    return Declared(source, rank, start, end, **more)


MS = 1_000_000


def built(**header: object) -> TraceBuilder:
    made = TraceBuilder(**header)
    for at, begin in enumerate((0, 7 * MS)):
        made.launched((begin, 10_000), (begin + 20_000, MS), at + 1)
    return made
