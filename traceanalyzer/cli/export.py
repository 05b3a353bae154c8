"""`traceanalyzer export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.files import check_folder, check_outputs, made, written
from traceanalyzer.cli.options import PATH, trace_argument


@click.command(short_help="The events as Parquet, for DuckDB, polars or pandas.")
@trace_argument
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--force", is_flag=True, help="Replace files that are already there.")
def export(trace: Path, folder: Path, force: bool) -> None:
    """Write the frames of TRACE into DIR as Parquet, for DuckDB, polars or pandas.

    Several ranks are written into a folder each.

    \b
    Examples:
      traceanalyzer export trace.json.gz frames/
      duckdb -c "select name, sum(dur_ns) from 'frames/gpu.parquet'
                 where category = 'kernel' group by name"
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.model.trace import Trace
    from traceanalyzer.render.data.frames import write_frame, write_meta

    check_folder(folder)
    names = {name: f"{name}.parquet" for name in Trace.FRAMES}
    for place in (folder, *folder.glob("rank*")):
        _refuse_existing([place / name for name in (*names.values(), "meta.json")], force)
    loaded = load_all([trace])
    ranks = {"": loaded} if isinstance(loaded, Trace) else {f"rank{n}": one for n, one in loaded.items()}
    for rank, one in ranks.items():
        place = made(folder / rank)
        with written(place / "meta.json") as stream:
            write_meta(one.meta, stream)
        for name, file in names.items():
            with written(place / file) as stream:
                rows = write_frame(one, name, stream)
            emit(f"{place / file}: {rows:,} rows\n".encode(errors="backslashreplace"))


def _refuse_existing(paths: Sequence[Path], force: bool) -> None:
    check_outputs([path for path in paths if path.exists()], force=force)
