"""`traceanalyzer memory`."""

from __future__ import annotations

from pathlib import Path

import click

from traceanalyzer.cli.data import check, index_of
from traceanalyzer.cli.files import written
from traceanalyzer.cli.options import (
    FILE,
    force_option,
    format_option,
    limit_option,
    output_option,
    trace_argument,
)
from traceanalyzer.cli.output import ascii_only, put, put_text, width


@click.command()
@trace_argument
@limit_option
@format_option("text", "json")
@click.option(
    "--parquet",
    type=FILE,
    metavar="FILE",
    help="Write the curve of allocated and reserved bytes there, too.",
)
@output_option
@force_option
def memory(
    trace: Path, limit: int, form: str, parquet: Path | None, output: Path | None, force: bool
) -> None:
    """Say what TRACE allocated: the peak, what was alive at it, what was not freed, fragmentation.

    TRACE must have been recorded with profile_memory=True.

    \b
    Examples:
      traceanalyzer memory trace.json.gz
      traceanalyzer memory trace.json --parquet curve.parquet
    """
    from traceanalyzer.allocator.memory_ops import ops_by_memory
    from traceanalyzer.allocator.memory_view import MemoryView
    from traceanalyzer.cli.loading import load_one
    from traceanalyzer.render.data.table import table_json, table_parquet
    from traceanalyzer.render.data.views import memory_fields
    from traceanalyzer.render.text.memory import render_memory

    check(trace, form, [output, parquet], force)
    loaded = load_one(trace)
    view, ops = index_of(loaded, MemoryView), ops_by_memory(loaded)
    if parquet is not None:
        with written(parquet) as stream:
            table_parquet(view.curve, stream, loaded.meta.source)
    if form == "json":
        put(table_json(loaded.meta.source, memory_fields(view, ops)), output)
        return
    start, plain = loaded.meta.origin_ns, ascii_only(output)
    text = render_memory(view, ops, origin_ns=start, limit=limit, width=width(output), ascii_only=plain)
    put_text(text, output)
