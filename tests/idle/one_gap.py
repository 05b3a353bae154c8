"""A trace with one long gap, and what its pieces are charged to."""

import numpy as np

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace

US = 1_000
LATE = 1_000 * US  # where the second kernel of `gap` starts
FIRST = 100 * US  # where its first one ends
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def gap(*, launched: int = LATE - 8 * US, dur: int = 5 * US, name: str = "cudaLaunchKernel") -> TraceBuilder:
    """Two kernels with 0.9 ms of idle time between them; the second is launched at `launched` in aten::add."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, FIRST - 28 * US), 1)
    trace.op("aten::add", launched - 2 * US, dur + 4 * US)
    trace.launch(name, launched, dur, 2)
    trace.kernel(LATE, 50 * US, 2)
    return trace


def views(trace: TraceBuilder) -> None:
    """Ops in the gap, with a stretch of 50 us between any two."""
    for i in range(5):
        trace.op("aten::view", FIRST + 50 * US + i * 170 * US, 120 * US)


def judged(trace: TraceBuilder, work: int = 1) -> tuple[str, str | None, str | None]:
    """(cause, name of the deciding row, name of the op) of the longest piece of the gap that this work ends."""
    loaded = trace.load()
    idle = Analysis(loaded).index(Idle)
    pieces = np.flatnonzero(idle.work == work)
    at = int(pieces[np.argmax(idle.dur_ns[pieces])])
    return CAUSES[idle.cause[at]], name_of(loaded, idle.row[at]), name_of(loaded, idle.op[at])


def pieces(trace: TraceBuilder | Trace, work: int = 1) -> dict[str, int]:
    """Cause -> ns of the gap that this work ends."""
    idle = Analysis(trace if isinstance(trace, Trace) else trace.load()).index(Idle)
    found: dict[str, int] = {}
    for at in np.flatnonzero(idle.work == work).tolist():
        cause = CAUSES[idle.cause[at]]
        found[cause] = found.get(cause, 0) + int(idle.dur_ns[at])
    return found


def name_of(trace: Trace, row: int) -> str | None:
    """Name of the row of the CPU lane; none for -1."""
    return str(trace.cpu["name"].iloc[row]) if row >= 0 else None
