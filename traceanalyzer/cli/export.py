"""`traceanalyzer export`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.options import PATH_OR_URL, file_option, jobs_option, scheduler_option
from traceanalyzer.cli.output import check_folder, check_outputs, made, put, tell, written
from traceanalyzer.model.errors import BadOption, UnreadableTrace, asked_of

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Trace

    Ranks = Sequence[tuple[int | None, Trace]]

_REMEDY = "Pass a folder with the .json, .json.gz or .json.zst files of one job."


@click.command(short_help="Events or results as Parquet; flame graphs for speedscope.")
@click.argument("trace", type=PATH_OR_URL)
@click.argument("folder", metavar="[DIR]", type=PATH_OR_URL, required=False)
@file_option("--speedscope", text="Write flame graphs for speedscope.app to FILE.")
@click.option("--results", is_flag=True, help="Write each rank's results instead of its events; see above.")
@click.option("--run", metavar="NAME", help="With --results: name of the run; by default that of its folder.")
@jobs_option
@scheduler_option
@click.option("--force", is_flag=True, help="Replace existing files.")
def export(
    trace: Path,
    folder: Path | None,
    speedscope: Path | None,
    results: bool,
    run: str | None,
    jobs: int | None,
    scheduler: str | None,
    force: bool,
) -> None:
    """Write the frames of TRACE into DIR as Parquet, for DuckDB, polars or pandas.

    Each rank gets its own folder. The flame graphs hold GPU work, CPU time and idle time by their origin.

    With --results findings, accounting, steps and collectives of every rank and iteration go into DIR as Parquet,
    partitioned: findings/run=NAME/iteration=10/rank=3/part.parquet. A file whose content this version has done before
    is not read again; one that fails is named, there and in files.parquet, and costs no other one. TRACE and DIR may
    then be URLs that fsspec knows.

    \b
    Examples:
      traceanalyzer export trace.json.gz frames/
      duckdb -c "select name, sum(dur_ns) from 'frames/gpu.parquet'
                 where category = 'kernel' group by name"
      traceanalyzer export trace.json.gz --speedscope flame.json
      traceanalyzer export traces/ results/ --results
      duckdb -c "select rank, rule, cost_ns
                 from read_parquet('results/findings/**/*.parquet',
                                   hive_partitioning = true)"
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.model.trace import Trace
    from traceanalyzer.read.remote import is_url

    if folder is None and speedscope is None and not results:
        raise BadOption("nothing to write", remedy="Name a folder for the frames, or --speedscope FILE.")
    if results:
        if folder is None or speedscope is not None:
            problem = "--results takes a folder, and no --speedscope"
            raise BadOption(problem, remedy="Name a folder for the results.")
        _write_results(trace, folder, run, jobs, scheduler)
        return
    if folder is not None and is_url(folder):
        raise BadOption("frames go to this machine", where=folder, remedy="Name a folder, or pass --results.")
    check_outputs([speedscope] if speedscope else [], inputs=[trace], force=force)
    if folder is not None:
        check_folder(folder)
        for place in (folder, *folder.glob("rank*")):
            files = [place / f"{name}.parquet" for name in Trace.FRAMES] + [place / "meta.json"]
            check_outputs([file for file in files if file.exists()], force=force)
    loaded = load_all([trace])
    ranks: Ranks = [(None, loaded)] if isinstance(loaded, Trace) else list(loaded.items())
    if folder is not None:
        _write_frames(ranks, folder)
    if speedscope is not None:
        from traceanalyzer.render.data.speedscope import render_speedscope

        with asked_of(ranks[0][1].meta.source):
            put(render_speedscope(dict(ranks)), speedscope)


def _write_results(trace: Path, folder: Path, run: str | None, jobs: int | None, scheduler: str | None) -> None:
    """Raises UnreadableTrace: none of the files could be read."""
    from traceanalyzer.cli.ranks import readers
    from traceanalyzer.read.folders import layout_of
    from traceanalyzer.render.data.results import rank_tables, store

    check_folder(folder)
    layout = layout_of([trace])
    every = [file for files in layout.iterations.values() for file in files] or list(layout.files)
    if not every:
        raise UnreadableTrace("no trace of torch.profiler", where=trace, remedy=_REMEDY)
    with readers(every, jobs, scheduler) as ranks:
        once = partial(ranks.once, rank_tables)
        done = store(folder, run or run_name(trace), layout, once, _put_bytes)
    for file, problem in done.failed.items():
        tell(f"warning: {file}: {problem}", file)
    if not done.written + done.kept:
        raise UnreadableTrace(f"none of {len(every)} files could be read", where=trace, remedy=_REMEDY)
    emit(f"{folder}: {done.written} written, {done.kept} done before, {len(done.failed)} failed\n".encode())


def run_name(trace: Path) -> str:
    """Of a folder its name, of a file or pattern that of the folder around it."""
    if "://" in str(trace):
        return trace.name or "run"
    whole = trace.resolve()
    around = whole if whole.is_dir() else whole.parent
    plain = (place.name for place in (around, *around.parents) if not set("*?[") & set(place.name))
    return next(plain, "") or "run"


def _put_bytes(path: Path, content: bytes) -> None:
    from traceanalyzer.read.remote import is_url

    # An object is there whole or not at all.
    with path.open("wb") if is_url(path) else written(path) as stream:
        stream.write(content)


def _write_frames(ranks: Ranks, folder: Path) -> None:
    from traceanalyzer.render.data.encode import indented_json
    from traceanalyzer.render.data.results import write_frame

    for rank, trace in ranks:
        place = made(folder if rank is None else folder / f"rank{rank}")
        put(indented_json(trace.meta), place / "meta.json")
        for name in trace.FRAMES:
            file = place / f"{name}.parquet"
            with written(file) as stream:
                rows = write_frame(trace, name, stream)
            emit(f"{file}: {rows:,} rows\n".encode(errors="backslashreplace"))
