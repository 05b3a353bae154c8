"""`traceanalyzer facts`."""

from functools import partial
from pathlib import Path

import click

from traceanalyzer.cli.data import opened, put_rows
from traceanalyzer.cli.options import view_options
from traceanalyzer.cli.output import put_page


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
    from traceanalyzer.render.data.json import facts_fields, facts_frame
    from traceanalyzer.render.text.listings import render_facts
    from traceanalyzer.report.facts import facts_of

    loaded = opened(trace, form, [output], force)
    measured = facts_of(Analysis(loaded))
    if form == "text":
        put_page(partial(render_facts, measured), output)
    else:
        put_rows(facts_frame(measured), facts_fields(measured), form, output, loaded.meta.source)
