"""What rules are made of: decorator, registry, limits, claims, grouping, messages, places.

from traceanalyzer.rule import Hits, Work, rule
"""

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import Kind, rule
from traceanalyzer.rule.views import Calls, IdleTime, Work

__all__ = [
    "Calls", "Claims", "Confidence", "Hits", "IdleTime", "Kind", "LostTime", "Severity", "Unavailable", "Work",
    "limit", "rule",
]  # fmt: skip
