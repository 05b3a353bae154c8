"""`traceanalyzer memory`."""

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import index_of, opened, put_rows
from traceanalyzer.cli.options import file_option, limit_option, view_options
from traceanalyzer.cli.output import put_page


@click.command(short_help="Allocations: the peak, owners at the peak, leaks.")
@limit_option
@file_option("--parquet", text="Write the curve of allocated and reserved bytes to FILE, too.")
@view_options("text", "json")
def memory(trace: Path, limit: int, form: str, parquet: Path | None, output: Path | None, force: bool) -> None:
    """Say what TRACE allocated: the peak, what was alive at it, what was not freed, fragmentation.

    TRACE must have been recorded with profile_memory=True.

    \b
    Examples:
      traceanalyzer memory trace.json.gz
      traceanalyzer memory trace.json --parquet curve.parquet
    """
    from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
    from traceanalyzer.render.data.table import memory_fields
    from traceanalyzer.render.text.memory import render_memory

    loaded = opened(trace, form, [output, parquet], force)
    view, ops = index_of(loaded, MemoryView), ops_by_memory(loaded)
    if parquet is not None:
        put_rows(view.curve, {}, "parquet", parquet, loaded.meta.source)
    if form == "text":
        put_page(partial(render_memory, view, ops, origin_ns=loaded.meta.origin_ns, limit=limit), output)
    else:
        put_rows(view.curve, memory_fields(view, ops), form, output, loaded.meta.source)
