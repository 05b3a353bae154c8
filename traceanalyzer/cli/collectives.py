"""`traceanalyzer collectives`."""

from dataclasses import asdict
from pathlib import Path

import click

from traceanalyzer.cli import options
from traceanalyzer.cli.output import put, put_text


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
    from traceanalyzer.cli.data import check, put_rows
    from traceanalyzer.cli.ranks import with_ranks
    from traceanalyzer.model.errors import asked_of
    from traceanalyzer.model.interpreter import pd
    from traceanalyzer.render.data.encode import indented_json
    from traceanalyzer.render.text.job import render_collectives
    from traceanalyzer.report.job_summary import collectives_of_job

    for trace in traces:
        check(trace, form, [output], force)
    with asked_of(traces[0]):
        links = with_ranks(traces, None, collectives_of_job, scheduler=scheduler)
    if form == "text":
        put_text(render_collectives(links), output)
    elif form == "json":
        put(indented_json(links), output)
    else:
        put_rows(pd.DataFrame(map(asdict, links.collectives)), {}, form, output, str(traces[0]))
