"""Facts as text: one paragraph each, under the name of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.short_names import short_op
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.escape import printable
from traceanalyzer.report.facts import Fact
from traceanalyzer.rule.registry import MIN_SHARE, LimitInfo, Rule, limits_of

# Pages start one with what it is about, "Bad: ...", or as an item of a list.
_PARAGRAPH = regex(r"\n(?:\n|(?=[A-Z][^.:]*:)|(?=- ))")

_MIN_SHARE_SOURCE = (
    "a finding is reported only if its cost is at least this share of the window (the recorded time), or if fixing it "
    "saves at least this share of the predicted step"
)
_ZERO_SOURCE = "0 means that the cost does not decide whether a finding is reported"


def paragraphs(rule: Rule) -> list[str]:
    """The paragraphs of the rule's page, a line each."""
    return [" ".join(paragraph.split()) for paragraph in _PARAGRAPH.split(rule.page)]


def rule_page(rule: Rule, width: int = 80, *, verbose: bool = False) -> str:
    """Slug, the docstring, and every limit; `verbose` says of each what it means and where its number comes from."""
    page = Page(width)
    page.put(f"{rule.slug}  (group {rule.group}, added in version {rule.since})")
    page.blank()
    for paragraph in paragraphs(rule):
        page.put(paragraph, indent=2 * paragraph.startswith("- "), hang=2)
    if rule.causes:
        page.put(f"Causes: {', '.join(rule.causes)}.", hang=2)
    page.blank()
    source = _MIN_SHARE_SOURCE if rule.min_share else _ZERO_SOURCE
    limits = [LimitInfo(MIN_SHARE, rule.min_share, source), *limits_of(rule.limits)]
    page.put("Thresholds with their present values:")
    if verbose:
        for limit in limits:
            shown = f" ({limit.shown})" if limit.shown else ""
            page.put(f"{rule.slug}.{limit.name}={limit.value}{shown}", indent=4)
            page.put(limit.explained, indent=8)
    else:
        page.put(", ".join(f"{limit.name}={limit.value}" for limit in limits), indent=2)
        page.put(f"What each means: traceanalyzer explain {rule.slug} --verbose", indent=2)
    page.put(f"To change one, for example: --set {rule.slug}.{MIN_SHARE}=0.1", indent=2)
    return page.text()


_SHOWN = 4  # event ids of a fact


def render_facts(facts: Sequence[Fact], *, width: int = 100, ascii_only: bool = False) -> str:
    """The facts by kind, in lines of `width`."""
    page = Page(width=width, ascii_only=ascii_only)
    for name, same in groupby(facts, lambda fact: fact.name):
        page.blank()
        page.put(name.replace("-", " "), style="bold")
        for fact in same:
            ids = fact.event_ids
            shown = ", ".join(map(str, ids[:_SHOWN])) + " ..." * (len(ids) > _SHOWN)
            events = f" (event{'s' * (len(ids) > 1)} {shown})" * bool(ids)
            page.put(fact.text + events, indent=2, hang=2)
    if not facts:
        page.put("The trace shows none of the facts that are known here.")
    return page.text()


_COUNTED = ("count", "total", "mean", "min", "max", "share")
_COUNT_WIDTH = 9


def render_listed(rows: pd.DataFrame, what: str, *, top: int, width: int = 100, ascii_only: bool = False) -> str:
    """The events of `listed_events`, two lines for each name: what and where it is, then the numbers."""
    page = Page(width=width, ascii_only=ascii_only)
    if rows.empty:
        return f"No {what} recorded.\n"
    page.put(f"{what} by name, those with most time first; shares are of all listed".capitalize())
    page.lines.append("  ".join(f"{title:>{_COUNT_WIDTH}}" for title in _COUNTED))
    for row in rows.head(top).to_dict("records"):
        times = [format_ns(row[f"{name}_ns"]) for name in _COUNTED[1:5]]
        cells = [f"{row['count']:,}", *times, format_share(row["share"])]
        name = printable(short_op(row["name"]) if what == "kernels" else row["name"])
        where = [str(row[part]) for part in ("op", "region", "line") if isinstance(row[part], str)]
        where = [one for one in where if not where[-1].endswith(f": {one.removesuffix('()')}")]
        moved = [format_bytes(row["bytes"])] * bool(row["bytes"])
        page.put(f"{name}: {printable(', '.join([*moved, *where]))}".removesuffix(": "), hang=2)
        page.lines.append("  ".join(f"{cell:>{_COUNT_WIDTH}}" for cell in cells))
    if len(rows) > top:
        page.put(f"... and {len(rows) - top:,} more: --top")
    return page.text()
