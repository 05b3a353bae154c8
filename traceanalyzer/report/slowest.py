"""The rank that sets the pace of a job."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.model.report import TraceReport

_COMMUNICATION = ("communication", "compute_over_communication")  # classes of the accounting


def slowest_of(traces: Sequence[TraceReport]) -> TraceReport | None:
    """The rank with the longest step without the profiler, of ranks that all communicate; the first of equal ones.

    A rank is replayed alone, as if the others were there in time: all of them take as long as the slowest. None where
    there are fewer than two traces, the step of one is unknown, or all take as long (a time that the user gave).
    """
    if len(traces) < 2 or not all(trace.step is not None and _communicates(trace) for trace in traces):
        return None
    if len({unprofiled_ns(trace) for trace in traces}) == 1:
        return None
    return max(traces, key=unprofiled_ns)


def rank_of(trace: TraceReport, slowest: TraceReport | None) -> str:
    """What stands before its verdict: `rank 1, the slowest`; `rank 0, replayed alone`, whose time is not the job's."""
    role = "" if slowest is None else ", the slowest" if trace is slowest else ", replayed alone"
    return f"rank {trace.rank}{role}"


def unprofiled_ns(trace: TraceReport) -> int:
    """Its step without the profiler; 0 where that is unknown."""
    return trace.step.unprofiled_ns if trace.step is not None else 0


def _communicates(trace: TraceReport) -> bool:
    return any(time.parts_ns.get(name) for time in trace.accounting for name in _COMMUNICATION)
