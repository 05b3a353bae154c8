"""What the recorder measured before and after the recorded steps, while no profiler ran."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from traceanalyzer.model.arrays import Floats, median
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import PARTS, RECORDING
from traceanalyzer.model.trace import Trace

_MS = 1e6
_FEWEST = 6  # steps among which there can be two kinds; chosen
FETCH_NS = 150_000.0
"""Time to fetch a batch that is ready, at most; host of an H200, torch 2.11."""
_READY_MS = 0.5  # a longer fetch waits for its batch; chosen


@dataclass(frozen=True, slots=True)
class Thread:
    """A Python thread beside the one that runs the steps: its name, and the share of the time that it computes."""

    name: str
    cpu_share: float


@dataclass(frozen=True, slots=True)
class TwoKinds:
    """Short steps, and long ones every `period` steps; beyond the short ones' median these take `lost_share` of all."""

    period: int
    count: int
    long_ns: int
    short_ns: int
    lost_share: float


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Steps in a row without a profiler, and what was measured meanwhile.

    Attributes:
        step_ms: time of each step; of each group of `every` steps their mean.
        collecting_share: of the time, spent in garbage collections (0 to 1).
        collections: garbage collections, of which `full` of the oldest generation.
        waiting_share: of the time, spent in waits for batches of workers after which the GPU was idle (0 to 1).
        drained_share: of the steps at whose end the GPU had nothing left to do (0 to 1); None where that is unknown.
        cpu_share: of the time, in which the thread of the steps used the CPU (0 to 1); None where that is unknown.
        lock_ms: time that this thread needs to get the interpreter's lock back; None where that was not measured.
        gpu_busy_share: of the time, in which the GPU ran kernels of any process (0 to 1); None without NVML.
        others: pids of processes of other programs that use the GPU, each with its share of the SMs' time or None.
    """

    step_ms: Floats
    collecting_share: float = 0.0
    collections: int = 0
    full: int = 0
    waiting_share: float = 0.0
    late_batches: int = 0
    workers: int = 0
    drained_share: float | None = None
    cpu_share: float | None = None
    lock_ms: float | None = None
    threads: tuple[Thread, ...] = ()
    gpu_busy_share: float | None = None
    others: Mapping[int, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, part: Any) -> Self:
        """From what the recorder wrote; what is missing or no number counts as not measured."""
        wall_s = _number(part, "wall_s") or 0.0
        workers = int(_number(part, "loader", "workers") or 0)
        waits = _late_waits(_at(part, "loader")) if workers else []
        busy = _number(part, "gpu", "busy_percent")
        return cls(
            step_ms=np.array([ms for ms in _numbers(_at(part, "step_ms")) if ms > 0], np.float64),
            collecting_share=_share(_number(part, "collections", "ms"), wall_s),
            collections=int(_number(part, "collections", "count") or 0),
            full=int(_number(part, "collections", "full") or 0),
            waiting_share=_share(sum(waits), wall_s),
            late_batches=len(waits),
            workers=workers,
            drained_share=_number(part, "drained_share"),
            cpu_share=_number(part, "thread_cpu"),
            lock_ms=_number(part, "lock_ms"),
            threads=tuple(
                Thread(str(entry.get("name")), _number(entry, "cpu") or 0.0)
                for entry in _mappings(_at(part, "threads"))
            ),
            gpu_busy_share=None if busy is None else busy / 100,
            others={
                int(entry["pid"]): None if (use := _number(entry, "sm_percent")) is None else use / 100
                for entry in _mappings(_at(part, "gpu", "other_processes"))
                if isinstance(entry.get("pid"), int)
            },
        )

    def two_kinds(self, long_times: float, max_spread_share: float) -> TwoKinds | None:
        """The kinds, medians `long_times` apart, spread by `max_spread_share` at most; None where no rule is seen."""
        times = self.step_ms
        if len(times) < _FEWEST:
            return None
        is_long = times > (times.min() + times.max()) / 2
        short_ms, long_ms = median(times[~is_long]), median(times[is_long])
        if long_ms < long_times * short_ms or is_long.sum() < 2:
            return None
        if max(_spread(times[~is_long]), _spread(times[is_long])) > max_spread_share:
            return None
        distances = np.diff(np.flatnonzero(is_long))
        period = int(median(distances))
        if np.abs(distances - period).max() > 1 or period < 2:
            return None
        lost_share = float((times[is_long] - short_ms).sum() / times.sum())
        return TwoKinds(period, int(is_long.sum()), round(long_ms * _MS), round(short_ms * _MS), lost_share)


def _spread(times: Floats) -> float:
    """10th to 90th percentile, as a share of the median."""
    low, high = np.quantile(times, (0.1, 0.9))
    return float((high - low) / median(times))


@dataclass(frozen=True, slots=True)
class Unprofiled:
    """What the recorder measured while no profiler ran.

    Attributes:
        parts: steps before the recorded ones and after them; at least one of both.
    """

    parts: tuple[TimedSteps, ...]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        parts = (TimedSteps.of(_at(trace.meta.extra, RECORDING, "measured", name)) for name in PARTS)
        if known := tuple(part for part in parts if len(part.step_ms)):
            return cls(known)
        remedy = "record with `traceanalyzer record` or its profile()"
        raise Unavailable("no measurements without the profiler", remedy)

    def least(self, name: str) -> float:
        """The smallest value of an attribute of the parts: what holds before and after."""
        return min(float(getattr(part, name) or 0.0) for part in self.parts)

    @property
    def waiting_share(self) -> float:
        """Share of the first part's time that steps wait for late batches (0 to 1); 0 where not all parts have such."""
        # After the recorded steps, the first batches are ready: workers went on while the trace was written.
        return self.parts[0].waiting_share if self.least("waiting_share") else 0.0

    @property
    def step_ns(self) -> float:
        return float(np.concatenate([part.step_ms for part in self.parts]).mean()) * _MS


def _late_waits(loader: Mapping[str, Any]) -> list[float]:
    """Ms of each wait for a batch that was not ready and left the GPU idle."""
    waits = _numbers(loader.get("wait_ms"))
    idle = loader.get("idle_after")
    idle = idle if isinstance(idle, list) and len(idle) == len(waits) else [None] * len(waits)
    return [ms for ms, is_idle in zip(waits, idle, strict=True) if ms > _READY_MS and is_idle is not False]


def _share(part_ms: float | None, wall_s: float) -> float:
    return min(max((part_ms or 0.0) / (wall_s * 1e3), 0.0), 1.0) if wall_s > 0 else 0.0


def _at(value: Any, *keys: str) -> Any:
    """What a mapping has at a key, in the mapping that it has at the next, and so on; None where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def _numbers(values: Any) -> list[float]:
    numbers = map(_number, values) if isinstance(values, list) else ()
    return [number for number in numbers if number is not None]


def _number(value: Any, *keys: str) -> float | None:
    """A finite number that is not negative; None of all else."""
    value = _at(value, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
