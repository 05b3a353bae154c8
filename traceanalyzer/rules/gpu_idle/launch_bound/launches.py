"""The way from launch to launch: how long the CPU takes for it, and the idle time that it leaves."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.rule.views import IdleTime, Work

_DISPATCHING = ("dispatching", "launch-latency")  # causes of idle time, in the accounting's table
_BETWEEN_OPS = ("host-code", "python", "engine")


def between_launches(idle: IdleTime, max_pause_ns: int, min_launch_share: float) -> IdleTime:
    """Idle time inside ops and on the way from one to the next.

    Args:
        max_pause_ns: a way that takes longer is more than a way; twice that with stacks, whose recording takes time.
        min_launch_share: part of all that inside ops; where it is less, what is between them is left out.
    """
    inside = idle.cause.one_of(*_DISPATCHING)
    pause_ns = max_pause_ns * (2 if idle.events.user_code.recorded else 1)
    way = idle.cause.one_of(*_BETWEEN_OPS) & (idle.dur_ns <= pause_ns)
    launched = idle.has_next & ~idle.launch.name.matches(r"GraphLaunch")
    both = idle[(inside | way) & launched]
    most = idle[inside].total_ns >= min_launch_share * both.total_ns
    return both if most else idle[inside & launched]


def pace_ns(work: Work) -> int:
    """Median time from one launch to the next; 0 of fewer than two."""
    launch = work.launch
    starts = distinct(launch.start_ns[launch.there])
    return int(np.median(np.diff(starts))) if len(starts) > 1 else 0
