"""`traceanalyzer compare` and `traceanalyzer baseline`."""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli.options import file_option, force_option, format_option, output_option
from traceanalyzer.cli.output import check_outputs, look, made, put, put_text, tell, written

if TYPE_CHECKING:
    from traceanalyzer.comparison.result import Comparison


def _times(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...]:
    """Times in ms, one or several with commas."""
    try:
        times = tuple(float(text) for text in (value or "").split(",") if text.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time in ms", ctx, param) from None
    if any(not 0 < ms < float("inf") for ms in times):
        raise click.BadParameter(f"{value!r}: a time is positive", ctx, param)
    return times


@click.command(short_help="What changed between two traces, and whether it is real.")
@click.argument("base", type=str)
@click.argument("new", type=str)
@click.option("--base", "more_base", multiple=True, metavar="TRACE", help="Another capture of BASE; repeatable.")
@click.option("--new", "more_new", multiple=True, metavar="TRACE", help="Another capture of NEW; repeatable.")
@format_option("text", "json", "csv", "markdown")
@output_option
@file_option("--parquet", text="Write the rows as Parquet, too.")
@file_option("--page", text="Write a page with both recordings, too.")
@click.option(
    "--fail-on",
    type=click.Choice(["slower", "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 if NEW is slower.",
)
@click.option(
    "--gate", "gates", multiple=True, metavar="NAME=LIMIT", help="Exit with 1 if NAME grew by more; repeatable."
)
@click.option(
    "--base-ms",
    callback=_times,
    metavar="MS",
    help="BASE's step without the profiler as you timed it; 1.50,1.55 for several runs.",
)
@click.option("--new-ms", callback=_times, metavar="MS", help="The same for NEW.")
@file_option("--to-ledger", text="Add the predicted and the measured saving of a fault that is gone (CSV).")
@click.option("--quiet", is_flag=True, help="The verdict and its reasons only.")
@force_option
@click.pass_context
def compare(ctx: click.Context, /, **given: Any) -> None:
    """Say what got slower or faster from BASE to NEW, why, and whether it is more than noise.

    BASE and NEW are each a trace, a folder of ranks or of captures, or baseline:NAME. With three captures a side, in
    processes of their own, the noise is measured instead of assumed.

    Gates: `step=5%` and `gpu=5%` fail if the time grew by more than this and beyond noise. Every exact counter, such as
    launches, synchronisations, kernels or "d2h copies", takes a number or a share.

    \b
    Examples:
      traceanalyzer compare before.json.gz after.json.gz
      traceanalyzer compare a1.json b1.json --base a2.json --new b2.json
      traceanalyzer compare ranks_before/ ranks_after/ --format json
      traceanalyzer compare baseline:main trace.json --gate step=5%

    \b
    Exit codes: 0 it ran, 1 --fail-on or a --gate was met, 2 it could not run.
    """
    from traceanalyzer.comparison.compare import compare as compared
    from traceanalyzer.comparison.gates import broken, gates_of

    asked = SimpleNamespace(**given)
    limits = gates_of(asked.gates)
    base, new = [asked.base, *asked.more_base], [asked.new, *asked.more_new]
    inputs = [Path(path) for path in (*base, *new) if not path.startswith("baseline:")]
    outputs = [path for path in (asked.output, asked.parquet, asked.page) if path]
    check_outputs(outputs, inputs=inputs, force=asked.force)
    times = [statistics.median(ms) if ms else None for ms in (asked.base_ms, asked.new_ms)]
    comparison = compared(base, new, base_ms=times[0], new_ms=times[1])
    failures = broken(comparison, limits)
    if asked.parquet is not None:
        from traceanalyzer.render.data.comparison import write_comparison

        with written(asked.parquet) as stream:
            write_comparison(comparison, stream)
    if asked.page is not None:
        from traceanalyzer.render.html.comparison import render_comparison_page

        put(render_comparison_page(comparison), asked.page)
    _put(comparison, asked.form, asked.output, asked.quiet)
    if asked.to_ledger is not None:
        _add_to_ledger(comparison, asked.to_ledger, asked.base_ms)
    for failure in failures:
        tell(f"gate: {failure}")
    if failures or (asked.fail_on == "slower" and comparison.verdict.word == "slower"):
        ctx.exit(1)


def _add_to_ledger(comparison: Comparison, path: Path, base_ms: tuple[float, ...]) -> None:
    from traceanalyzer.render.data.comparison import ledger_rows, ledger_text

    rows = ledger_rows(comparison, max(base_ms) / min(base_ms) - 1 if base_ms else None)
    if not rows:
        tell(f"{path}: nothing added: exactly one fault with a predicted saving has to be gone", str(path))
        return
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    put(ledger_text(rows, before).encode(), path)


def _put(comparison: Comparison, form: str, output: Path | None, quiet: bool) -> None:
    from traceanalyzer.render.data import comparison as data

    if form == "json":
        put(data.comparison_json(comparison), output)
    elif form == "csv":
        from traceanalyzer.render.data.table import table_csv

        put(table_csv(comparison.to_frame()), output)
    elif form == "markdown":
        put_text(data.comparison_markdown(comparison), output)
    else:
        from traceanalyzer.render.text.comparison import render_comparison

        put_text(render_comparison(comparison, quiet=quiet, **look(output)), output)


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
