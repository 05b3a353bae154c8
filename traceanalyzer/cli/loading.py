"""Traces for commands: read with progress on a terminal, by rank where there are several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.cli.heap import keep_freed_memory
from traceanalyzer.cli.output import tell

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Job, Trace
    from traceanalyzer.read.load import Progress


def load_all(
    paths: Sequence[Path],
    *,
    quiet: bool = False,
    jobs: int | None = None,
    cache: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> Trace | Job:
    """The trace of one file, or the traces of one job: of several files, or of what is in a folder.

    Args:
        meanwhile: called once reading has begun, in other processes too where a file is large: this one would wait
            for them at the end, since they take a while to start.

    Raises:
        UnreadableTrace, NotATrace: as `load_job`.
    """
    from traceanalyzer.cli.progress import told_progress
    from traceanalyzer.read.load import load_any, load_job

    keep_freed_memory()
    with told_progress(quiet) as line:
        progress = _after(meanwhile, line) if meanwhile else line
        if len(paths) == 1 and not paths[0].is_dir():
            return load_any(paths[0], jobs=jobs, cache=cache, progress=progress)
        job = load_job(*paths, jobs=jobs, cache=cache, progress=progress)
    warn_of_unranked(sum(trace.meta.rank is None for trace in job.values()), len(job))
    tell_of_iterations(job.iterations, [trace.meta.source for trace in job.values()])
    return job


def _after(first: Callable[[], object], progress: Progress | None) -> Progress:
    """The same progress; something else comes before it is told for the first time."""
    due = [first]

    def told(done: int, total: int | None, events: int) -> None:
        while due:
            due.pop()()
        if progress is not None:
            progress(done, total, events)

    return told


def load_one(path: Path) -> Trace:
    """One trace, or the only one of a folder.

    Raises:
        UnreadableTrace, NotATrace: as `load`.
    """
    from traceanalyzer.cli.progress import told_progress
    from traceanalyzer.read.load import load

    keep_freed_memory()
    with told_progress() as progress:
        return load(path, progress=progress)


def warn_of_unranked(unranked: int, traces: int) -> None:
    """Files of one process each say nothing of a job: that they belong together is the user's word."""
    if unranked and traces > 1:
        what = f"{unranked} of the {traces} traces declare no rank"
        tell(f"warning: {what} and are numbered in the order given, as if of one job")


def tell_of_iterations(iterations: Mapping[str, Sequence[str]], read: Sequence[str]) -> None:
    """Which of several iterations of a job is read; nothing where there is but one."""
    for name, files in iterations.items():
        if set(files) & set(read):
            every = list(iterations)
            tell(f"{len(every)} iterations of a job, {every[0]} to {every[-1]}: {name} is read")
