"""`traceanalyzer baseline`."""

from pathlib import Path

import click

from traceanalyzer.cli.options import force_option
from traceanalyzer.cli.output import check_outputs, made, put, tell


@click.group(short_help="Keep recordings to compare later ones with.")
def baseline() -> None:
    """Keep what recordings say in a small Parquet file, for `traceanalyzer compare baseline:NAME TRACE`."""


@baseline.command(short_help="Make a baseline of one or more recordings.")
@click.argument("name")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@force_option
def save(name: str, traces: tuple[Path, ...], force: bool) -> None:
    """Save what TRACE says of its program as the baseline NAME.

    Each TRACE is a capture of the same program: a file, or a folder of ranks. With three captures, in processes of
    their own, later comparisons know the noise. NAME is kept in .traceanalyzer/NAME.parquet, at most 200 kB, which can
    be committed; a NAME that ends in .parquet is the file itself.

    \b
    Examples:
      traceanalyzer baseline save main trace.json.gz
      traceanalyzer baseline save main a1.json.gz a2.json.gz a3.json.gz --force
    """
    from traceanalyzer.comparison.baseline import baseline_bytes, baseline_path
    from traceanalyzer.comparison.compare import side_of

    path = baseline_path(name)
    if path.parent.name == ".traceanalyzer":
        made(path.parent)
    check_outputs([path], inputs=traces, force=force)
    content = baseline_bytes(side_of(list(traces)))
    put(content, path)
    tell(f"{path}: {len(content):,} bytes", str(path))
