"""A file or a folder -> Trace or TraceSet."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from traceanalyzer.model.errors import NotATrace, UnreadableTrace
from traceanalyzer.model.trace import Damage, Trace, TraceSet
from traceanalyzer.read.chunks import Chunks
from traceanalyzer.read.events import Collector
from traceanalyzer.read.frames import build_frame
from traceanalyzer.read.links import without_false_links
from traceanalyzer.read.meta import build_meta
from traceanalyzer.read.parallel import parts_of, read_in_parts
from traceanalyzer.read.sources import BLOCK_BYTES, STDIN, Source

Progress = Callable[[int, int | None, int], None]
"""Called as (bytes consumed, bytes in all or None, events read) while a file is read."""

_TRACE_NAME = re.compile(r"\.json(\.gz|\.zst)?$", re.IGNORECASE)


def load(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    window_bytes: int = BLOCK_BYTES,
) -> Trace | TraceSet:
    """Read a trace, or every trace of a folder.

    Args:
        path: .json, .json.gz or .json.zst as torch.profiler exports it; "-" for standard input; or a folder
            of them, one per rank.
        jobs: processes that read a large file; as many as are worth it, one per core at most, if not given.
        progress: called now and then with what has been read.
        cache: keep the parsed trace in the user's cache directory, and take it from there.
        window_bytes: bytes parsed at a time; the result does not depend on it.

    Raises:
        UnreadableTrace: missing, empty, not JSON, or a folder without traces.
        NotATrace: JSON, but without events of torch.profiler.
    """
    read = partial(load_file, jobs=jobs, progress=progress, cache=cache, window_bytes=window_bytes)
    return _load_folder(Path(path), read) if str(path) != STDIN and Path(path).is_dir() else read(path)


def load_file(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    window_bytes: int = BLOCK_BYTES,
) -> Trace:
    """Read one file; see `load`."""
    if cache:
        from traceanalyzer.read.cache import cached  # pyarrow costs 0.1 s

        return cached(Path(path), partial(load_file, jobs=jobs, progress=progress, window_bytes=window_bytes))
    with _collector_paused():
        read = None
        parts = parts_of(Source(path), jobs)
        if parts > 1:
            read = read_in_parts(str(path), parts, window_bytes, _told(progress, parts))
        if read is None:
            read = _read(Source(path), window_bytes, _told(progress))
    return _finished(*read)


def _read(
    source: Source, window_bytes: int, progress: Callable[[Source, int], None]
) -> tuple[Chunks, Collector]:
    chunks, collector = Chunks(source, window_bytes), Collector()
    for batch in chunks.batches():
        collector.add(batch, chunks.text)
        del batch
        progress(source, chunks.events)
    return chunks, collector


def _told(progress: Progress | None, parts: int = 1) -> Callable[[Source, int], None]:
    """Progress of one process as that of all: the parts are equally large."""
    if progress is None:
        return lambda source, events: None
    return lambda source, events: progress(source.consumed * parts, source.size, events * parts)


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


def _load_folder(folder: Path, read: Callable[[Path], Trace]) -> TraceSet:
    paths = sorted(p for p in folder.iterdir() if p.is_file() and _TRACE_NAME.search(p.name))
    traces: list[Trace] = []
    skipped: list[str] = []
    for path in paths:
        try:
            traces.append(read(path))
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
