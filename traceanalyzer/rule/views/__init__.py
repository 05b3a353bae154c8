"""What rules see: calls, pieces of work and idle time, as selections that know their op, line, step and device."""

from traceanalyzer.rule.views.idle_time import IdleTime
from traceanalyzer.timeline.calls_and_work import Calls, Work

__all__ = ["Calls", "IdleTime", "Work"]
