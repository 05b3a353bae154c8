"""What the CPU does in the steps of a trace without GPU work."""

from collections.abc import Mapping

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import ints, ints_at, matching
from traceanalyzer.timeline.selection import Events

OPS, FILES, WAITS, OTHER = "ops", "files", "waits", "outside"
# Calls of the interpreter as torch.profiler names them.
_CALLS = {
    FILES: regex(
        r"^<built-in function (?:open|stat|scandir|listdir)\b|PyTorchFile(?:Reader|Writer)"
        r"|^<built-in method (?:read|readinto|readline|readlines|write|flush) of _io\.(?:File|Buffered|Text)"
    ),
    WAITS: regex(
        r"^<built-in function (?:sleep|read|select|waitpid)\b"
        r"|^<built-in method (?:acquire|poll|select|recv|recv_into|wait)\b"
    ),
}


def cpu_use(analysis: Analysis) -> tuple[Mapping[str, float], int]:
    """(shares of the steps' time in ops, files, waits for other threads or processes, and outside; threads with ops).

    What happens at once counts as ops, then as files. Files and waits need recorded Python calls. With GPU work: empty.
    """
    events = analysis.index(Events)
    nesting, steps, lanes = events.nesting, events.steps, events.trace.lanes
    span = intervals.union(steps.cpu_start_ns, steps.cpu_end_ns)
    whole_ns = intervals.length(span)
    tops = np.flatnonzero((nesting.op >= 0) & ~nesting.annotation)
    if events.work is not None or not whole_ns or not len(tops):
        return {}, 0
    parts = {OPS: intervals.union(nesting.start_ns[tops], nesting.end_ns[tops])}
    threads = distinct(ints_at(lanes.cpu, "tid", tops))
    if events.trace.meta.rows.get("python"):
        start, tid = ints(lanes.python, "start_ns"), ints(lanes.python, "tid")
        end = start + ints(lanes.python, "dur_ns")
        for part, pattern in _CALLS.items():
            calls = matching(lanes.python, "name", pattern.search) & np.isin(tid, threads)
            parts[part] = intervals.union(start[calls], end[calls])
    left, shares = span, {}
    for part, members in parts.items():
        rest = intervals.difference(left, members)
        shares[part] = (intervals.length(left) - intervals.length(rest)) / whole_ns
        left = rest
    return {**shares, OTHER: intervals.length(left) / whole_ns}, len(threads)
