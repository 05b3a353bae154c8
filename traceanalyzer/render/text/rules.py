"""A rule -> text: the page that `explain` prints."""

from __future__ import annotations

import re

from traceanalyzer.render.text.page import Page
from traceanalyzer.rule.limits import LimitInfo, limits_of
from traceanalyzer.rule.registry import MIN_SHARE, Rule

# Pages start one with what it is about, "Bad: ...", or as an item of a list.
_PARAGRAPH = re.compile(r"\n(?:\n|(?=[A-Z][^.:]*:)|(?=- ))")

_MIN_SHARE_SOURCE = (
    "a finding is reported only if its cost is at least this share of the window (the recorded time), or if fixing it "
    "saves at least this share of the predicted step"
)
_ZERO_SOURCE = "0 means that the cost does not decide whether a finding is reported"


def rule_page(rule: Rule, width: int = 80) -> str:
    """Slug, the docstring, and every limit with its default and where the number comes from."""
    page = Page(width)
    page.put(f"{rule.slug}  (group {rule.group}, added in version {rule.since})")
    page.blank()
    for paragraph in _PARAGRAPH.split(rule.page):
        page.put(" ".join(paragraph.split()), indent=2 * paragraph.startswith("- "), hang=2)
    page.blank()
    page.put(f"Thresholds. To change one, for example: --set {rule.slug}.{MIN_SHARE}=0.1")
    source = _MIN_SHARE_SOURCE if rule.min_share else _ZERO_SOURCE
    for limit in [LimitInfo(MIN_SHARE, rule.min_share, source), *limits_of(rule.limits)]:
        shown = f" ({limit.shown})" if limit.shown else ""
        page.put(f"{rule.slug}.{limit.name}={limit.value}{shown}", indent=4)
        page.put(limit.explained, indent=8)
    return page.text()
