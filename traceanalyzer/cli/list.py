"""`traceanalyzer list`."""

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import opened, put_rows
from traceanalyzer.cli.options import number_option, view_options
from traceanalyzer.cli.output import put_page


@click.command("list", short_help="Kernels, copies, waits, idle gaps or annotations, by name.")
@click.argument("what", type=click.Choice(("kernels", "copies", "syncs", "gaps", "annotations")))
@click.option("--step", type=int, metavar="N", help="Only events of this step, by the number in the trace.")
@number_option("--top", "Only the N names with the most time. Default as text: 20.")
@view_options("text", "json", "csv", "parquet")
def list_(
    what: str, trace: Path, step: int | None, top: int | None, form: str, output: Path | None, force: bool
) -> None:
    """List events of one sort by name with count, total, mean, shortest, longest, share, op, region and line.

    \b
    Examples:
      traceanalyzer list kernels trace.json.gz
      traceanalyzer list copies trace.json --step 3
      traceanalyzer list gaps trace.json --format csv
    """
    from traceanalyzer.model.errors import asked_of
    from traceanalyzer.render.data.table import records
    from traceanalyzer.render.text.listings import render_listed
    from traceanalyzer.report.tables import listed_events

    loaded = opened(trace, form, [output], force)
    with asked_of(loaded.meta.source):
        rows = listed_events(loaded, what, step)
    if form == "text":
        put_page(partial(render_listed, rows, what, top=top or 20), output)
    else:
        rows = rows.head(top or len(rows))
        put_rows(rows, {"what": what, "step": step, "events": records(rows)}, form, output, loaded.meta.source)
