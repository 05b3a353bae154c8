"""A file -> Trace; the files of one job -> Job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.garbage import uncollected
from traceanalyzer.model.schema import CATEGORIES
from traceanalyzer.model.trace import LAZY_FRAMES, Damage, Job, LazyFrame, Skipped, Trace
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.frames import build_frame
from traceanalyzer.read.columns.links import without_false_links
from traceanalyzer.read.exporters import EXPECTED, exporter_of
from traceanalyzer.read.folders import rank_of_name, traces_in
from traceanalyzer.read.meta import build_meta
from traceanalyzer.read.parallel import parts_of, read_in_parts
from traceanalyzer.read.text.batches import Batches
from traceanalyzer.read.text.source import BLOCK_BYTES, STDIN, Source

Progress = Callable[[int, int | None, int], None]
"""Called as (bytes consumed, bytes in all or None, events read) while a file is read."""

_RECORD = "Record it again with torch.profiler and export it with prof.export_chrome_trace(...)."
_COMPARE = "To compare two recordings: traceanalyzer compare {} {}"
_SHOWN = 5  # categories or files in a message


def load(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    batch_bytes: int = BLOCK_BYTES,
) -> Trace:
    """Read one trace.

    Args:
        path: .json, .json.gz or .json.zst as torch.profiler exports it; "-" for standard input; or a folder that
            holds one.
        jobs: processes that read a large file; as many as are worth it, one per core at most, if not given.
        progress: called now and then with what has been read.
        cache: keep the parsed trace in the user's cache directory, and take it from there.
        batch_bytes: bytes parsed at a time; the result does not depend on it.

    Raises:
        UnreadableTrace: missing, empty, not JSON, or a folder with no trace or with several, which `load_job` reads.
        NotATrace: JSON, but without events of torch.profiler.
    """
    read = partial(load_file, jobs=jobs, progress=progress, cache=cache, batch_bytes=batch_bytes)
    if not _is_folder(path):
        return read(path)
    skipped: list[Skipped] = []
    traces = list(islice(_in_folder(Path(path), read, skipped), 2))
    if len(traces) > 1:
        names = " and ".join(Path(trace.meta.source).name for trace in traces)
        remedy = f"Pass one of its files, such as {traces[0].meta.source}."
        raise UnreadableTrace(f"holds several traces: {names}", where=path, remedy=remedy)
    return _told(traces, skipped)[0]


def load_job(
    *paths: str | Path,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    batch_bytes: int = BLOCK_BYTES,
) -> Job:
    """Read the traces of one job, by the rank that each declares; one that declares none gets the lowest free.

    Args:
        paths: files, and folders whose .json, .json.gz and .json.zst files are read. What is in a folder and no
            trace, or cannot be read, is passed over, and said in `Job.skipped` and in `meta.damage` of the first
            trace; a file that is named must be one.
        jobs, progress, cache, batch_bytes: as of `load`.

    Raises:
        UnreadableTrace, NotATrace: as `load`, of a file that is named; a folder without any trace; or two traces of
            one rank.
    """
    read = partial(load_file, jobs=jobs, progress=progress, cache=cache, batch_bytes=batch_bytes)
    traces: list[Trace] = []
    skipped: list[Skipped] = []
    for path in paths:
        if _is_folder(path):
            traces += _in_folder(Path(path), read, skipped)
        else:
            traces.append(read(path))
    return Job(_by_rank(_told(traces, skipped)), skipped)


def load_file(
    path: str | Path,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: bool = False,
    batch_bytes: int = BLOCK_BYTES,
) -> Trace:
    """Read one file; see `load`."""
    if cache:
        from traceanalyzer.read.cache import cached  # pyarrow costs 0.1 s

        return cached(Path(path), partial(load_file, jobs=jobs, progress=progress, batch_bytes=batch_bytes))
    with uncollected():  # a batch is a tree without cycles, and collecting would take most of the time
        read = None
        parts = parts_of(Source(path), jobs)
        if parts > 1:
            read = read_in_parts(str(path), parts, batch_bytes, _progress_of(progress, parts))
        if read is None:
            read = _read(Source(path), batch_bytes, _progress_of(progress))
    return finished(*read)


def _is_folder(path: str | Path) -> bool:
    return str(path) != STDIN and Path(path).is_dir()


def _read(
    source: Source, batch_bytes: int, progress: Callable[[Source, int], None]
) -> tuple[Batches, Collector]:
    batches, collector = Batches(source, batch_bytes), Collector()
    for batch in batches.batches():
        collector.add(batch, batches.text_of_batch)
        del batch
        progress(source, batches.events)
    return batches, collector


def _progress_of(progress: Progress | None, parts: int = 1) -> Callable[[Source, int], None]:
    """Progress of one process as that of all: the parts are equally large."""
    if progress is None:
        return lambda source, events: None
    return lambda source, events: progress(source.consumed * parts, source.size, events * parts)


def finished(batches: Batches, collector: Collector) -> Trace:
    """The trace, once all of its events are read.

    Raises:
        UnreadableTrace, NotATrace: there is nothing in it to make a trace of.
    """
    collector.finish()
    refusal = _refusal(batches, collector)
    if refusal:
        raise refusal
    cpu, gpu = build_frame(collector, "cpu"), build_frame(collector, "gpu")
    meta = build_meta(batches, collector, cpu, gpu)
    cpu, gpu = without_false_links(cpu, gpu, meta.dialect)
    lazy = {name: LazyFrame(partial(build_frame, collector, name)) for name in LAZY_FRAMES}
    return Trace(cpu, gpu, meta, lazy)


# -- what is no trace ------------------------------------------------------------------------------------


def _refusal(batches: Batches, collector: Collector) -> TraceAnalyzerError | None:
    """Why the events are no trace of torch.profiler, None where they are one."""
    groups = [group for group in collector.groups.values() if group.rows]
    known = {category for _, category in CATEGORIES.values()}
    if any(group.category in known for group in groups):
        return None
    damage, name = batches.damage, batches.source.name
    if damage and not groups:
        return UnreadableTrace(f"nothing readable: {damage[0].message}", where=name, remedy=_RECORD)
    if batches.events == 0:
        return NotATrace("the list of events is empty", where=name, remedy=_RECORD)
    return _not_ours(batches, collector, bool(groups))


def _not_ours(batches: Batches, collector: Collector, has_rows: bool) -> NotATrace | None:
    name, header = batches.source.name, batches.envelope.header
    exporter = exporter_of(header, collector.foreign, collector.names_of_processes())
    count = f"{batches.events:,} events"
    if exporter:
        problem = (
            f"is a trace of {exporter.name}, not of torch.profiler: none of its {count} is of a category"
        )
        return NotATrace(f"{problem} that torch.profiler writes", where=name, remedy=exporter.remedy)
    if not has_rows:
        return NotATrace(f"none of its {count} has a duration", where=name, remedy=EXPECTED)
    foreign = [category for category, _ in collector.foreign.most_common()]
    shown = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
    problem = f"is a Chrome trace, but none of its {count} is of a category that torch.profiler writes"
    theirs = f"; its categories are {shown}" if foreign else "; they have no category"
    remedy = f"{EXPECTED} A merged timeline needs the original categories (cpu_op, kernel, ...)."
    return NotATrace(problem + theirs, where=name, remedy=remedy)


# -- several traces --------------------------------------------------------------------------------------


def _in_folder(folder: Path, read: Callable[[Path], Trace], skipped: list[Skipped]) -> Iterator[Trace]:
    """The folder's traces; files that are none are added to `skipped`."""
    paths, others = traces_in(folder)
    skipped += [Skipped(str(path), "of another iteration than the last") for path in others]
    here: list[Skipped] = []
    for path in paths:
        try:
            yield read(path)
        except (NotATrace, UnreadableTrace) as error:
            here.append(Skipped(str(path), error.problem))
    skipped += here
    if len(here) == len(paths):
        seen = f" among {len(paths)} JSON files" if paths else ""
        why = "".join(f"; {Path(one.path).name}: {one.problem}" for one in here[:_SHOWN])
        remedy = "Pass a folder with the .json, .json.gz or .json.zst files of one job."
        raise UnreadableTrace(f"no trace of torch.profiler{seen}{why}", where=folder, remedy=remedy)


