"""`traceanalyzer ops`."""

from __future__ import annotations

from pathlib import Path

import click

from traceanalyzer.cli.data import check, index_of, put_rows
from traceanalyzer.cli.options import (
    force_option,
    format_option,
    limit_option,
    output_option,
    trace_argument,
)
from traceanalyzer.cli.output import ascii_only, put_text, width


@click.command()
@trace_argument
@limit_option
@format_option("text", "json", "csv", "parquet")
@output_option
@force_option
def ops(trace: Path, limit: int, form: str, output: Path | None, force: bool) -> None:
    """List the ops with the most GPU time, their inputs and kernels, and how near they came to the peak.

    Rates need shapes: record with record_shapes=True.

    \b
    Examples:
      traceanalyzer ops trace.json.gz
      traceanalyzer ops trace.json --limit 3
      traceanalyzer ops trace.json --format parquet --output ops.parquet
    """
    from traceanalyzer.cli.loading import load_one
    from traceanalyzer.render.data.views import ops_fields
    from traceanalyzer.render.text.ops import render_ops
    from traceanalyzer.roofline.op_work import OpWork

    check(trace, form, [output], force)
    loaded = load_one(trace)
    work = index_of(loaded, OpWork)
    if form == "text":
        text = render_ops(work, limit=limit, width=width(output), ascii_only=ascii_only(output))
        put_text(text, output)
        return
    put_rows(work.frame(), ops_fields(work), form, output, loaded.meta.source)
