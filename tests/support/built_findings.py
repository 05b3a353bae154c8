"""Hits of built traces, and the findings that they make."""

from collections.abc import Sequence
from typing import Any

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Saving
from traceanalyzer.rule.claims import Claims, resolve_claims
from traceanalyzer.rule.grouping import Scope, build_finding, group_hits
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.views import Work

MS = 1_000_000
STEP = 25 * MS
LENGTH = 4 * STEP
Place = tuple[int, int] | tuple[int, int, int]  # start, duration, and device where it is not 0


def traced(*places: Place) -> Analysis:
    """Four steps of 25 ms, and a kernel at each place; the first event starts at 0."""
    trace = TraceBuilder()
    for number in range(4):
        trace.step(number, number * STEP, STEP)
    for number, place in enumerate(places):
        start, dur, device = (*place, 0)[:3]
        trace.op("aten::mm", start, 2_000)
        trace.launched((start + 100, 1_000), (start + 500, dur), number + 1, device=device, stream=7 + device)
    return Analysis(trace.load())


def scope(length: int = LENGTH, steps: int = 4, rank: int | None = None) -> Scope:
    return Scope(rank, 0, length, steps)


def findings(
    hits: Sequence[Hits], within: Scope | None = None, order: Claims = Claims.EVENT, saving: Saving | None = None
) -> list[Finding]:
    within = within or scope()
    all_pending = resolve_claims(
        list(group_hits("some-rule", order, hits, within if within.asked else None)), (within.start_ns, within.end_ns)
    )
    return [build_finding(pending, within, saving, None) for pending in all_pending]


def kernels(*places: Place, **changes: Any) -> Hits:
    """A hit per place, whose time is lost."""
    return Hits(occurrences=traced(*places).index(Work), **{"message": "m", "advice": "a.", **changes})


def only(*places: Place, **changes: Any) -> Finding:
    (found,) = findings([kernels(*places, **changes)])
    return found
