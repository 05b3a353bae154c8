"""Facts as text: one paragraph each, under the name of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from traceanalyzer.render.text.page import Page
from traceanalyzer.report.facts import Fact

_SHOWN = 4  # event ids of a fact


def render_facts(facts: Sequence[Fact], *, width: int = 100, ascii_only: bool = False) -> str:
    """The facts by kind, in lines of `width`."""
    page = Page(width=width, ascii_only=ascii_only)
    for name, same in groupby(facts, lambda fact: fact.name):
        page.blank()
        page.put(name.replace("-", " "), style="bold")
        for fact in same:
            page.put(fact.text + _events(fact.event_ids), indent=2, hang=2)
    if not facts:
        page.put("The trace shows none of the facts that are known here.")
    return page.text()


def _events(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN])) + (" ..." if len(ids) > _SHOWN else "")
    return f" (event{'s' * (len(ids) > 1)} {shown})" if ids else ""
