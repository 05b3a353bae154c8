"""The step as the recorder timed it without the profiler: what `traceanalyzer record` leaves in a trace's metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

RECORDING = "traceanalyzer_recording"
"""The key of the trace's envelope."""

GIVEN = "the step's time was given"
"""Why the recorder's time is not used where the user gives another."""

_ALIKE = 0.02  # of the step: clocks of one program differ by less from minute to minute; chosen


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Times of a step without the profiler, in ms.

    Attributes:
        ms: the median of the blocks before; of those after where there are none. CUDA's tracer stays attached to a
            process that was profiled once: later steps of CPU-bound programs took 11 to 40 % longer (H200, torch 2.11).
        before_ms, after_ms: one time per block of steps, before and after the recorded ones; `after_ms` may be empty.
        unit: event that ends a step, such as `optimizer step`.
        unused: why the report does not take it for the step; None where it does.
    """

    ms: float
    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]
    unit: str
    unused: str | None = None

    @property
    def differ(self) -> bool:
        """Whether the times before and after are further apart than the blocks of either spread."""
        if not self.before_ms or not self.after_ms:
            return False
        apart = abs(median(self.before_ms) - median(self.after_ms))
        spread = max(max(times) - min(times) for times in (self.before_ms, self.after_ms))
        return apart > max(spread, _ALIKE * self.ms)

    @property
    def parts_ms(self) -> tuple[float | None, float | None]:
        """The medians before and after the recorded steps."""
        before, after = (median(times) if times else None for times in (self.before_ms, self.after_ms))
        return before, after


def measured_step(metadata: Mapping[str, Any]) -> MeasuredStep | None:
    """What the recorder wrote; None where it did not, or where what is there cannot be times of steps."""
    told = metadata.get(RECORDING)
    if not isinstance(told, Mapping):
        return None
    before, after = _times(told.get("before_ms")), _times(told.get("after_ms"))
    unit = told.get("unit")
    if not before + after:
        return None
    return MeasuredStep(median(before or after), before, after, unit if isinstance(unit, str) else "step")


def _times(told: Any) -> tuple[float, ...]:
    """Positive times; empty where any is none."""
    if not isinstance(told, list):
        return ()
    numbers = [
        float(ms) for ms in told if isinstance(ms, int | float) and not isinstance(ms, bool) and _fits(ms)
    ]
    return tuple(numbers) if len(numbers) == len(told) else ()


def _fits(ms: int | float) -> bool:
    """Whether it is a positive time of less than a day."""
    return math.isfinite(ms) and 0 < ms < 86_400_000
