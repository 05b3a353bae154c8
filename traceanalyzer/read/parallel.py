"""Several processes read one large file: this one the first part, workers the others."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.read.chunks import Chunks
from traceanalyzer.read.events import Collector
from traceanalyzer.read.parts import Part, Unsplittable, receive
from traceanalyzer.read.sources import Source

# A worker costs 0.15 s to start and to hand its part over, in which one process reads this much.
WORTH_BYTES = 16 << 20

# A program of its own rather than a fork: it runs everywhere, does not inherit the caller's threads or its
# __main__, and needs neither pandas nor pyarrow.
_PROGRAM = """
import gc, pickle, sys
gc.disable()
sys.path[:] = pickle.load(sys.stdin.buffer)
from traceanalyzer.read.parts import work
work(sys.stdout.buffer, *pickle.load(sys.stdin.buffer))
"""


def parts_of(source: Source, jobs: int | None) -> int:
    """How many processes are worth it for this file."""
    size = source.plain_bytes() if sys.executable else None
    return max(1, min(jobs or _cores(), (size or 0) // WORTH_BYTES))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_in_parts(
    path: str, parts: int, window_bytes: int, progress: Callable[[Source, int], None]
) -> tuple[Chunks, Collector] | None:
    """What reading the file as one gives, or None where it has to be read as one."""
    try:
        style = Chunks(Source(path), window_bytes).style()
        if not style.separator:
            return None
        size = Source(path).plain_bytes() or 0
        bounds = [size * part // parts for part in range(parts)] + [None]
        with _workers([(path, window_bytes, *bounds[k : k + 2], style) for k in range(1, parts)]) as outputs:
            first, collector = Part(Source(path), window_bytes, 0, bounds[1], style), Collector()
            for batch in first.batches():
                collector.add(batch, first.text)
                progress(first.source, first.events)
            end = first.end
            for output in outputs:
                begin, after, header = receive(collector, output)
                if begin != end:
                    return None
                first.envelope.header |= header
                end = after
        return first, collector
    except (Unsplittable, TraceAnalyzerError, OSError, EOFError, pickle.UnpicklingError):
        return None


@contextmanager
def _workers(tasks: list[tuple[object, ...]]) -> Iterator[list[IO[bytes]]]:
    """The outputs of one process per task; whatever happens, no process is left behind."""
    command = [sys.executable, "-P", "-c", _PROGRAM]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    started: list[subprocess.Popen[bytes]] = []
    try:
        for task in tasks:
            worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, env=environment)
            started.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(pickle.dumps(sys.path) + pickle.dumps(task))  # the task needs the path to load
            worker.stdin.close()
        yield [worker.stdout for worker in started if worker.stdout is not None]
    finally:
        for worker in started:
            worker.kill()
            worker.__exit__(None, None, None)
