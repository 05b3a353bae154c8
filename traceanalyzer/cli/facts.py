"""`traceanalyzer facts`."""

from __future__ import annotations

from pathlib import Path

import click

from traceanalyzer.cli.data import check, put_rows
from traceanalyzer.cli.options import force_option, format_option, output_option, trace_argument
from traceanalyzer.cli.output import ascii_only, put_text, width


@click.command()
@trace_argument
@format_option("text", "json", "csv", "parquet")
@output_option
@force_option
def facts(trace: Path, form: str, output: Path | None, force: bool) -> None:
    """State what the trace shows that is no fault: what bounds it, hotspots, dispatch chains, rates.

    \b
    Examples:
      traceanalyzer facts trace.json.gz
      traceanalyzer facts trace.json --format json
    """
    from traceanalyzer.cli.loading import load_one
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.render.data.facts import facts_fields, facts_frame
    from traceanalyzer.render.text.facts import render_facts
    from traceanalyzer.report.facts import facts_of

    check(trace, form, [output], force)
    loaded = load_one(trace)
    found = facts_of(Analysis(loaded))
    if form == "text":
        put_text(render_facts(found, width=width(output), ascii_only=ascii_only(output)), output)
        return
    put_rows(facts_frame(found), facts_fields(found), form, output, loaded.meta.source)
