"""Report and analyses -> overlays, one per trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.overlay import NO_DRIFT, Drift, Overlay
from traceanalyzer.model.report import Report
from traceanalyzer.report.overlay.counters import busy_counters, memory_counters, queue_counters
from traceanalyzer.report.overlay.evidence import evidence_tracks
from traceanalyzer.report.overlay.findings import Numbered, finding_tracks, numbered
from traceanalyzer.report.overlay.idle import idle_tracks
from traceanalyzer.report.overlay.steps import step_tracks

T = TypeVar("T")


def overlays_of(report: Report, analysed: Sequence[tuple[int | None, Analysis]]) -> tuple[Overlay, ...]:
    """One overlay per trace, in the report's order. What a trace cannot show, such as memory, is not drawn.

    Args:
        analysed: what the report was made of.
    """
    findings, clocks = numbered(report), _clocks(report)
    return tuple(_overlay(rank, analysis, findings, *clocks.get(rank, _RIGHT)) for rank, analysis in analysed)


_RIGHT = (0, NO_DRIFT)


def _clocks(report: Report) -> dict[int | None, tuple[int, Drift]]:
    """Rank -> what its clock reads more than the reference's in the middle of its window, and what it gains.

    Of clocks that are off by more than their uncertainty.
    """
    known = {one.rank: one for one in report.job.ranks} if report.job else {}
    found: dict[int | None, tuple[int, Drift]] = {}
    for trace in report.traces:
        one = known.get(-1 if trace.rank is None else trace.rank)
        if one is not None and (clock := one.clock) is not None:
            middle_ns = (trace.window.start_ns + trace.window.end_ns) // 2
            ahead = clock.ahead_within_ns(*[one.base_ns + middle_ns] * 2)
            if abs(ahead) > clock.uncertainty_ns or clock.drift_ppm:
                found[trace.rank] = ahead, Drift(clock.drift_ppm, middle_ns)
    return found


def _overlay(
    rank: int | None, analysis: Analysis, findings: Sequence[Numbered], ahead_ns: int, drift: Drift
) -> Overlay:
    own = [one for one in findings if one.finding.rank == rank]
    meta = analysis.trace.meta
    drawn = Overlay(
        rank=rank,
        source=meta.source,
        base_time_ns=meta.base_time_ns - ahead_ns,
        slices=(
            *finding_tracks(own),
            *_made(lambda: idle_tracks(analysis)),
            *_made(lambda: step_tracks(analysis)),
            *_made(lambda: evidence_tracks(analysis, own)),
        ),
        counters=(
            *_made(lambda: queue_counters(analysis)),
            *_made(lambda: busy_counters(analysis)),
            *_made(lambda: memory_counters(analysis)),
        ),
    )
    return drawn.evened(drift) if drift.ppm else drawn


def _made(make: Callable[[], Iterator[T]]) -> tuple[T, ...]:
    try:
        return tuple(make())
    except Unavailable:
        return ()
