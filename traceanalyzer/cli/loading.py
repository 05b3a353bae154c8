"""Traces for commands: read with a progress line on a terminal, by rank if there are several."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from traceanalyzer.cli.output import dumb, tell
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.units import format_bytes

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Job, Trace
    from traceanalyzer.read.folders import Layout
    from traceanalyzer.read.load import Progress

SILENT_S = 1.0
EVERY_S = 0.2
_FILE_WIDTH = 50  # characters of a path that are shown, the last
_ERASE = "\r\x1b[K"
# glibc's own names, from malloc.h, and the largest block that it will keep.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BYTES = 32 << 20
_KEPT_BYTES = 1 << 30


def load_all(
    paths: Sequence[Path] | Layout,
    *,
    quiet: bool = False,
    jobs: int | None = None,
    cache: bool = False,
    meanwhile: Callable[[], object] | None = None,
    tensors: Path | None = None,
) -> Trace | Job:
    """The trace of one file, or the traces of one job: of several files, or of what is in a folder.

    `meanwhile` is called once reading has begun, maybe in other processes, which take a while to start; `tensors` is
    the execution trace of a single trace.
    """
    from traceanalyzer.read.execution_trace import with_tensors
    from traceanalyzer.read.folders import Layout, layout_of
    from traceanalyzer.read.load import load_file, load_layout

    reuse_freed_memory()
    layout = paths if isinstance(paths, Layout) else layout_of(paths)
    with shown_progress(quiet) as line:
        progress = _after(meanwhile, line) if meanwhile else line
        job = load_layout(layout, partial(load_file, jobs=jobs, cache=cache, progress=progress))
    if len(job) == 1 and not layout.is_job:
        return with_tensors(next(iter(job.values())), tensors)
    if tensors is not None:
        raise BadOption("--tensors is the execution trace of one trace, and there are several ranks")
    warn_of_unranked(sum(trace.meta.rank is None for trace in job.values()), len(job))
    name_iteration(job.iterations, [trace.meta.source for trace in job.values()])
    return job


def _after(first: Callable[[], object], progress: Progress | None) -> Progress:
    """The same progress; `first` is called before its first report."""
    due = [first]

    def report(done: int, total: int | None, events: int) -> None:
        while due:
            due.pop()()
        if progress is not None:
            progress(done, total, events)

    return report


def load_one(path: Path) -> Trace:
    from traceanalyzer.read.load import load

    reuse_freed_memory()
    with shown_progress() as progress:
        return load(path, progress=progress)


def warn_of_unranked(unranked: int, traces: int) -> None:
    """Warn if files do not declare their rank: that they belong to one job is the user's word."""
    if unranked and traces > 1:
        what = f"{unranked} of the {traces} traces declare no rank"
        tell(f"warning: {what} and are numbered in the order given, as if of one job")


def name_iteration(iterations: Mapping[str, Sequence[str]], sources: Sequence[str]) -> None:
    """Name on standard error the iteration of a job that the read files are of; nothing if there is but one."""
    for name, files in iterations.items():
        if set(files) & set(sources):
            every = list(iterations)
            tell(f"{len(every)} iterations of a job, {every[0]} to {every[-1]}: {name} is read")


class ProgressLine:
    """Call it with (bytes read, bytes in all or None, events read); leave it to erase the line."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._shown = stream, clock, False
        self._begun = clock()
        self._due = self._begun + SILENT_S

    def __call__(self, done: int, total: int | None, events: int) -> None:
        now = self._clock()
        if now >= self._due:
            done = min(done, total or done)  # of a file in parts their number times what the first one is at
            size = f"{format_bytes(done)} of {format_bytes(total)}" if total else format_bytes(done)
            self._show(now, f"{size}, {events:,} events, {format_bytes(done / (now - self._begun))}/s")

    def of_rank(self, file: str, done: int, count: int) -> None:
        now = self._clock()
        if now >= self._due:
            self._show(now, f"{done} of {count} ranks, {file[-_FILE_WIDTH:]}")

    def _show(self, now: float, text: str) -> None:
        self._due, self._shown = now + EVERY_S, True
        self._stream.write(f"{_ERASE}{text}")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()


@contextmanager
def shown_progress(quiet: bool = False) -> Iterator[ProgressLine | None]:
    """A line on the terminal, where the user looks at one and did not ask for quiet."""
    if quiet or dumb() or not sys.stderr.isatty():
        yield None
        return
    with ProgressLine(sys.stderr) as progress:
        yield progress


def reuse_freed_memory() -> bool:
    """Let freed columns be used again instead of being given back and fetched anew; whether that could be set.

    By default glibc maps every large block afresh, and the kernel then clears each of its pages at first touch.
    Indexes are a sequence of short-lived columns of some megabytes: where page faults are slow, as in virtual
    machines, half of their time went there. For commands only: a library leaves its caller's allocator alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows has no CDLL(None), macOS and musl have no mallopt
        return False
    accepted = mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    return bool(accepted and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
