"""`traceanalyzer export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.files import check_folder, check_outputs, made, written
from traceanalyzer.cli.options import FILE, PATH, trace_argument
from traceanalyzer.cli.output import put
from traceanalyzer.model.errors import BadOption, Unavailable

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Trace

    Ranks = Sequence[tuple[int | None, Trace]]


@click.command(short_help="The events as Parquet, or as a flame graph for speedscope.")
@trace_argument
@click.argument("folder", metavar="[DIR]", type=PATH, required=False)
@click.option("--speedscope", type=FILE, metavar="FILE", help="Write flame graphs for speedscope.app there.")
@click.option("--force", is_flag=True, help="Replace files that are already there.")
def export(trace: Path, folder: Path | None, speedscope: Path | None, force: bool) -> None:
    """Write the frames of TRACE into DIR as Parquet, for DuckDB, polars or pandas.

    Several ranks are written into a folder each. The flame graphs hold GPU work, CPU time and idle time by where they
    come from.

    \b
    Examples:
      traceanalyzer export trace.json.gz frames/
      duckdb -c "select name, sum(dur_ns) from 'frames/gpu.parquet'
                 where category = 'kernel' group by name"
      traceanalyzer export trace.json.gz --speedscope flame.json
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.model.trace import Trace

    if folder is None and speedscope is None:
        raise BadOption("nothing to write", remedy="Name a folder for the frames, or --speedscope FILE.")
    check_outputs([speedscope] if speedscope else [], inputs=[trace], force=force)
    if folder is not None:
        check_folder(folder)
        for place in (folder, *folder.glob("rank*")):
            _refuse_existing([place / name for name in (*_file_names().values(), "meta.json")], force)
    loaded = load_all([trace])
    ranks: Ranks = [(None, loaded)] if isinstance(loaded, Trace) else list(loaded.items())
    if folder is not None:
        _write_frames(ranks, folder)
    if speedscope is not None:
        _write_flames(ranks, speedscope)


def _file_names() -> dict[str, str]:
    from traceanalyzer.model.trace import Trace

    return {name: f"{name}.parquet" for name in Trace.FRAMES}


def _write_frames(ranks: Ranks, folder: Path) -> None:
    from traceanalyzer.render.data.frames import write_frame, write_meta

    for rank, one in ranks:
        place = made(folder if rank is None else folder / f"rank{rank}")
        with written(place / "meta.json") as stream:
            write_meta(one.meta, stream)
        for name, file in _file_names().items():
            with written(place / file) as stream:
                rows = write_frame(one, name, stream)
            emit(f"{place / file}: {rows:,} rows\n".encode(errors="backslashreplace"))


def _write_flames(ranks: Ranks, path: Path) -> None:
    from traceanalyzer.render.data.speedscope import render_speedscope

    try:
        put(render_speedscope(dict(ranks)), path)
    except Unavailable as reason:
        raise reason.for_user(ranks[0][1].meta.source) from reason


def _refuse_existing(paths: Sequence[Path], force: bool) -> None:
    check_outputs([path for path in paths if path.exists()], force=force)
