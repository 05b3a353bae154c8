"""`traceanalyzer rules`."""

import click

from traceanalyzer.cli.output import ascii_only, colourful, put_text, width


@click.command(short_help="All rules, each with its title.")
def rules() -> None:
    """List the rules, each with its title.

    \b
    Example:
      traceanalyzer rules
    """
    from traceanalyzer.render.text.page import Page
    from traceanalyzer.rule import registry

    page = Page(width(), colour=colourful(), ascii_only=ascii_only())
    every_rule = registry.all_rules()
    room = max((len(rule.slug) for rule in every_rule), default=0)
    for rule in every_rule:
        page.pair(rule.slug, f"{rule.title} ({rule.group})", width=room + 1)
    put_text(page.text())
