"""What a trace shows that is no fault: the facts that a reader of the timeline would look for."""

from __future__ import annotations

from collections.abc import Callable

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.report.device_facts import compiled_regions, hotspots, rates, what_bounds
from traceanalyzer.report.dispatch_facts import (
    adaptive_launches,
    addmm_launches,
    dispatch_chains,
    matmul_resolved,
    profilers_own,
)
from traceanalyzer.report.fact import Fact, Facts
from traceanalyzer.report.serving_facts import serving_steps

BUILDERS: tuple[Callable[[Analysis], Facts], ...] = (
    what_bounds,
    hotspots,
    rates,
    dispatch_chains,
    matmul_resolved,
    addmm_launches,
    adaptive_launches,
    compiled_regions,
    serving_steps,
    profilers_own,
)


def facts_of(analysis: Analysis) -> tuple[Fact, ...]:
    """Every fact, in the order of `BUILDERS`; what the trace does not carry gives none."""
    return tuple(fact for builder in BUILDERS for fact in _facts(builder, analysis))


def _facts(builder: Callable[[Analysis], Facts], analysis: Analysis) -> tuple[Fact, ...]:
    try:
        return tuple(builder(analysis))
    except Unavailable:
        return ()
