"""Rules by the names that users type."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from traceanalyzer.model.errors import BadOption

if TYPE_CHECKING:
    from traceanalyzer.rule.registry import Rule


def known_rule(slug: str) -> Rule:
    """The rule of that slug.

    Raises:
        BadOption: there is none; says which names come close.
    """
    from traceanalyzer.rule import registry

    try:
        return registry.find_rule(slug)
    except BadOption as error:
        close = get_close_matches(slug, [rule.slug for rule in registry.all_rules()])
        if not close:
            raise
        raise BadOption(error.problem, remedy=f"Did you mean {' or '.join(close)}?") from None