def _told(traces: list[Trace], skipped: list[Skipped]) -> list[Trace]:
    """The traces, the first of which says what was passed over: every report shows it then."""
    if not skipped:
        return traces
    message = "; ".join(f"{Path(one.path).name} was skipped: {one.problem}" for one in skipped)
    meta = traces[0].meta
    note = Damage("skipped files", message)
    return [replace(traces[0], meta=replace(meta, damage=(*meta.damage, note))), *traces[1:]]


def _by_rank(traces: list[Trace]) -> dict[int, Trace]:
    """Traces by the rank that they declare, in the order given; without one, by the lowest that is free.

    Raises:
        UnreadableTrace: two of them are recordings of one process.
    """
    declared: dict[int, Trace] = {}
    traces = _named(traces)
    for trace in traces:
        rank = trace.meta.rank
        if rank is not None and declared.setdefault(rank, trace) is not trace:
            problem = f"two traces of rank {rank}: {declared[rank].meta.source} and {trace.meta.source}"
            raise UnreadableTrace(problem, remedy=_COMPARE.format(*_files(declared[rank], trace)))
    _refuse_recordings([trace for trace in traces if trace.meta.rank is None])
    free = (rank for rank in range(2 * len(traces)) if rank not in declared)
    return {next(free) if t.meta.rank is None else t.meta.rank: t for t in traces}


def _named(traces: list[Trace]) -> list[Trace]:
    """The traces; where several declare no rank and the names of their files tell them apart, with these ranks."""
    names = {id(one): rank_of_name(one.meta.source) for one in traces if one.meta.rank is None}
    ranks = [*names.values(), *(one.meta.rank for one in traces if one.meta.rank is not None)]
    if len(names) < 2 or None in ranks or len(set(ranks)) < len(ranks):
        return traces
    return [
        replace(one, meta=replace(one.meta, rank=names[id(one)])) if id(one) in names else one
        for one in traces
    ]


def _refuse_recordings(traces: list[Trace]) -> None:
    """Two recordings of one program are no job of two ranks: they declare no rank, and do not overlap in time.

    Raises:
        UnreadableTrace: one ends before the other begins.
    """
    spans = sorted((_span_ns(trace), number) for number, trace in enumerate(traces))
    for ((_, end_ns), one), ((start_ns, _), other) in pairwise(spans):
        if end_ns <= start_ns:
            names = _files(traces[min(one, other)], traces[max(one, other)])
            problem = "{} and {} declare no rank and were recorded one after the other: no job".format(*names)
            raise UnreadableTrace(problem, remedy=_COMPARE.format(*names))


def _span_ns(trace: Trace) -> tuple[int, int]:
    ends = [int((lane["start_ns"] + lane["dur_ns"]).max()) for lane in (trace.cpu, trace.gpu) if len(lane)]
    return trace.meta.origin_ns, max(ends, default=trace.meta.origin_ns)


def _files(*traces: Trace) -> list[str]:
    return [trace.meta.source for trace in traces]
