"""`traceanalyzer explain`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.output import put_text, width

if TYPE_CHECKING:
    from traceanalyzer.rule.registry import Rule


@click.command()
@click.argument("name", metavar="RULE")
def explain(name: str) -> None:
    """Print what RULE looks for, why it costs, and how sure it is.

    RULE is a name from `traceanalyzer rules`, a group of rules, or a cause that a report shows.

    \b
    Example:
      traceanalyzer explain scheduler-gap
    """
    from traceanalyzer.render.text.rules import rule_page
    from traceanalyzer.rule import registry

    known = registry.all_rules()
    chosen = [rule for rule in known if rule.slug == name] or [rule for rule in known if rule.group == name]
    if chosen:
        put_text("\n".join(rule_page(rule, width()) for rule in chosen))
        return
    put_text(_cause_page(name, known))


def _cause_page(name: str, known: tuple[Rule, ...]) -> str:
    """The accounting's own words on a cause, and the page of each rule that names it.

    Raises:
        BadOption: no rule names such a cause; says which names come close.
    """
    from traceanalyzer.cli.rule_names import known_rule
    from traceanalyzer.render.text.page import Page
    from traceanalyzer.render.text.rules import rule_page

    page = Page(width())
    for cause, holds, why in _idle_causes(name):
        page.pair("cause", cause)
        page.pair("holds if", holds)
        page.pair("because", why)
        page.blank()
    naming = [rule for rule in known if _names(rule, name)]
    if not page.lines and not naming:
        known_rule(name)  # says what comes close
    pages = [rule_page(rule, page.width) for rule in naming]
    return "\n".join([*([page.text()] if page.lines else []), *pages])


def _idle_causes(name: str) -> list[tuple[str, str, str]]:
    """Rows of the accounting's table of causes that people call so."""
    from traceanalyzer.idle.cause_table import TABLE
    from traceanalyzer.report.words import in_words

    called = _normal(name)
    named = [row for row in TABLE if called in (_normal(row.cause), _normal(in_words(row.cause)))]
    return [(row.cause, row.holds, row.why) for row in named]


def _names(rule: Rule, cause: str) -> bool:
    """Whether the rule's file has the cause as a text of its own."""
    module = inspect.getmodule(rule.function)
    return module is not None and f'"{_normal(cause)}"' in inspect.getsource(module)


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-").replace(":-", ":")
