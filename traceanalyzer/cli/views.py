"""Commands that print one view of a trace, or of a job's collectives: as text, JSON, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from traceanalyzer.cli import options
from traceanalyzer.cli.options import limit_option, number_option, view_options
from traceanalyzer.cli.output import check_outputs, put, put_page, put_text, tell, written
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, asked_of
from traceanalyzer.model.interpreter import pd

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Trace

I = TypeVar("I")  # noqa: E741 - the conventional letter for an index
_TEXT_ROWS = 100  # as many as torch prints
_SORTS = (
    "cuda_time_total self_cuda_time_total cpu_time_total self_cpu_time_total cuda_memory_usage"
    " self_cuda_memory_usage cpu_memory_usage self_cpu_memory_usage cuda_time cpu_time count"
    " device_time_total self_device_time_total device_memory_usage self_device_memory_usage device_time"
    " xpu_time_total self_xpu_time_total xpu_memory_usage self_xpu_memory_usage none"
)


def _check(traces: Sequence[Path], form: str, outputs: Sequence[Path | None], force: bool) -> None:
    """All that can be refused is refused before reading."""
    if form == "parquet" and outputs[0] is None:
        raise BadOption("Parquet is binary and is not printed", remedy="Name a file with --output FILE.")
    check_outputs([path for path in outputs if path], inputs=traces, force=force)


def _opened(trace: Path, form: str, outputs: Sequence[Path | None], force: bool) -> Trace:
    from traceanalyzer.cli.loading import load_one

    _check([trace], form, outputs, force)
    return load_one(trace)


def _index_of(trace: Trace, kind: type[I]) -> I:
    from traceanalyzer.model.analysis import Analysis

    with asked_of(trace.meta.source):
        return Analysis(trace).index(kind)


def put_rows(
    rows: pd.DataFrame, data: Mapping[str, Any], form: str, output: Path | None, source: str, notes: Sequence[str] = ()
) -> None:
    """The rows as CSV or Parquet, or the document's content as JSON."""
    from traceanalyzer.render.data.table import table_csv, table_json, table_parquet

    if form == "parquet" and output is not None:
        with written(output) as stream:
            table_parquet(rows, stream, source, notes)
    else:
        put(table_json(source, data) if form == "json" else table_csv(rows), output)


@click.command(short_help="Which code of a step costs what, as a tree.")
@number_option("--depth", "Levels of the tree as text; data have all levels.", default=4)
@click.option(
    "--by",
    type=click.Choice(["cpu", "gpu", "idle", "residual"]),
    show_default="cpu or gpu, whichever takes longer",
    help="Order: predicted CPU time, GPU time, idle GPU time, or GPU time above the lower bound.",
)
@view_options("text", "json", "csv", "parquet")
def regions(trace: Path, depth: int, by: str | None, form: str, output: Path | None, force: bool) -> None:
    """Show the code of a typical step as a tree, with the cost of each region.

    A region is a phase, an annotation, a module or Python function (with stacks), a block of ops that repeats, or an
    op; in a CUDA graph, a block of kernels that repeats, or a kernel. The backward pass of an op belongs to the region
    of its forward pass.

    With shapes, TFLOP/s and the share of the peak are those of a region's time on the GPU; MFU is that of the step.

    \b
    Examples:
      traceanalyzer regions trace.json.gz
      traceanalyzer regions trace.json --by idle --depth 6
      traceanalyzer regions trace.json --format parquet --output regions.parquet
    """
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.regions.regions import RegionRates, Regions
    from traceanalyzer.render.data.table import regions_fields, regions_frame
    from traceanalyzer.render.text.views import render_regions

    loaded = _opened(trace, form, [output], force)
    analysis = Analysis(loaded)
    with asked_of(loaded.meta.source):
        tree = analysis.index(Regions)
    rates = analysis.index_or_none(RegionRates)
    if form == "text":
        put_page(partial(render_regions, tree, rates, by=by, depth=depth), output)
    else:
        put_rows(regions_frame(tree, rates), regions_fields(tree, rates), form, output, loaded.meta.source)


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
    from traceanalyzer.render.text.views import ops_markdown, render_ops, render_sums
    from traceanalyzer.roofline.op_rates import OpWork

    if by != "op" and form == "markdown":
        raise BadOption("--by has no Markdown", remedy="Use --format text, json, csv or parquet.")
    loaded = _opened(trace, form, [output], force)
    if by != "op":
        rows = _index_of(loaded, Regions).by_name(by)
        if form == "text":
            put_page(partial(render_sums, rows, by, limit=limit), output)
        else:
            put_rows(rows, {"by": by, "rows": records(rows)}, form, output, loaded.meta.source)
        return
    work = _index_of(loaded, OpWork)
    if form == "text":
        put_page(partial(render_ops, work, limit=limit), output)
    elif form == "markdown":
        put_text(ops_markdown(work, limit=limit), output)
    else:
        put_rows(work.frame(), ops_fields(work), form, output, loaded.meta.source)


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
    from traceanalyzer.render.data.table import records
    from traceanalyzer.render.text.views import render_listed
    from traceanalyzer.report.tables import listed_events

    loaded = _opened(trace, form, [output], force)
    with asked_of(loaded.meta.source):
        rows = listed_events(loaded, what, step)
    if form == "text":
        put_page(partial(render_listed, rows, what, top=top or 20), output)
    else:
        rows = rows.head(top or len(rows))
        put_rows(rows, {"what": what, "step": step, "events": records(rows)}, form, output, loaded.meta.source)


