"""Traces for commands: read with progress on a terminal, by rank where there are several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.cli.heap import keep_freed_memory
from traceanalyzer.model.errors import BadOption

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Trace, TraceSet


def load_all(
    paths: Sequence[Path], *, quiet: bool = False, jobs: int | None = None, cache: bool = False
) -> Trace | TraceSet:
    """One trace, or the traces of one job by rank; those that declare no rank are numbered as given.

    Raises:
        BadOption: two traces have one rank.
    """
    from traceanalyzer.model.trace import TraceSet

    loaded = [_load(path, quiet, jobs, cache) for path in paths]
    if len(loaded) == 1:
        _warn_of_unranked(loaded)
        return loaded[0]
    job = TraceSet()
    for trace in _flat(loaded):
        rank = len(job) if trace.meta.rank is None else trace.meta.rank
        if rank in job:
            names = f"{job[rank].meta.source} and {trace.meta.source}"
            raise BadOption(f"two traces of rank {rank}: {names}", remedy="Diagnose them one at a time.")
        job[rank] = trace
    _warn_of_unranked([job])
    return job


def load_one(path: Path) -> Trace:
    """One trace, or the only one of a folder.

    Raises:
        BadOption: the folder has several.
    """
    loaded = _flat([_load(path)])
    if len(loaded) == 1:
        return loaded[0]
    remedy = "Pass one of the files in it: a table is of one process."
    raise BadOption(f"holds the traces of {len(loaded)} ranks", where=path, remedy=remedy)


def _load(path: Path, quiet: bool = False, jobs: int | None = None, cache: bool = False) -> Trace | TraceSet:
    from traceanalyzer.cli.progress import ProgressLine
    from traceanalyzer.read.load import load

    keep_freed_memory()
    if quiet or not sys.stderr.isatty():
        return load(path, jobs=jobs, cache=cache)
    with ProgressLine(sys.stderr) as progress:
        return load(path, jobs=jobs, cache=cache, progress=progress)


def _flat(loaded: Sequence[Trace | TraceSet]) -> list[Trace]:
    return [trace for one in loaded for trace in (one.values() if isinstance(one, dict) else [one])]


def _warn_of_unranked(loaded: Sequence[Trace | TraceSet]) -> None:
    """Files of one process each say nothing of a job: that they belong together is the user's word."""
    traces = _flat(loaded)
    unranked = sum(trace.meta.rank is None for trace in traces)
    if unranked and len(traces) > 1:
        what = f"{unranked} of the {len(traces)} traces declare no rank"
        print(f"warning: {what} and are numbered in the order given, as if of one job", file=sys.stderr)
