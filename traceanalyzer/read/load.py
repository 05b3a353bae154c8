"""A file -> Trace; the files of one job -> Job."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from traceanalyzer.model.errors import NotATrace, UnreadableTrace, without_credentials
from traceanalyzer.model.interpreter import uncollected
from traceanalyzer.model.lanes import Lane, Lanes
from traceanalyzer.model.trace import Damage, Job, Skipped, Trace
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.corrections import linked, without_false_links
from traceanalyzer.read.columns.frames import build_columns
from traceanalyzer.read.execution_trace import beside, with_tensors
from traceanalyzer.read.folders import Layout, layout_of
from traceanalyzer.read.foreign_files import refusal_of
from traceanalyzer.read.job_ranks import Declared, assign_ranks, find_duplicate_traces
from traceanalyzer.read.merged import Merged, refuse_merged, refuse_unmarked, split
from traceanalyzer.read.meta import build_meta
from traceanalyzer.read.parallel import parts_of, read_in_parts
from traceanalyzer.read.remote import fetched, is_url
from traceanalyzer.read.text.batches import Batches
from traceanalyzer.read.text.source import BATCH_BYTES, Source

T = TypeVar("T")
Reader = Callable[[str | Path], Sequence[T]]
Report = Callable[[Source, int], None]

Progress = Callable[[int, int | None, int], None]
"""Called as (bytes consumed, bytes in all or None, events read) while a file is read."""

_SHOWN = 5  # files in a message
_LESS = "Record fewer steps, without stacks and shapes, or read it on a larger machine."


def load(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    tensors: str | Path | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Trace:
    """Read one trace.

    Args:
        path: .json, .json.gz or .json.zst as torch.profiler exports it, or a tar archive of one; "-" for standard
            input; or a folder that holds one.
        jobs: processes that read a large file; as many as are worth it, one per core at most, if not given.
        progress: called now and then with what has been read.
        cache: keep the parsed trace in the user's cache directory, and take it from there.
        tensors: the file of an ExecutionTraceObserver; by default `NAME.et.json.gz` beside the trace, if it is there.
        batch_bytes: bytes parsed at a time; the result does not depend on it.

    Raises:
        UnreadableTrace: missing, empty, not JSON; or a folder with no trace or with several, or a file into which
            several were merged, which `load_job` reads.
        NotATrace: JSON, but without events of torch.profiler.
    """
    layout = layout_of([path])
    every = tuple(file for files in layout.iterations.values() for file in files) or layout.files
    read = partial(load_file, jobs=jobs, progress=progress, cache=cache, batch_bytes=batch_bytes)
    skipped: list[Skipped] = []
    traces = list(islice(_traces(replace(layout, files=every), partial(_file_traces, read), skipped), 2))
    if len(traces) > 1 and traces[0].meta.source == traces[1].meta.source:
        remedy = "Pass each rank's own file, or read it as a job, as `traceanalyzer diagnose` does."
        raise UnreadableTrace("holds traces of several ranks, merged", where=path, remedy=remedy)
    if len(traces) > 1:
        names = " and ".join(Path(trace.meta.source).name for trace in traces)
        remedy = f"Pass one of its files, such as {traces[0].meta.source}."
        raise UnreadableTrace(f"holds several traces: {names}", where=path, remedy=remedy)
    return with_tensors(_with_skipped(traces, skipped)[0], tensors)


def load_any(path: str | Path) -> Trace | Job:
    """The trace of a file, or the job of a folder or of a file into which ranks were merged.

    Raises UnreadableTrace, NotATrace: as `load` and `load_job`.
    """
    layout = layout_of([path])
    job = load_layout(layout)
    return job if layout.is_job or len(job) > 1 else next(iter(job.values()))


def load_job(
    *paths: str | Path,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    batch_bytes: int = BATCH_BYTES,
) -> Job:
    """Read the traces of one job, by the rank that each declares; one that declares none gets the lowest free.

    Args:
        paths: files, also such as several ranks were merged into, patterns, and folders whose .json, .json.gz and
            .json.zst files are read. Files in a folder that are no trace, or cannot be read, are skipped and listed
            in `Job.skipped` and in `meta.damage` of the first trace; a file that is named must be one. Of several
            iterations one is read; `Job.iterations` names the files of all.
        jobs, progress, cache, batch_bytes: as of `load`.

    Raises:
        UnreadableTrace, NotATrace: as `load`, of a file that is named; a folder without any trace; or two traces of
            one rank.
    """
    read = partial(load_file, jobs=jobs, progress=progress, cache=cache, batch_bytes=batch_bytes)
    return load_layout(layout_of(paths), read)


def load_file(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    batch_bytes: int = BATCH_BYTES,
) -> Trace:
    """Read one file, and the execution trace beside it; see `load`.

    Raises Merged: it holds traces of several ranks.
    """
    read = partial(_parsed, jobs=jobs, progress=progress, batch_bytes=batch_bytes)
    if is_url(path):
        return _of_url(path, read)
    if cache:
        from traceanalyzer.read.cache import cached  # pyarrow costs 0.1 s

        return with_tensors(cached(Path(path), read), beside(path))
    return with_tensors(read(path), beside(path))


def load_layout(layout: Layout, read: Callable[[str | Path], Trace] = load_file) -> Job:
    """`load_job` of files that are listed already; raises what that raises."""
    traces, skipped = traces_of_layout(layout, partial(_file_traces, read))
    declared = [Declared.of(trace) for trace in traces]
    copies, copied = find_duplicate_traces(declared)
    skipped += copied
    originals = [position for position in range(len(traces)) if position not in copies]
    traces = _with_skipped([traces[position] for position in originals], skipped)
    ranked = assign_ranks([declared[position] for position in originals])
    ranks = {rank: with_rank(trace, named) for trace, (rank, named) in zip(traces, ranked, strict=True)}
    return Job(ranks, skipped, {name: tuple(map(str, files)) for name, files in layout.iterations.items()})


def _parsed(path: str | Path, jobs: int | None, progress: Progress | None, batch_bytes: int) -> Trace:
    try:
        with uncollected():  # a batch is a tree without cycles, and collecting would take most of the time
            parts = parts_of(Source(path), jobs)
            report = _progress_of(progress, parts)
            read = read_in_parts(str(path), parts, batch_bytes, report) if parts > 1 else None
            if read is None:
                read = _read(Source(path), batch_bytes, _progress_of(progress))
        refuse_merged(read[0].source, read[1])
        return finished(*read)
    except MemoryError:
        raise UnreadableTrace("needs more memory than there is", where=path, remedy=_LESS) from None


def _of_url(url: str | Path, read: Callable[[Path], Trace]) -> Trace:
    """The trace, whose file and problems are the URL's."""
    with fetched(url) as copy:
        try:
            trace = read(copy)
        except Merged:
            remedy = "Fetch it, and pass the file."
            raise UnreadableTrace("holds traces of several ranks, merged", where=url, remedy=remedy) from None
        except (NotATrace, UnreadableTrace) as error:
            error.where = str(url)
            raise
        return replace(trace, meta=replace(trace.meta, source=without_credentials(str(url))))


