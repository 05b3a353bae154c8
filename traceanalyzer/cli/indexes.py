"""`traceanalyzer indexes`."""

from __future__ import annotations

import importlib

import click

from traceanalyzer.cli.output import put_text


@click.command(short_help="What a rule of your own can ask for.")
def indexes() -> None:
    """List what rules can ask for: every index, its columns with type and unit, and what it is made of.

    \b
    Example:
      traceanalyzer indexes
    """
    page = importlib.import_module("traceanalyzer.report.index_page")
    put_text(page.index_page())
