"""A file or a folder -> Trace or TraceSet."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path


from traceanalyzer.errors import NotATrace, UnreadableTrace
from traceanalyzer.read.chunks import Chunks
from traceanalyzer.read.events import Collector
from traceanalyzer.read.frames import build_frame
from traceanalyzer.read.links import without_false_links
from traceanalyzer.read.meta import build_meta
from traceanalyzer.read.sources import BLOCK_BYTES, STDIN, Source
from traceanalyzer.trace import Damage, Trace, TraceSet

Progress = Callable[[int, int | None, int], None]
"""Called as (bytes consumed, bytes in all or None, events read) while a file is read."""

_TRACE_NAME = re.compile(r"\.json(\.gz|\.zst)?$")


def load(
    path: str | Path, *, progress: Progress | None = None, window_bytes: int = BLOCK_BYTES
) -> Trace | TraceSet:
    """Read a trace, or every trace of a folder.

    Args:
        path: .json, .json.gz or .json.zst as torch.profiler exports it; "-" for standard input; or a folder
            of them, one per rank.
        progress: called now and then with what has been read.
        window_bytes: bytes parsed at a time; the result does not depend on it.

    Raises:
        UnreadableTrace: missing, empty, not JSON, or a folder without traces.
        NotATrace: JSON, but without events of torch.profiler.
    """
    if str(path) != STDIN and Path(path).is_dir():
        return _load_folder(Path(path), progress, window_bytes)
    return load_file(path, progress, window_bytes)


def load_file(path: str | Path, progress: Progress | None = None, window_bytes: int = BLOCK_BYTES) -> Trace:
    """Read one file; see `load`."""
    source = Source(path)
    chunks = Chunks(source, window_bytes)
    collector = Collector()
    with _collector_paused():
        for batch in chunks.batches():
            collector.add(batch, chunks.text)
            if progress is not None:
                progress(source.consumed, source.size, chunks.events)
    return _finished(chunks, collector)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A batch is a tree without cycles: walking it again and again finds nothing and takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _finished(chunks: Chunks, collector: Collector) -> Trace:
    collector.finish()
    if not any(layout.rows for layout in collector.layouts.values()):
        raise _no_rows(chunks)
    cpu, gpu = build_frame(collector, "cpu"), build_frame(collector, "gpu")
    meta = build_meta(chunks, collector, cpu, gpu)
    cpu, gpu = without_false_links(cpu, gpu, meta.dialect)
    lazy = {name: partial(build_frame, collector, name) for name in ("python", "memory")}
    return Trace(cpu, gpu, meta, _lazy=lazy)


def _no_rows(chunks: Chunks) -> Exception:
    damage = chunks.damage
    name = chunks.source.name
    if damage:
        return UnreadableTrace(f"nothing readable: {damage[0].message}", where=name, remedy=_RECORD)
    if chunks.events == 0:
        return NotATrace("the list of events is empty", where=name, remedy=_RECORD)
    return NotATrace(f"none of its {chunks.events:,} events has a duration", where=name, remedy=_RECORD)


_RECORD = "Record it again with torch.profiler and export it with prof.export_chrome_trace(...)."


def _load_folder(folder: Path, progress: Progress | None, window_bytes: int) -> TraceSet:
    paths = sorted(p for p in folder.iterdir() if p.is_file() and _TRACE_NAME.search(p.name))
    traces: list[Trace] = []
    skipped: list[str] = []
    for path in paths:
        try:
            traces.append(load_file(path, progress, window_bytes))
        except NotATrace as error:
            skipped.append(f"{path.name}: {error.problem}")
    if not traces:
        seen = f" among {len(paths)} JSON files" if paths else ""
        remedy = "Pass a folder with the .json, .json.gz or .json.zst files of one job."
        raise UnreadableTrace(f"no trace of torch.profiler{seen}", where=folder, remedy=remedy)
    return _by_rank(traces, skipped, folder)


def _by_rank(traces: list[Trace], skipped: list[str], folder: Path) -> TraceSet:
    """Traces by the rank that they declare; without one, by their order among the files."""
    result = TraceSet()
    for position, trace in enumerate(traces):
        rank = trace.meta.rank if trace.meta.rank is not None else position
        if rank in result:
            problem = f"two traces of rank {rank}: {result[rank].meta.source} and {trace.meta.source}"
            raise UnreadableTrace(problem, where=folder, remedy="Pass the files of one cycle of one job.")
        result[rank] = trace
    if skipped:
        first = next(iter(result.values()))
        note = Damage("skipped files", "; ".join(skipped))
        object.__setattr__(first.meta, "damage", (*first.meta.damage, note))
    return result