def _read(source: Source, batch_bytes: int, progress: Report) -> tuple[Batches, Collector]:
    batches, collector = Batches(source, batch_bytes), Collector()
    for batch in batches.batches():
        collector.add(batch, batches.text_of_batch)
        del batch
        progress(source, batches.events)
    return batches, collector


def _progress_of(progress: Progress | None, parts: int = 1) -> Report:
    """Progress of one process as that of all: the parts are equally large."""
    if progress is None:
        return lambda source, events: None
    return lambda source, events: progress(source.consumed * parts, source.size, events * parts)


def finished(batches: Batches, collector: Collector) -> Trace:
    """The trace, once all of its events are read.

    Raises UnreadableTrace, NotATrace: there is nothing in it to make a trace of.
    """
    collector.finish()
    refusal = refusal_of(batches, collector)
    if refusal:
        raise refusal
    cpu, gpu = build_columns(collector, "cpu"), build_columns(collector, "gpu")
    meta = build_meta(batches, collector, cpu, gpu)
    cpu, gpu = without_false_links(*linked(cpu, gpu), meta.dialect)
    lanes = {name: Lane(name, partial(build_columns, collector, name)) for name in Trace.FRAMES}
    lanes |= {"cpu": Lane("cpu", lambda: cpu), "gpu": Lane("gpu", lambda: gpu)}
    trace = Trace(Lanes(lanes), meta)
    refuse_unmarked(trace)
    return trace


def _file_traces(read: Callable[[str | Path], Trace], path: str | Path) -> list[Trace]:
    """The file's trace, or the traces that were merged into it, by rank."""
    try:
        return [read(path)]
    except Merged as merged:
        return split(Source(path), merged.restore, finished)


def traces_of_layout(layout: Layout, file_traces: Reader[T]) -> tuple[list[T], list[Skipped]]:
    """(traces of a job's files, files of folders that are no trace); raises as `load_job`."""
    skipped: list[Skipped] = []
    return list(_traces(layout, file_traces, skipped)), skipped


def _traces(layout: Layout, file_traces: Reader[T], skipped: list[Skipped]) -> Iterator[T]:
    """Traces of a job's files; files of folders that are no trace are appended to `skipped`."""
    for empty in layout.empty:
        yield from _folder_traces(empty, [], file_traces, skipped)
    for folder in dict.fromkeys(layout.folder.get(file) for file in layout.files):
        files = [file for file in layout.files if layout.folder.get(file) == folder]
        if folder is None:
            yield from (trace for file in files for trace in file_traces(file))
        else:
            yield from _folder_traces(folder, files, file_traces, skipped)


def _folder_traces(folder: Path, files: Sequence[Path], file_traces: Reader[T], skipped: list[Skipped]) -> Iterator[T]:
    """The folder's traces; non-trace files are appended to `skipped`."""
    refused: list[Skipped] = []
    for file in files:
        try:
            yield from file_traces(file)
        except (NotATrace, UnreadableTrace) as error:
            refused.append(Skipped(str(file), error.problem))
    skipped += refused
    if len(refused) == len(files):
        among = f" among {len(files)} JSON files" if files else ""
        why = "".join(f"; {Path(entry.path).name}: {entry.problem}" for entry in refused[:_SHOWN])
        remedy = "Pass a folder with the .json, .json.gz or .json.zst files of one job."
        raise UnreadableTrace(f"no trace of torch.profiler{among}{why}", where=folder, remedy=remedy)


def _with_skipped(traces: list[Trace], skipped: list[Skipped]) -> list[Trace]:
    """The traces; the first one notes which files were skipped, so that every report shows it."""
    return [add_note(traces[0], skipped_note(skipped)), *traces[1:]] if skipped else traces


def skipped_note(skipped: Sequence[Skipped]) -> Damage:
    """The skipped files and why, as a report shows them."""
    shown = [f"{Path(entry.path).name} was skipped: {entry.problem}" for entry in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        shown.append(f"{len(skipped) - _SHOWN:,} more files were skipped")
    return Damage("skipped files", "; ".join(shown))


def add_note(trace: Trace, note: Damage) -> Trace:
    return replace(trace, meta=replace(trace.meta, damage=(*trace.meta.damage, note)))


def with_rank(trace: Trace, rank: int | None) -> Trace:
    return trace if trace.meta.rank == rank else replace(trace, meta=replace(trace.meta, rank=rank))
