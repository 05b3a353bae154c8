"""`traceanalyzer report` and `traceanalyzer brief`."""

from pathlib import Path

import click

from traceanalyzer.cli import options
from traceanalyzer.cli.output import check_outputs, put, put_text
from traceanalyzer.cli.report_output import warn_of_measured, warn_of_step
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.step_times import GivenStep


@click.command(short_help="One HTML page: findings, timelines, flame graph, ops.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=options.PATH_OR_URL)
@options.file_option("--output", "-o", text="Write the page to FILE, such as report.html.", required=True)
@click.option("--confidential", is_flag=True, help="Leave out files, Python lines, modules and annotations.")
@options.window_option
@options.step_option
@options.force_option
@options.number_option("--jobs", "Processes that read a large file.")
@options.cache_option
def report(
    traces: tuple[Path, ...],
    output: Path,
    confidential: bool,
    window: options.Window | None,
    step_ms: GivenStep | None,
    force: bool,
    jobs: int | None,
    cache: bool,
) -> None:
    """Write one HTML file with the findings in TRACE, where the time went, and timelines.

    The file is self-contained and loads nothing. Several TRACEs are the ranks of one job, as for diagnose.

    \b
    Examples:
      traceanalyzer report trace.json.gz -o report.html
      traceanalyzer report traces/ -o report.html --force
      traceanalyzer report trace.json -o part.html --window 12.5ms:80ms
      traceanalyzer report trace.json -o to-share.html --confidential
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.job.ranks import Here
    from traceanalyzer.render.html.document import render_html
    from traceanalyzer.render.html.page_data import page_of
    from traceanalyzer.report.diagnosis import analyses_of, report_of

    if output.suffix.lower() not in ("", ".html", ".htm"):
        remedy = "Name the file like report.html; a browser prints it as a PDF."
        raise BadOption(f"a page is HTML, not {output.suffix}", where=output, remedy=remedy)
    check_outputs([output], inputs=traces, force=force)
    analysed = analyses_of(load_all(traces, jobs=jobs, cache=cache), window)
    judged = report_of(analysed, step_ms=step_ms)
    put(render_html(page_of(judged, analysed, confidential=confidential)), output)
    click.echo(f"{output}: {len(judged.findings):,} findings", err=True)
    warn_of_measured(judged)
    warn_of_step(step_ms, Here(dict(analysed)))


@click.command(short_help="What to change in the program, and how to verify it, in 150 lines.")
@options.trace_argument
@click.option(
    "--script",
    type=options.FILE,
    metavar="FILE.py",
    help="The program's main file, to quote its code and to fit the examples to it.",
)
@options.step_option
@options.output_option
@options.force_option
def brief(trace: Path, script: Path | None, step_ms: GivenStep | None, output: Path | None, force: bool) -> None:
    """Print what somebody needs who repairs the program of TRACE without this tool, as Markdown.

    Each change has place, code before and after, preconditions and effect on results. TRACE may be a folder of ranks.

    \b
    Examples:
      traceanalyzer brief trace.json.gz --script train.py
      traceanalyzer brief trace.json.gz -o brief.md
    """
    from traceanalyzer import diagnose
    from traceanalyzer.render.text.brief import render_brief

    check_outputs([output] if output else [], inputs=[trace], force=force)
    put_text(render_brief(diagnose(trace, step_ms=step_ms), script), output)
