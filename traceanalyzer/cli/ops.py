"""`traceanalyzer ops`."""

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import index_of, opened, put_rows
from traceanalyzer.cli.options import limit_option, view_options
from traceanalyzer.cli.output import put_page, put_text
from traceanalyzer.model.errors import BadOption


@click.command(short_help="GPU time by op, with inputs, kernels and rates.")
@click.option(
    "--by",
    type=click.Choice(["op", "module", "function", "phase"]),
    default="op",
    show_default=True,
    help="Sum by module or Python function (need stacks), or by phase of the step: CPU, GPU and idle time of each.",
)
@limit_option
@view_options("text", "json", "csv", "markdown", "parquet")
def ops(trace: Path, by: str, limit: int, form: str, output: Path | None, force: bool) -> None:
    """List the ops with the most GPU time, their inputs and kernels, and how near they came to the peak.

    Rates need shapes: record with record_shapes=True. With --by, forward plus backward of each name.

    \b
    Examples:
      traceanalyzer ops trace.json.gz
      traceanalyzer ops trace.json --by module
      traceanalyzer ops trace.json --format parquet --output ops.parquet
    """
    from traceanalyzer.regions.regions import Regions
    from traceanalyzer.render.data.table import ops_fields, records
    from traceanalyzer.render.text.ops import ops_markdown, render_ops
    from traceanalyzer.render.text.regions import render_sums
    from traceanalyzer.roofline.op_rates import OpWork

    if by != "op" and form == "markdown":
        raise BadOption("--by has no Markdown", remedy="Use --format text, json, csv or parquet.")
    loaded = opened(trace, form, [output], force)
    if by != "op":
        rows = index_of(loaded, Regions).by_name(by)
        if form == "text":
            put_page(partial(render_sums, rows, by, limit=limit), output)
        else:
            put_rows(rows, {"by": by, "rows": records(rows)}, form, output, loaded.meta.source)
        return
    work = index_of(loaded, OpWork)
    if form == "text":
        put_page(partial(render_ops, work, limit=limit), output)
    elif form == "markdown":
        put_text(ops_markdown(work, limit=limit), output)
    else:
        put_rows(work.frame(), ops_fields(work), form, output, loaded.meta.source)
