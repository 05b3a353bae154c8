"""The GPU lowers its clock, and kernels take longer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, grouped, median, medians_of_kinds
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.trace import NULL_INT, Trace, floats, ints, matching
from traceanalyzer.rule import Claims, Hits, Unavailable, Work, reduce_to, rule

_CAUSES = {
    "thermal": (
        " at {temperature_c} C",
        "Check the cooling (airflow, fan, dust, room); lower the power cap until it is fixed.",
    ),
    "power": (" at {power_w} W, the highest seen", "Raise the power cap (nvidia-smi -pl) where allowed."),
    "clocks": (
        " at {power_w} W",
        "See `nvidia-smi -q -d PERFORMANCE` for the reason; lock the clocks (nvidia-smi -lgc) to compare runs.",
    ),
}


class Limits:
    low_share: float = 0.93
    """a clock is regarded as lowered if it is below this share of the highest clock; in normal work GPU Boost
    changes the clock by 5 %"""
    hot_celsius: float = 83.0
    """a lowered clock has a thermal cause if the temperature is at least this high; NVIDIA's data centre GPUs
    slow down from 83 to 90 degrees"""
    capped_share: float = 0.95
    """a lowered clock is caused by the power cap if power is at least this share of the highest recorded
    power; at the cap, power stays constant"""
    min_runs: int = 3
    """a kernel is compared only if it runs at least this often at full clock, so that its time at full clock
    is known"""


@rule(since="0.1", claims=Claims.WORK, min_share=0.01, limits=Limits, causes=tuple(_CAUSES))
def throttling(work: Work, samples: ClockSamples, limits: Limits) -> Iterator[Hits]:
    """The GPU lowers its clock, and kernels take longer.

    What it looks for: an SM clock below the highest clock in the recording (the full clock). The rule
    compares kernels that ran at both clocks. Temperature and power show the reason.
    Why it costs: arithmetic slows down in proportion to the clock.
    Bad: a GPU at its temperature limit. Good: enough cooling; locked clocks for comparisons.
    How sure: clock and durations are measured. Only kernels with the same name, grid size and block size are compared.
    When it is wrong: the rule finds nothing if the clock is low during the whole recording. There is no full
    clock to compare with.
    Source: NVIDIA's GPU Boost. torch.profiler records the clock from torch 2.14 on.
    """
    for device, kernels in work.of_kind("compute").by_device():
        clock = samples.at("clock", device, kernels.start_ns)
        highest = samples.highest("clock", device)
        full, low = clock >= limits.low_share * highest, clock < limits.low_share * highest
        usual = usual_at_full_clock(kernels, full, limits.min_runs)
        slow = low & after_ramp(kernels, full) & np.isfinite(usual) & (kernels.dur_ns > usual)
        if not slow.any():
            continue
        pieces, usual = kernels[slow], usual[slow]
        power, heat = (_median_at(samples, kind, pieces) for kind in ("power", "temperature"))
        capped = power >= limits.capped_share * samples.highest("power", device)
        cause = "thermal" if heat >= limits.hot_celsius else "power" if capped else "clocks"
        where, advice = _CAUSES[cause]
        sampled = cause == "thermal" or np.isfinite(power)
        yield Hits(
            **reduce_to(pieces, usual),
            cause=cause,
            message="the SM clock falls to {low_mhz} of {full_mhz} MHz"
            + (where if sampled else "")
            + ": kernels take {slowdown} times as long, {total_a_step} more",
            advice=advice,
            evidence={
                "low_mhz": round(_median_at(samples, "clock", pieces)),
                "full_mhz": round(highest),
                "power_w": round(power) if np.isfinite(power) else None,
                "temperature_c": round(heat) if np.isfinite(heat) else None,
                "slowdown": float(pieces.dur_ns.sum() / usual.sum()),
            },
        )


def _median_at(samples: ClockSamples, kind: str, kernels: Work) -> float:
    """NaN without samples of this kind, all of which are finite."""
    return median(samples.at(kind, int(kernels.device[0]), kernels.start_ns))


def after_ramp(kernels: Work, full: Mask) -> Mask:
    """Which ran after the clock had been full for the first time: before that it rises, and nothing lowers it."""
    first = kernels.start_ns[full].min(initial=np.iinfo(np.int64).max)
    return np.asarray(kernels.start_ns > first)


def usual_at_full_clock(kernels: Work, full: Mask, min_runs: int) -> Floats:
    """Median duration at full clock of each kernel's name, grid and block; NaN where fewer ran then."""
    number, first = grouped([kernels.text(column).code for column in ("name", "grid", "block")])
    return medians_of_kinds(number, kernels.dur_ns, full, len(first), min_runs)[number]


_NAMES = {
    "clock": re.compile(r"^(SM|GFX|graphics|shader) clock", re.IGNORECASE),
    "power": re.compile(r"^power", re.IGNORECASE),
    "temperature": re.compile(r"^(GPU )?temperature", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class ClockSamples:
    """What was sampled.

    Attributes:
        of: "clock", "power" or "temperature" -> (device, time in ns, value in MHz, W or degrees Celsius) of each
            sample, int64 and float64, by device and time; device 0 where none is named.
    """

    of: dict[str, tuple[Rows, Rows, Floats]]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        lane = trace.lanes.counters if trace.meta.rows.get("counters") else None
        of = {} if lane is None else {kind: _sampled(lane, pattern) for kind, pattern in _NAMES.items()}
        if not of or not len(of["clock"][0]):
            raise Unavailable("no clock counters: profilers from torch 2.14 on record them")
        return cls(of)

    def highest(self, kind: str, device: int) -> float:
        """The highest value of a device; 0 without samples."""
        devices, _, value = self.of[kind]
        return float(value[devices == device].max(initial=0.0))

    def at(self, kind: str, device: int, instants: Rows) -> Floats:
        """The last sample before each instant, or the first; NaN where there is none. Shape of `instants`."""
        devices, at_ns, value = self.of[kind]
        at_ns, value = at_ns[devices == device], value[devices == device]
        if len(at_ns) == 0:
            return np.full(len(instants), np.nan)
        return np.asarray(value[np.maximum(np.searchsorted(at_ns, instants, side="right") - 1, 0)])


def _sampled(samples: Columns, name: re.Pattern[str]) -> tuple[Rows, Rows, Floats]:
    """(device, time, value) of the counters of such a name, by device and time."""
    device, at_ns, value = ints(samples, "device"), ints(samples, "start_ns"), floats(samples, "value")
    rows = np.flatnonzero(matching(samples, "name", name.search) & np.isfinite(value))
    device = np.where(device == NULL_INT, 0, device)
    rows = rows[np.lexsort((at_ns[rows], device[rows]))]
    return device[rows], at_ns[rows], value[rows]
