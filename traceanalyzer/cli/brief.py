"""`traceanalyzer brief`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.options import FILE, force_option, output_option, step_option, trace_argument
from traceanalyzer.cli.output import check_outputs, put_text

if TYPE_CHECKING:
    from traceanalyzer.model.step_times import GivenStep


@click.command(short_help="What to change in the program, and how to verify it, in 150 lines.")
@trace_argument
@click.option(
    "--script",
    type=FILE,
    metavar="FILE.py",
    help="The program's main file, to quote its code and to fit the examples to it.",
)
@step_option
@output_option
@force_option
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
