"""`traceanalyzer collectives`."""

from __future__ import annotations

from pathlib import Path

import click

from traceanalyzer.cli.options import FILE, PATH_OR_URL, force_option, format_option, scheduler_option
from traceanalyzer.cli.output import put, put_text


@click.command(short_help="Collectives of a job: sizes, bandwidths, waiting, clocks.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH_OR_URL)
@format_option("text", "json")
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write it there instead of standard output.")
@force_option
@scheduler_option
def collectives(
    traces: tuple[Path, ...], form: str, output: Path | None, force: bool, scheduler: str | None
) -> None:
    """List the collectives of a job by kind, group and size, and the clocks of its ranks.

    TRACEs are the ranks of one job, or a folder of them. A transfer begins when the last rank comes. Bandwidths are
    those of nccl-tests, in GB/s of 1e9 bytes.

    \b
    Examples:
      traceanalyzer collectives traces/
      traceanalyzer collectives rank0.json rank1.json --format json
    """
    from traceanalyzer.cli.files import check_outputs
    from traceanalyzer.cli.ranks import with_ranks
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.render.data.encode import INDENTED, to_json
    from traceanalyzer.render.text.collectives import render_collectives
    from traceanalyzer.report.collectives import collectives_of_job

    check_outputs([output] if output else [], inputs=traces, force=force)
    try:
        view, found = with_ranks(traces, None, collectives_of_job, scheduler=scheduler)
    except Unavailable as reason:
        raise reason.for_user(str(traces[0])) from reason
    if form == "json":
        put(to_json({"collectives": found, "clocks": view.clocks}, INDENTED), output)
    else:
        put_text(render_collectives(found, view.clocks), output)
