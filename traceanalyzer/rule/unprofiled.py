"""Whether idle time of the trace is there without the profiler, as far as the replay can say."""

from __future__ import annotations

from traceanalyzer.model.finding import NOTHING_TO_DO
from traceanalyzer.replay.saving import MIN_OPEN_SHARE, Forecast


def busy_share(forecast: Forecast | None) -> float | None:
    """Share of the unprofiled step that the busiest stream works, with the quickest CPU that is plausible."""
    if forecast is None:
        return None
    return min(max(0.0, *(step.gpu_ns / max(step.ns, 1.0) for step in forecast.base)), 1.0)


def only_profiled(forecast: Forecast | None) -> bool:
    """Whether the device may be busy all the time without the profiler: idle time in the trace is no fault then."""
    busy = busy_share(forecast)
    return busy is not None and busy > 1 - MIN_OPEN_SHARE


def is_busy(forecast: Forecast | None) -> bool:
    """Whether the device is busy all the time without the profiler, as fast or as slow as the CPU may plausibly be."""
    return forecast is not None and only_profiled(forecast) and not forecast.step.open


def busy_advice(advice: str) -> str:
    """Where the device is busy without the profiler: nothing to do, and what to do if that turns out wrong."""
    return (
        f"{NOTHING_TO_DO}: without the profiler the GPU is probably busy all the time. If you measure that it is not, "
        f"{advice[0].lower()}{advice[1:]}"
    )