@click.command(short_help="Observations that are not problems: hotspots, rates, dispatch chains.")
@view_options("text", "json", "csv", "parquet")
def facts(trace: Path, form: str, output: Path | None, force: bool) -> None:
    """Print observations that are not problems: what limits the step, hotspots, dispatch chains, rates.

    \b
    Examples:
      traceanalyzer facts trace.json.gz
      traceanalyzer facts trace.json --format json
    """
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.render.data.table import facts_fields, facts_frame
    from traceanalyzer.render.text.views import render_facts
    from traceanalyzer.report.facts import facts_of

    loaded = _opened(trace, form, [output], force)
    measured = facts_of(Analysis(loaded))
    if form == "text":
        put_page(partial(render_facts, measured), output)
    else:
        put_rows(facts_frame(measured), facts_fields(measured), form, output, loaded.meta.source)


@click.command(short_help="Allocations: the peak, owners at the peak, leaks.")
@limit_option
@options.file_option("--parquet", text="Write the curve of allocated and reserved bytes to FILE, too.")
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
    from traceanalyzer.render.text.views import render_memory

    loaded = _opened(trace, form, [output, parquet], force)
    view, ops = _index_of(loaded, MemoryView), ops_by_memory(loaded)
    if parquet is not None:
        put_rows(view.curve, {}, "parquet", parquet, loaded.meta.source)
    if form == "text":
        put_page(partial(render_memory, view, ops, origin_ns=loaded.meta.origin_ns, limit=limit), output)
    else:
        put_rows(view.curve, memory_fields(view, ops), form, output, loaded.meta.source)


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

    loaded = _opened(trace, form, [output], force)
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
        size = TableSize(row_limit or _TEXT_ROWS, max_name_width)
        put_text(render(printed_table(averages, order), size), output)
    else:
        rows = sorted_rows(averages.rows, order)
        rows = rows.head(row_limit) if row_limit is not None and row_limit > 0 else rows
        head = {name: getattr(averages, name) for name in ("device", "self_cpu_total_ns", "self_device_total_ns")}
        content = {**head, "notes": notes, "rows": records(rows)}
        put_rows(rows, content, form, output, loaded.meta.source, notes)
    for note in notes:
        tell(f"note: {note}")


@click.command(short_help="Collectives of a job: sizes, bandwidths, waiting, clocks.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=options.PATH_OR_URL)
@options.format_option("text", "json", "csv", "parquet")
@options.output_option
@options.force_option
@options.scheduler_option
def collectives(traces: tuple[Path, ...], form: str, output: Path | None, force: bool, scheduler: str | None) -> None:
    """List the collectives of a job by kind, group and size, and the clocks of its ranks.

    TRACEs are the ranks of one job, or a folder of them. Groups are named by their ranks, and by what they serve where
    the trace shows it. A transfer begins when the last rank comes; beside is the share of it during which the GPU
    computes. Bandwidths are those of nccl-tests, in GB/s of 1e9 bytes.

    \b
    Examples:
      traceanalyzer collectives traces/
      traceanalyzer collectives rank0.json rank1.json --format json
      traceanalyzer collectives traces/ --format parquet --output links.parquet
    """
    from traceanalyzer.cli.ranks import with_ranks
    from traceanalyzer.render.data.encode import indented_json
    from traceanalyzer.render.text.job import render_collectives
    from traceanalyzer.report.job_summary import collectives_of_job

    _check(traces, form, [output], force)
    with asked_of(traces[0]):
        links = with_ranks(traces, None, collectives_of_job, scheduler=scheduler)
    if form == "text":
        put_text(render_collectives(links), output)
    elif form == "json":
        put(indented_json(links), output)
    else:
        put_rows(pd.DataFrame(map(asdict, links.collectives)), {}, form, output, str(traces[0]))
