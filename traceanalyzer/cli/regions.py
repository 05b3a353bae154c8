"""`traceanalyzer regions`."""

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import opened, put_rows
from traceanalyzer.cli.options import number_option, view_options
from traceanalyzer.cli.output import put_page


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
    from traceanalyzer.model.errors import asked_of
    from traceanalyzer.regions.regions import RegionRates, Regions
    from traceanalyzer.render.data.table import regions_fields, regions_frame
    from traceanalyzer.render.text.regions import render_regions

    loaded = opened(trace, form, [output], force)
    analysis = Analysis(loaded)
    with asked_of(loaded.meta.source):
        tree = analysis.index(Regions)
    rates = analysis.index_or_none(RegionRates)
    if form == "text":
        put_page(partial(render_regions, tree, rates, by=by, depth=depth), output)
    else:
        put_rows(regions_frame(tree, rates), regions_fields(tree, rates), form, output, loaded.meta.source)
