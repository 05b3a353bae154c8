"""What the step takes without the profiler, and what a fix would save of it: replayed, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from traceanalyzer.model.errors import BadOption

RECORDING = "traceanalyzer_recording"  # key of the trace's envelope
GIVEN = "the step's time was given"  # why the recorder's time is not used where the user gives another
PARTS = "before", "after"  # of the steps that the recorder times: around those that it records
# Times the median from which on a step is slow, by a hiccup or by the profiler; chosen on traces from an H200.
SLOW_TIMES = 1.6
_FEW = 0.25  # of the steps: so few slow ones at most are left out; chosen
_ALIKE = 0.02  # of the step: clocks of one program differ by less from minute to minute; chosen


@dataclass(frozen=True, slots=True)
class GivenStep:
    """How long a step takes without the profiler as it was measured, in ms; `low_ms` and `high_ms` bound it.

    Of it, `waiting_ms` are waits for batches that come late; 0 of the user's times.
    """

    ms: float
    low_ms: float
    high_ms: float
    waiting_ms: float = 0.0

    @classmethod
    def of(cls, value: float | str | Sequence[float] | GivenStep | None) -> GivenStep | None:
        """From one time, several, or text: "18.3", "18.3,18.9,18.4" or a range "18:19". None stays None.

        Raises BadOption: a time that is not positive.
        """
        if value is None or isinstance(value, GivenStep):
            return value
        parts = value.replace(":", ",").split(",") if isinstance(value, str) else value
        try:
            times = [float(one) for one in (parts if isinstance(parts, Sequence) else [parts])]
        except (ValueError, TypeError, OverflowError):
            times = []
        if not times or not all(map(_fits, times)):
            remedy = "Give a time in ms, several with commas between, or a range: 18.3 or 18.3,18.9 or 18:19."
            raise BadOption(f"step time {value!r}: not a positive time", remedy=remedy)
        return cls(median(times), min(times), max(times))

    @property
    def text(self) -> str:
        """`18.3`, or `18.3:18.9` of several."""
        return f"{self.ms:g}" if self.low_ms == self.high_ms else f"{self.low_ms:g}:{self.high_ms:g}"

    @property
    def range_ms(self) -> tuple[float, float]:
        """The least and the most that the step may take: a single time is known as well as clocks are steady."""
        return min(self.low_ms, (1 - _ALIKE) * self.ms), max(self.high_ms, (1 + _ALIKE) * self.ms)


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """The few steps that take far longer than the others.

    Attributes:
        count, of: how many there are, of how many steps.
        more_ns: by how much each takes longer than the median of the others, on average.
        share: of the time of all recorded steps (0 to 1), as the CPU spends it.
        name: the call, op, annotation or kernel that takes most of the longest one's excess; None where nothing does.
        longest_ns: how long that takes; without a name, all kernels of such a step, if they are more or larger ones.
        usual_ns: how long the kernel, or the kernels of a step, usually take; 0 of what runs on the CPU.
        blocked: whether it is a call of the driver that neither launches nor waits for the GPU.
    """

    count: int
    of: int
    more_ns: int
    share: float
    name: str | None = None
    longest_ns: int = 0
    usual_ns: int = 0
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Times of a step without the profiler, in ms.

    Attributes:
        ms: the smaller median, of the blocks before or after: a disturbance only adds time. CUDA's tracer stays
            attached to a process that was profiled once: later steps of CPU-bound programs took 11 to 40 % longer
            (H200, torch 2.11). With a DataLoader's workers, the median before: their queue is full afterwards.
        before_ms, after_ms: one time per block of steps, before and after the recorded ones; `after_ms` may be empty.
        unit: event that ends a step, such as `optimizer step`.
        waiting_ms: of the step, waits for batches of the DataLoader's workers that come late.
        unused: why the report does not take it for the step; None where it does.
    """

    ms: float
    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]
    unit: str
    unused: str | None = None
    waiting_ms: float = 0.0

    def given(self, users: GivenStep | None) -> GivenStep:
        """The user's time where there is one, else the recorder's; either has the recorder's share of waits."""
        step = GivenStep.of(self.ms if users is None else users)
        assert step is not None
        return replace(step, waiting_ms=step.ms * self.waiting_ms / self.ms)

    @property
    def differ(self) -> bool:
        """Whether the times before and after are further apart than the blocks of either spread."""
        if not self.before_ms or not self.after_ms:
            return False
        difference = abs(median(self.before_ms) - median(self.after_ms))
        spread = max(max(times) - min(times) for times in (self.before_ms, self.after_ms))
        return difference > max(spread, _ALIKE * self.ms)

    @property
    def parts_ms(self) -> tuple[float | None, float | None]:
        """The medians before and after the recorded steps."""
        before, after = (median(times) if times else None for times in (self.before_ms, self.after_ms))
        return before, after


