"""Doubts about the user's own time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceanalyzer.cli.output import tell

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import Ranks
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.model.report import Report


_WHY_APART = (
    "the profiler's tracer may still be attached, the program may not have settled, or something else ran; "
    "the time before is taken"
)


def warn_of_step(step_ms: float | None, ranks: Ranks) -> None:
    """Say on standard error, once, where a step as long as was given does not fit a trace."""
    said = ranks.each(_doubt, dict.fromkeys(ranks.all), step_ms) if step_ms is not None else {}
    doubt = next((text for text in said.values() if text), None)
    if doubt:
        tell(f"warning: --step-ms {step_ms:g}: {doubt}; is it in ms, and of this run?")


def _doubt(analysis: Analysis, _: None, step_ms: float) -> str | None:
    return step_doubt(step_ms, analysis)


def step_doubt(step_ms: float, analysis: Analysis) -> str | None:
    """Why a step of `step_ms` (ms) cannot be of this run; None where it can, or the trace cannot tell."""
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.replay.saving import Forecast

    try:
        return analysis.index(Forecast).doubt(step_ms)
    except Unavailable:
        return None


def warn_of_measured(report: Report) -> None:
    """Say on standard error where the recorder's times differ, or do not fit the trace that they are in."""
    from traceanalyzer.model.step_times import GIVEN

    for trace in report.traces:
        measured = trace.measured
        if measured is None or measured.unused == GIVEN:
            continue
        if measured.unused:
            why = f"its measured step of {measured.ms:.3g} ms is not used: {measured.unused}"
            tell(f"warning: {trace.meta.source}: {why}", trace.meta.source)
        elif measured.differ:
            before, after = measured.parts_ms
            why = f"a step took {before:.3g} ms before the recorded steps and {after:.3g} ms after them"
            tell(f"warning: {trace.meta.source}: {why}: {_WHY_APART}", trace.meta.source)
