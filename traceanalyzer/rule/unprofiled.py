"""Whether idle time of the trace is there without the profiler, as far as the replay can say."""

from __future__ import annotations

from traceanalyzer.replay.saving import Forecast

# The replay's step is right within 8 % (replay/calibration.py): less idle time than this may be none.
MIN_OPEN_SHARE = 0.1


def busy_share(forecast: Forecast | None) -> float | None:
    """Share of the unprofiled step that the busiest stream works, with the quickest CPU that is plausible."""
    if forecast is None:
        return None
    return max(step.gpu_ns / max(step.ns, 1.0) for step in forecast.base)


def only_profiled(forecast: Forecast | None) -> bool:
    """Whether the device may be busy all the time without the profiler: idle time in the trace is no fault then."""
    busy = busy_share(forecast)
    return busy is not None and busy > 1 - MIN_OPEN_SHARE
