"""`traceanalyzer table`."""

from pathlib import Path

import click

from traceanalyzer.cli.data import opened, put_rows
from traceanalyzer.cli.options import number_option, view_options
from traceanalyzer.cli.output import put_text, tell
from traceanalyzer.model.errors import TraceAnalyzerError

TEXT_ROWS = 100  # as many as torch prints
_SORTS = (
    "cuda_time_total self_cuda_time_total cpu_time_total self_cpu_time_total cuda_memory_usage"
    " self_cuda_memory_usage cpu_memory_usage self_cpu_memory_usage cuda_time cpu_time count"
    " device_time_total self_device_time_total device_memory_usage self_device_memory_usage device_time"
    " xpu_time_total self_xpu_time_total xpu_memory_usage self_xpu_memory_usage none"
)


def _row_limit(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value == 0 or (value or 0) < -1:
        raise click.BadParameter("a number of rows, or -1 for all of them", ctx, param)
    return value


@click.command(short_help="key_averages().table() from the trace alone.")
@click.option(
    "--sort-by",
    type=click.Choice(_SORTS.split()),
    metavar="NAME",
    help="Any of torch's names, such as self_cuda_time_total, cpu_time_total, cuda_memory_usage, count; "
    "none for order of first appearance. Default: cuda_time_total, or cpu_time_total without a GPU.",
)
@click.option(
    "--row-limit", type=int, callback=_row_limit, metavar="N", help="-1 for all. Default: 100 as text, else all."
)
@click.option("--group-by-input-shape", is_flag=True, help="One row per name and shapes.")
@click.option(
    "--group-by-stack-n",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="One row per name and N innermost Python frames.",
)
@click.option("--python-functions", is_flag=True, help="List Python functions, as torch 2.12 and 2.13 do.")
@number_option("--max-name-width", "Longer names are cut.", least=4, default=55)
@view_options("text", "json", "csv", "parquet", "markdown")
def table(
    trace: Path,
    sort_by: str | None,
    row_limit: int | None,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    python_functions: bool,
    max_name_width: int,
    form: str,
    output: Path | None,
    force: bool,
) -> None:
    """Print key_averages().table() from TRACE alone.

    Times are exact to the nanosecond. The text is torch's own, so that the two can be compared with diff. Columns that
    cannot be exact in this trace are named on standard error; see docs/table.md.

    \b
    Examples:
      traceanalyzer table trace.json.gz
      traceanalyzer table trace.json --sort-by self_cpu_time_total --row-limit 20
      traceanalyzer table trace.json --group-by-input-shape --format csv
      traceanalyzer table trace.json --format markdown --row-limit 10
    """
    from traceanalyzer.render.data.table import records
    from traceanalyzer.render.text.table import TableSize, render_table, table_markdown
    from traceanalyzer.torch_table.key_averages import key_averages
    from traceanalyzer.torch_table.printed import printed_table, sorted_rows, table_notes

    loaded = opened(trace, form, [output], force)
    averages = key_averages(
        loaded, by_input_shape=group_by_input_shape, by_stack=group_by_stack_n, python_functions=python_functions
    )
    if len(averages.rows) == 0:
        raise TraceAnalyzerError("no events to make a table of", where=loaded.meta.source)
    notes = [*table_notes(loaded, averages, python_functions=python_functions)]
    usual = "device_time_total" if averages.has_device_time else "cpu_time_total"
    order = None if sort_by == "none" else sort_by or usual
    if form in ("text", "markdown"):
        render = render_table if form == "text" else table_markdown
        size = TableSize(row_limit or TEXT_ROWS, max_name_width)
        put_text(render(printed_table(averages, order), size), output)
    else:
        rows = sorted_rows(averages.rows, order)
        rows = rows.head(row_limit) if row_limit is not None and row_limit > 0 else rows
        head = {name: getattr(averages, name) for name in ("device", "self_cpu_total_ns", "self_device_total_ns")}
        content = {**head, "notes": notes, "rows": records(rows)}
        put_rows(rows, content, form, output, loaded.meta.source, notes)
    for note in notes:
        tell(f"note: {note}")
