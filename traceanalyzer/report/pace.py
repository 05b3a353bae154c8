"""What findings are worth to a job: a rank that waits for another one saves nothing by being quicker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.report.slowest import SAME_SHARE, slowest_of, unprofiled_ns

_WAITING = ("exposed-communication", "waiting")
_TOGETHER = ". Without the profiler this rank probably arrives no earlier than the others"


def at_pace(heads: Sequence[TraceReport], findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, `info` where the job gains nothing by them; the same where waiting was not measured.

    That is so of savings on ranks that are surely quicker than the slowest, and of waiting that only the profiler
    makes: on ranks that take about as long as the slowest without it.
    """
    slowest = slowest_of(heads)
    if slowest is None or slowest.waiting_ns is None:
        return tuple(findings)
    by_rank = {head.rank: head for head in heads}
    return tuple(_of_job(found, by_rank[found.rank], slowest) for found in findings)


def together_at_pace(head: TraceReport, findings: Sequence[Finding]) -> TraceReport:
    """The head without what its fixes give together, where none of them is left above `info`."""
    left = any(
        found.saving is not None and found.severity is not Severity.INFO
        for found in findings
        if found.rank == head.rank
    )
    return head if left or head.together is None else replace(head, together=head.step)


def _of_job(found: Finding, own: TraceReport, slowest: TraceReport) -> Finding:
    if found.severity is Severity.INFO:
        return found
    if found.saving is not None:
        if not _surely_quicker(own, slowest):
            return found
        before = f"Rank {slowest.rank} sets the pace: while it does, this saves nothing of the job's step. After that: "
        return replace(found, severity=Severity.INFO, advice=before + found.advice)
    apart = unprofiled_ns(slowest) - unprofiled_ns(own)
    if (found.rule, found.cause) != _WAITING or apart > SAME_SHARE * unprofiled_ns(slowest):
        return found
    return replace(found, severity=Severity.INFO, message=found.message + _TOGETHER)


def _surely_quicker(own: TraceReport, slowest: TraceReport) -> bool:
    if own.step is None or slowest.step is None:
        return False
    return own.step.high_ns < slowest.step.low_ns
