"""The rank that sets the pace of a job."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.model.report import TraceReport

SAME_SHARE = 0.05
"""Of the step: half of the replays are nearer than that to what was measured, so that ranks so near are alike."""

_COMMUNICATION = ("communication", "compute_over_communication")  # classes of the accounting begin so


def slowest_of(traces: Sequence[TraceReport]) -> TraceReport | None:
    """The rank with the longest step without the profiler, of ranks that all communicate; the first of equal ones.

    A rank is replayed alone, as if the others were there in time: all of them take as long as the slowest. Where
    waiting was measured, of ranks that take about as long the one that waits least: the others wait for it. None where
    there are fewer than two traces, the step of one is unknown, or all take as long (a time that the user gave).
    """
    if len(traces) < 2 or not all(trace.step is not None and _communicates(trace) for trace in traces):
        return None
    if len({unprofiled_ns(trace) for trace in traces}) == 1:
        return None
    longest = max(traces, key=unprofiled_ns)
    if any(trace.waiting_ns is None for trace in traces):
        return longest
    least = (1 - SAME_SHARE) * unprofiled_ns(longest)
    return min((one for one in traces if unprofiled_ns(one) >= least), key=lambda one: one.waiting_ns or 0)


def rank_of(trace: TraceReport, slowest: TraceReport | None) -> str:
    """What stands before its verdict: `rank 1, the slowest`; `rank 0, replayed alone`, whose time is not the job's."""
    role = "" if slowest is None else ", the slowest" if trace is slowest else ", replayed alone"
    return f"rank {trace.rank}{role}"


def unprofiled_ns(trace: TraceReport) -> int:
    """Its step without the profiler; 0 where that is unknown."""
    return trace.step.unprofiled_ns if trace.step is not None else 0


def _communicates(trace: TraceReport) -> bool:
    return any(
        ns > 0 and name.startswith(_COMMUNICATION)
        for time in trace.accounting
        for name, ns in time.parts_ns.items()
    )
