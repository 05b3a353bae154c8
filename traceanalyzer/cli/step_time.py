"""Doubts about the user's own time of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from traceanalyzer.cli.output import tell

if TYPE_CHECKING:
    from traceanalyzer.model.analysis import Analysis

_NOISE = (
    0.1  # of a step: clocks differ from run to run by less, a slip of unit or of trace is far more; a choice
)


def warn_of_step(step_ms: float | None, analyses: Iterable[Analysis]) -> None:
    """Say on standard error, once, where a step as long as was given does not fit a trace."""
    said = (step_doubt(step_ms, one) for one in analyses) if step_ms is not None else iter(())
    doubt = next((text for text in said if text), None)
    if doubt:
        tell(f"warning: --step-ms {step_ms:g}: {doubt}; is it in ms, and of this run?")


def step_doubt(step_ms: float, analysis: Analysis) -> str | None:
    """Why a step of `step_ms` (ms) cannot be of this run; None where it can, or the trace cannot tell."""
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.model.units import format_ns
    from traceanalyzer.replay.saving import Forecast

    try:
        forecast = analysis.index(Forecast)
    except Unavailable:
        return None
    given, recorded, busy = step_ms * 1e6, forecast.step.traced_ns, forecast.base[0].gpu_ns
    if given > recorded * (1 + _NOISE):
        return f"a step takes only {format_ns(recorded)} even with the profiler"
    if given < busy * (1 - _NOISE):
        return f"the GPU alone is busy for {format_ns(round(busy))} of each step"
    return None
