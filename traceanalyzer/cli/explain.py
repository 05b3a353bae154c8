"""`traceanalyzer explain` and `traceanalyzer rules`."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.output import look, put_text, width

if TYPE_CHECKING:
    from traceanalyzer.rule.registry import Rule

_CHARGED, _QUOTED = re.compile(r"charged_to\(([^)]*)\)"), re.compile(r'"([a-z-]+)"')


@click.command(short_help="A rule, a cause, or the name of a kernel.")
@click.argument("words", metavar="RULE", nargs=-1, required=True)
@click.option("--verbose", "-v", is_flag=True, help="Also what each threshold means, and where its number comes from.")
def explain(words: tuple[str, ...], verbose: bool) -> None:
    """Print what RULE looks for, why it costs, and how sure it is; of a kernel, what its name says.

    RULE is a name from `traceanalyzer rules`, a group of rules, a cause that a report shows, or a kernel.

    \b
    Examples:
      traceanalyzer explain scheduler-gap
      traceanalyzer explain scheduler-gap --verbose
      traceanalyzer explain launch not recorded
      traceanalyzer explain ampere_sgemm_128x128_tn
    """
    from traceanalyzer.render.text.explain import kernel_page, rule_page
    from traceanalyzer.render.text.page import Page
    from traceanalyzer.rule import registry

    name, every_rule = " ".join(words), registry.all_rules()
    chosen = [rule for rule in every_rule if rule.slug == name]
    chosen = chosen or [rule for rule in every_rule if rule.group == name]
    if not chosen:
        put_text(kernel_page(name, width()) or _cause_page(name, every_rule, verbose))
        return
    pages, also = [rule_page(rule, width(), verbose=verbose) for rule in chosen], Page(width())
    for rule in every_rule if chosen[0].group == name else ():  # `memory` is a group, and limits a hotspot
        if rule not in chosen and _names(rule, name):
            also.put(f'{rule.slug} also has a case "{name}": see traceanalyzer explain {rule.slug}')
    put_text("\n".join([*pages, *([also.text()] if also.lines else [])]))


def _cause_page(name: str, every_rule: tuple[Rule, ...], verbose: bool) -> str:
    """The accounting's own words on a cause, and the page of each rule that names it."""
    from traceanalyzer.idle.causes import TABLE
    from traceanalyzer.render.text.explain import rule_page
    from traceanalyzer.render.text.page import Page
    from traceanalyzer.report.words import in_words
    from traceanalyzer.rule.registry import find_rule

    page = Page(width())
    called = _normal(name).removesuffix("-once")  # what happens once has the same causes
    for row in TABLE:
        if called in (_normal(row.cause), _normal(in_words(row.cause))):
            page.pair("cause", row.cause)
            page.pair("holds if", row.holds)
            page.pair("because", row.why)
            page.blank()
    naming = [rule for rule in every_rule if _names(rule, name)]
    if not page.lines and not naming:
        find_rule(name)  # says what comes close
    if not page.lines:
        page.put(f"Findings of {', '.join(rule.slug for rule in naming)} may have the cause {name}.")
        page.blank()
    pages = [rule_page(rule, page.width, verbose=verbose) for rule in naming]
    return "\n".join([*([page.text()] if page.lines else []), *pages])


def _names(rule: Rule, cause: str) -> bool:
    """Whether its findings may have the cause, or it takes idle time of that cause."""
    from traceanalyzer.report.words import in_words

    module = inspect.getmodule(rule.function)
    charged = _CHARGED.findall(inspect.getsource(module)) if module is not None else []
    causes = [*rule.causes, *(one for names in charged for one in _QUOTED.findall(names))]
    return any(_normal(cause) in (_normal(one), _normal(in_words(one))) for one in causes)


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-").replace(":-", ":")


@click.command(short_help="All rules, each with its title.")
def rules() -> None:
    """List the rules, each with its title.

    \b
    Example:
      traceanalyzer rules
    """
    from traceanalyzer.render.text.page import Page
    from traceanalyzer.rule import registry

    page = Page(**look())
    every_rule = registry.all_rules()
    room = max((len(rule.slug) for rule in every_rule), default=0)
    for rule in every_rule:
        page.pair(rule.slug, f"{rule.title} ({rule.group})", width=room + 1)
    put_text(page.text())
