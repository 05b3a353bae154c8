"""Rules -> text: the page that `explain` prints, and the table in README.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields

from traceanalyzer.rule import Rule
from traceanalyzer.units import format_bytes, format_ns, format_share

_PROVENANCE = re.compile(r"^\s+(\w+)\s*:[^#]*#\s*(.+?)\s*$", re.MULTILINE)
_FORMS = {"ns": format_ns, "bytes": format_bytes, "share": format_share}


def rule_page(rule: Rule) -> str:
    """Slug, the docstring, and every limit with its default and where the number comes from."""
    heading = f"{rule.slug}  ({rule.group}, since {rule.since})"
    limits = [f"    {line}" for line in _limits(rule)]
    section = ["", "Limits, to be changed with --set:", *limits] if limits else []
    return "\n".join([heading, "", rule.page, *section]) + "\n"


def rule_table(rules: Iterable[Rule]) -> str:
    """Markdown: one row per rule."""
    rows = [f"| `{rule.slug}` | {rule.group} | {rule.title.replace('|', chr(92) + '|')} |" for rule in rules]
    return "\n".join(["| rule | group | what it finds |", "|---|---|---|", *rows])


def _limits(rule: Rule) -> Iterable[str]:
    provenance = dict(_PROVENANCE.findall(inspect.getsource(type(rule.limits))))
    for field in fields(rule.limits):
        value = getattr(rule.limits, field.name)
        form = _FORMS.get(field.name.rpartition("_")[2])
        shown = f" ({form(value)})" if form else ""
        yield f"{rule.slug}.{field.name}={value}{shown}"
        if field.name in provenance:
            yield f"    {provenance[field.name]}"