def median(values: Iterable[float]) -> float:
    """Median; the standard library's own takes 10 ms to import."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def measured_step(metadata: Mapping[str, Any]) -> MeasuredStep | None:
    """What the recorder wrote; None where it did not, or where what is there cannot be times of steps."""
    recording = metadata.get(RECORDING)
    if not isinstance(recording, Mapping):
        return None
    before, after = (_usual(recording, part) or _times(recording.get(f"{part}_ms")) for part in PARTS)
    unit = recording.get("unit")
    if not before + after:
        return None
    parts = [part for part in (before, after) if part][: 1 if _has_workers(recording) else 2]
    return MeasuredStep(min(map(median, parts)), before, after, unit if isinstance(unit, str) else "step")


def _has_workers(recording: Mapping[str, Any]) -> bool:
    value: Any = recording
    for name in ("measured", "before", "loader", "workers"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return bool(value)


def _usual(recording: Mapping[str, Any], part: str) -> tuple[float, ...]:
    """Means of the thirds of a part's steps, without the few that the replay leaves out as well; empty without any."""
    measured = recording.get("measured")
    of_part = measured.get(part) if isinstance(measured, Mapping) else None
    times = _times(of_part.get("step_ms")) if isinstance(of_part, Mapping) else ()
    usual = [ms for ms in times if ms <= SLOW_TIMES * median(times)]
    if not times or len(usual) < (1 - _FEW) * len(times):
        return ()
    bounds = [len(usual) * third // 3 for third in range(4)]
    return tuple(sum(usual[one:end]) / (end - one) for one, end in pairwise(bounds) if end > one)


def _times(values: Any) -> tuple[float, ...]:
    """Positive times; empty where any is none."""
    if not isinstance(values, list):
        return ()
    usable = [isinstance(ms, int | float) and not isinstance(ms, bool) and _fits(ms) for ms in values]
    return tuple(map(float, values)) if all(usable) else ()


def _fits(ms: int | float) -> bool:
    """Whether it is a positive time of less than a day."""
    return math.isfinite(ms) and 0 < ms < 86_400_000


@dataclass(frozen=True, slots=True)
class Saving:
    """What fixing one finding takes off the unprofiled step; negative where the fix makes it longer.

    Attributes:
        step_ns, low_ns, high_ns: saved per step, and the interval that the true saving lies in.
        share, low_share, high_share: the same as shares of the unprofiled step (at most 1).
        beyond: whether it comes on top of what fixing the more specific findings saves.
    """

    step_ns: int
    low_ns: int
    high_ns: int
    share: float
    low_share: float
    high_share: float
    basis: str
    beyond: bool = False

    @property
    def sure(self) -> bool:
        """Whether the interval begins above nothing, also where it is told in whole percent."""
        return round(100 * self.low_share) > 0

    def unsure(self) -> Saving:
        """The same, but it may be nothing."""
        return replace(self, low_ns=min(self.low_ns, 0), low_share=min(self.low_share, 0.0))


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """One step of the loop, as recorded and without the profiler.

    Attributes:
        unprofiled_ns, low_ns, high_ns: without the profiler, and the interval that the truth lies in.
        bound: what sets the pace of the unprofiled step: gpu, cpu, wait or communication.
        bounds: what sets it with the quickest and with the slowest CPU that is plausible: one where that is the same,
            two where it is open.
        gpu_ns: of the unprofiled step, when the busiest stream is busy: its work alone.
        gap_ns: of the unprofiled step, the gaps between work that is queued on that stream. Nothing runs in them, and
            no quicker CPU takes them away; fewer kernels do, or a CUDA graph.
        left_out_share: of the time of the steps after the first, that of steps unlike those that are replayed (0 to 1).
        timed: whether the user or the recorder measured it: the interval is then what was measured.
        slow: a few steps that take far longer and are not replayed.
        unexplained_ns: what the replay of the recording itself lacks of the recorded step, if much: it stays.
    """

    traced_ns: int
    unprofiled_ns: int
    low_ns: int
    high_ns: int
    bound: str
    basis: str
    bounds: tuple[str, ...] = ()
    gpu_ns: int = 0
    gap_ns: int = 0
    left_out_share: float = 0.0
    timed: bool = False
    slow: SlowSteps | None = None
    unexplained_ns: int = 0

    @property
    def open(self) -> bool:
        """Whether the trace alone cannot tell what sets the pace."""
        return len(self.bounds) > 1

    @property
    def device_ns(self) -> int:
        """What the step takes on the device, however quick the CPU is: its work and the gaps between."""
        return self.gpu_ns + self.gap_ns

    @property
    def idle_shares(self) -> tuple[float, float]:
        """Shares of the step (0 to 1) in which the device waits for the CPU, at the interval's ends."""
        low, high = (max(0.0, 1 - self.device_ns / max(ns, 1)) for ns in (self.low_ns, self.high_ns))
        return low, high

    @property
    def measured(self) -> bool:
        """Whether the time is measured: an estimate's interval is never empty."""
        return self.timed or self.low_ns == self.high_ns
