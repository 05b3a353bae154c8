"""The GPU lowers its clock, and kernels take longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, distinct, grouped
from traceanalyzer.replay.edits import Resize
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.clock_samples import ClockSamples, Values

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Limits:
    low_share: float = limit(
        0.93, "of the highest clock seen; NVIDIA's GPU Boost moves it by 5 % in normal work"
    )
    hot_celsius: float = limit(83.0, "NVIDIA data centre boards slow down from 83 to 90 degrees")
    capped_share: float = limit(0.95, "of the highest power seen: at the cap the power stands still")
    min_runs: int = limit(3, "of a kernel at full clock, to say what it takes there")


_CAUSES = {
    "thermal": (
        " at {temperature_c} C",
        "See to the cooling: airflow, fan, dust, room; lower the power cap meanwhile.",
    ),
    "power": (
        " at {power_w} W, the highest seen",
        "Raise the power cap (nvidia-smi -pl) where allowed.",
    ),
    "clocks": (
        " at {power_w} W",
        "See `nvidia-smi -q -d PERFORMANCE` for the reason; lock the clocks (nvidia-smi -lgc) to compare runs.",
    ),
}


@rule(since="0.3", claims=Claims.WORK, min_share=0.01, limits=Limits)
def throttling(work: Work, samples: ClockSamples, limits: Limits) -> Iterator[Hits]:
    """The GPU lowers its clock, and kernels take longer.

    What it looks for: samples of the SM clock below the highest of the window, and kernels that ran then and also
    at full clock: what they take longer is lost. Temperature and power at those instants say why.
    Why it costs: arithmetic takes longer by as much as the clock is lower.
    Bad: a board at its temperature limit. Good: enough cooling, locked clocks for comparisons.
    How sure: clock and durations are measured; only kernels of one name, grid and block are compared.
    When it is wrong: a clock that rises at the start of a recording lowers nothing: kernels before the first full
    clock are left out. A window that is throttled from end to end shows no higher clock to compare with.
    Source: NVIDIA's GPU Boost; counters of torch.profiler 2.14.
    """
    kernels = work.of_kind("compute")
    for device in distinct(kernels.device).tolist():
        own = kernels[kernels.device == device]
        clock = samples.at("clock", device, own.start_ns)
        full = float(samples.value["clock"][samples.device["clock"] == device].max(initial=0.0))
        low = (clock < limits.low_share * full) & _after_ramp(own, clock, limits.low_share * full)
        usual = _at_full_clock(own, clock >= limits.low_share * full, limits)
        slow = low & np.isfinite(usual) & (own.dur_ns > usual)
        if slow.any():
            yield _hits(own[slow], usual[slow], clock[slow], full, samples, limits)


def _hits(
    slow: Work, usual: Values, clock: Values, full: float, samples: ClockSamples, limits: Limits
) -> Hits:
    device = int(slow.device[0])
    power, heat = (samples.at(kind, device, slow.start_ns) for kind in ("power", "temperature"))
    cause = "clocks"
    if _middle(heat) >= limits.hot_celsius:
        cause = "thermal"
    elif _middle(power) >= limits.capped_share * samples.value["power"].max(initial=0.0):
        cause = "power"
    where, advice = _CAUSES[cause]
    known = cause == "thermal" or np.isfinite(power).any()
    message = "the SM clock falls to {low_mhz} of {full_mhz} MHz" + (where if known else "")
    return Hits(
        at=slow,
        cause=cause,
        lost=Lost.excess(slow, (slow.dur_ns - usual).astype(np.int64)),
        fix=Resize(slow.entries, usual),
        message=message + ": kernels take {slowdown} times as long, {total} in all",
        advice=advice,
        evidence={
            "low_mhz": round(_middle(clock)),
            "full_mhz": round(full),
            "power_w": round(_middle(power)) if np.isfinite(power).any() else None,
            "temperature_c": round(_middle(heat)) if np.isfinite(heat).any() else None,
            "slowdown": float(slow.dur_ns.sum() / usual.sum()),
        },
    )


def _middle(values: Values) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _after_ramp(kernels: Work, clock: Values, full: float) -> Mask:
    """Which ran after the clock had been full for the first time."""
    first = kernels.start_ns[clock >= full].min(initial=np.iinfo(np.int64).max)
    return np.asarray(kernels.start_ns > first)


def _at_full_clock(kernels: Work, full: Mask, limits: Limits) -> Values:
    """Median duration at full clock of each kernel's name, grid and block; NaN where too few ran then."""
    number, first = grouped([kernels.text(column).code for column in ("name", "grid", "block")])
    order: Rows = np.lexsort((kernels.dur_ns, ~full, number))
    count = np.bincount(number, weights=full, minlength=len(first)).astype(np.int64)
    begins = np.searchsorted(number[order], np.arange(len(first)))
    median = kernels.dur_ns[order][np.minimum(begins + count // 2, len(order) - 1)].astype(np.float64)
    return np.where(count >= limits.min_runs, median, np.nan)[number]
