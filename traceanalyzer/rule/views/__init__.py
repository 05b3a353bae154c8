"""What rules see: calls, pieces of work and idle time, as selections that know their op, line, step and device."""

from traceanalyzer.rule.views.calls import Calls
from traceanalyzer.rule.views.idle_time import IdleTime
from traceanalyzer.rule.views.work import Work

__all__ = ["Calls", "IdleTime", "Work"]
