"""What rules are made of: decorator, registry, limits, claims, grouping, messages, places.

    from traceanalyzer.rule import Hits, Work, limit, rule

Names are imported when first used, as those of the package are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.model.finding import Confidence, Severity
    from traceanalyzer.rule.claims import Claims
    from traceanalyzer.rule.hits import Hits, LostTime
    from traceanalyzer.rule.limits import limit
    from traceanalyzer.rule.registry import Kind, rule
    from traceanalyzer.rule.views import Calls, IdleTime, Work

_HOMES = {
    "Calls": "rule.views",
    "Claims": "rule.claims",
    "Confidence": "model.finding",
    "Hits": "rule.hits",
    "IdleTime": "rule.views",
    "Kind": "rule.registry",
    "LostTime": "rule.hits",
    "Severity": "model.finding",
    "Unavailable": "model.errors",
    "Work": "rule.views",
    "limit": "rule.limits",
    "rule": "rule.registry",
}

__all__ = [
    "Calls", "Claims", "Confidence", "Hits", "IdleTime", "Kind", "LostTime", "Severity", "Unavailable", "Work",
    "limit", "rule",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"traceanalyzer.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
