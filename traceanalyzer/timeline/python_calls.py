"""Which python function ran during a stretch of time, for traces recorded with stacks."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.trace import Trace, ints, text

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of bound built-in methods; says nothing
_MOST = 0.5  # share of the stretch that a function must cover to be named; by definition most of it


def innermost_function(trace: Trace, start_ns: int, end_ns: int) -> str | None:
    """Name of the shortest python_function row that covers most of [start_ns, end_ns); None without stacks.

    Shortest, not last: the frames around it cover the stretch too, and say less.
    """
    if not trace.meta.rows.get("python"):
        return None
    starts, durations = ints(trace.python, "start_ns"), ints(trace.python, "dur_ns")
    overlap = np.minimum(starts + durations, end_ns) - np.maximum(starts, start_ns)
    covering = np.flatnonzero(overlap >= _MOST * (end_ns - start_ns))
    if len(covering) == 0:
        return None
    name = text(trace.python, "name", int(covering[np.argmin(durations[covering])]))
    return _ADDRESS.sub("", name) if name else None
