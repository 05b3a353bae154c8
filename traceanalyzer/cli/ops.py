"""`traceanalyzer ops`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import index_of, opened, put_rows
from traceanalyzer.cli.options import limit_option, view_options
from traceanalyzer.cli.output import put_page, put_text


@click.command(short_help="GPU time by op, with inputs, kernels and rates.")
@limit_option
@view_options("text", "json", "csv", "markdown", "parquet")
def ops(trace: Path, limit: int, form: str, output: Path | None, force: bool) -> None:
    """List the ops with the most GPU time, their inputs and kernels, and how near they came to the peak.

    Rates need shapes: record with record_shapes=True.

    \b
    Examples:
      traceanalyzer ops trace.json.gz
      traceanalyzer ops trace.json --limit 3
      traceanalyzer ops trace.json --format parquet --output ops.parquet
    """
    from traceanalyzer.render.data.table import ops_fields
    from traceanalyzer.render.text.ops import ops_markdown, render_ops
    from traceanalyzer.roofline.op_rates import OpWork

    loaded = opened(trace, form, [output], force)
    work = index_of(loaded, OpWork)
    if form == "text":
        put_page(partial(render_ops, work, limit=limit), output)
    elif form == "markdown":
        put_text(ops_markdown(work, limit=limit), output)
    else:
        put_rows(work.frame(), ops_fields(work), form, output, loaded.meta.source)
