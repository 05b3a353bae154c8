"""What rules are made of: decorator, registry, limits, claims, grouping, messages, places.

from traceanalyzer.rule import Hits, Work, rule
"""

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, op_times
from traceanalyzer.rule.hits import MEASURED_SHARE, Hits, LostTime, clamp_to_floor, reduce_to
from traceanalyzer.rule.registry import Kind, rule
from traceanalyzer.rule.views import Calls, IdleTime, Work

__all__ = [
    "MEASURED_SHARE", "Calls", "Claims", "Confidence", "Hits", "IdleTime", "Kind", "LostTime", "Severity",
    "Unavailable", "Work", "clamp_to_floor", "gpu_time_evidence", "op_times", "reduce_to", "rule",
]  # fmt: skip
