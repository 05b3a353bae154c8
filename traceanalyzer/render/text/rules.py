"""Rules -> text: the page that `explain` prints, and the table in README.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields

from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.text.page import Page
from traceanalyzer.rule.registry import Rule

_PROVENANCE = re.compile(r"^\s+(\w+)\s*:[^#]*#\s*(.+?)\s*$", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n(?:\n|(?=[A-Z][^.:]*:))")  # pages start one with what it is about: "Bad: ..."
_FORMS = {"ns": format_ns, "bytes": format_bytes, "share": format_share}


def rule_page(rule: Rule, width: int = 80) -> str:
    """Slug, the docstring, and every limit with its default and where the number comes from."""
    page = Page(width)
    page.put(f"{rule.slug}  ({rule.group}, since {rule.since})")
    page.blank()
    for paragraph in _PARAGRAPH.split(rule.page):
        page.put(" ".join(paragraph.split()), hang=2)
    limits = list(_limits(rule))
    if limits:
        page.blank()
        page.put("Limits, to be changed with --set:")
    for limit, origin in limits:
        page.put(limit, indent=4)
        page.put(origin, indent=8)
    return page.text()


def rule_table(rules: Iterable[Rule]) -> str:
    """Markdown: one row per rule."""
    rows = [f"| `{rule.slug}` | {rule.group} | {rule.title.replace('|', chr(92) + '|')} |" for rule in rules]
    return "\n".join(["| rule | group | what it finds |", "|---|---|---|", *rows])


def _limits(rule: Rule) -> Iterable[tuple[str, str]]:
    """Each limit with its default, and where the number comes from."""
    provenance = dict(_PROVENANCE.findall(inspect.getsource(type(rule.limits))))
    for field in fields(rule.limits):
        value = getattr(rule.limits, field.name)
        form = _FORMS.get(field.name.rpartition("_")[2])
        shown = f" ({form(value)})" if form else ""
        yield f"{rule.slug}.{field.name}={value}{shown}", provenance.get(field.name, "")
