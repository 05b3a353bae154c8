"""The commands `table`, `memory` and `ops`: their options and help; what they do is in `run_table`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_TRACE = click.argument("trace", type=click.Path(path_type=Path))
_OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write there instead of to standard output.",
)
_LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Rows of each list in the text.",
)
_FORCE = click.option("--force", is_flag=True, help="Replace output files that are already there.")
_SORTS = (
    "cuda_time_total self_cuda_time_total cpu_time_total self_cpu_time_total cuda_memory_usage"
    " self_cuda_memory_usage cpu_memory_usage self_cpu_memory_usage cuda_time cpu_time count"
    " device_time_total self_device_time_total device_memory_usage self_device_memory_usage device_time"
    " xpu_time_total self_xpu_time_total xpu_memory_usage self_xpu_memory_usage none"
)


@click.command()
@_TRACE
@click.option(
    "--sort-by",
    type=click.Choice(_SORTS.split()),
    metavar="NAME",
    help="Any of torch's names, such as self_cuda_time_total, cpu_time_total, cuda_memory_usage, count; none for"
    " order of first sight. Default: cuda_time_total, or cpu_time_total without a GPU.",
)
@click.option("--row-limit", type=click.IntRange(min=1), metavar="N", help="Default: 100 as text, else all.")
@click.option("--group-by-input-shape", is_flag=True, help="One row per name and shapes.")
@click.option(
    "--group-by-stack-n",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="One row per name and N innermost python frames.",
)
@click.option("--python-functions", is_flag=True, help="List python functions, as torch 2.12 and 2.13 do.")
@click.option(
    "--max-name-width",
    type=click.IntRange(min=4),
    default=55,
    show_default=True,
    metavar="N",
    help="Longer names are cut.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "parquet", "markdown"]),
    default="text",
    show_default=True,
)
@_OUTPUT
@_FORCE
def table(**options: Any) -> None:
    """Print key_averages().table() from TRACE alone.

    Times are exact to the nanosecond. The text is torch's own, so that the two can be compared with diff. What
    cannot be exact in this trace is said on standard error, and in docs/table.md.

    \b
    Examples:
      traceanalyzer table trace.json.gz
      traceanalyzer table trace.json --sort-by self_cpu_time_total --row-limit 20
      traceanalyzer table trace.json --group-by-input-shape --format csv --output rows.csv
      traceanalyzer table trace.json --format markdown --row-limit 10
    """
    from traceanalyzer.cli.run_table import run_table

    run_table(**options)


@click.command()
@_TRACE
@_LIMIT
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--parquet",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the curve of allocated and reserved bytes there, too.",
)
@_OUTPUT
@_FORCE
def memory(**options: Any) -> None:
    """Say what TRACE allocated: the peak, what was alive at it, what was not freed, fragmentation.

    TRACE must have been recorded with profile_memory=True.

    \b
    Examples:
      traceanalyzer memory trace.json.gz
      traceanalyzer memory trace.json --parquet curve.parquet
    """
    from traceanalyzer.cli.run_table import run_memory

    run_memory(**options)


@click.command()
@_TRACE
@_LIMIT
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "parquet"]),
    default="text",
    show_default=True,
)
@_OUTPUT
@_FORCE
def ops(**options: Any) -> None:
    """List the ops with the most GPU time, their inputs and kernels, and how near they came to the peak.

    Rates need shapes: record with record_shapes=True.

    \b
    Examples:
      traceanalyzer ops trace.json.gz
      traceanalyzer ops trace.json --limit 3
      traceanalyzer ops trace.json --format parquet --output ops.parquet
    """
    from traceanalyzer.cli.run_table import run_ops

    run_ops(**options)
