"""What a step of the loop is spent on: GPU time by op and idle time by cause, without the profiler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.causes import GROUPS, RECORDING, TEXTS
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.model.texts import Texts
from traceanalyzer.regions.regions import Regions
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.evidence_texts import display_names, launched_in_steps, uncovered_ns
from traceanalyzer.rule.views import IdleTime, Work
from traceanalyzer.timeline.collective_waits import CollectiveWaits, collective_names, without_waiting
from traceanalyzer.timeline.steps import Steps

LARGEST = 3
Kind = Literal["gpu", "communication", "copy", "idle", "cpu"]
_LINK_COPIES = {"copy_h2d": "host-to-device copies", "copy_d2h": "device-to-host copies"}
LOADING = TEXTS["data-loading"].idle
# Idle time that the profiler does not make longer: few events for its length (replay/slowdown.py).
_SAME = ("data-loading", "host-work", "host-collective", "allocator", "compilation", "module-loading")
_AS_RECORDED = frozenset(TEXTS[cause].idle for cause in _SAME)


@dataclass(frozen=True, slots=True)
class Cost:
    """One item of a step on the first device: an op, a kernel without op, or why nothing ran: "while data is loaded".

    `kind` is "cpu" of an op's time on the CPU, where no device was recorded.
    """

    name: str
    kind: Kind
    step_ns: float
    share: float

    @property
    def words(self) -> str:
        """`aten::mm`, or `idle time while data is loaded`."""
        name = f'"{self.name}"' if ": " in self.name else self.name
        return f"idle time {self.name}" if self.kind == "idle" else name


def largest_costs(analysis: Analysis, count: int = LARGEST) -> tuple[Cost, ...]:
    """The largest items of the step, then all other idle time and communication, as shares of it.

    Of the unprofiled step, else of the traced. GPU time is as traced, and told once: a copy beside a kernel takes
    nothing of the step; where it was measured how long collectives wait for other ranks, that is left out, as the
    replay leaves it out. Of several steps those count that are replayed: what happens once, in a first step or where a
    graph is captured, is no step's. Idle time is what the replay leaves of it: what the profiler does not stretch as
    recorded, the rest split as recorded. Where the trace has no work on a device, ops by their recorded CPU time.
    """
    try:
        work, steps, idle = analysis.index(Work), analysis.index(Steps), analysis.index(IdleTime)
    except Unavailable:
        return _cpu_costs(analysis)[:count]
    device, usual = min(steps.bounds_ns, default=0), usual_steps(analysis, steps)
    on_device = work[work.device == device]
    counts = np.isin(on_device.step, usual) | ~launched_in_steps(on_device)
    every = on_device[counts]
    unwaited_ns = without_waiting(every, analysis.index_or_none(CollectiveWaits))
    took_ns = np.minimum(uncovered_ns(on_device)[counts], unwaited_ns)
    of_step, shared = launched_in_steps(every), every.kind.one_of("communication")
    own = of_step & ~shared & ~every.kind.one_of(*_LINK_COPIES)
    times = _gpu_ns(display_names(every[own]), took_ns[own], len(usual))
    copies: dict[str, float] = {}
    for kind, words in _LINK_COPIES.items():
        moved = of_step & every.kind.one_of(kind)
        copies |= _gpu_ns(display_names(every[moved]), took_ns[moved], len(usual), f"{words} in {{}}")
    shared &= of_step
    # The op around a collective is whatever happened to start it.
    named = collective_names(every[shared]) if shared.any() else Texts.none(0)
    exchanged = _gpu_ns(named, took_ns[shared], len(usual), "{} (exposed communication)")
    idle_ns = _idle_ns(idle[(idle.device == device) & np.isin(idle.step, usual)], steps, len(usual))
    work_ns = sum(times.values()) + sum(copies.values())
    exchanged = fitted_communication(analysis, work_ns, exchanged)
    step_ns, idle_ns = _unprofiled(analysis, work_ns + sum(exchanged.values()), idle_ns)
    kinds: dict[Kind, dict[str, float]]
    kinds = {"gpu": times, "copy": copies, "communication": exchanged, "idle": idle_ns}
    costs = (Cost(name, kind, ns, ns / step_ns) for kind, of in kinds.items() for name, ns in of.items())
    ranked = sorted((cost for cost in costs if cost.step_ns > 0), key=lambda cost: (-cost.step_ns, cost.name))
    return (*ranked[:count], *(cost for cost in ranked[count:] if cost.kind in ("idle", "communication")))


def _cpu_costs(analysis: Analysis) -> tuple[Cost, ...]:
    """Ops by CPU time, where the step could not be replayed."""
    regions = analysis.index_or_none(Regions)
    if regions is None or regions.replayed:
        return ()
    tree, times = regions.tree, dict[str, float]()
    for kind, name, ns in zip(tree.kind, tree.name, (regions.cpu_ns / regions.steps).tolist(), strict=True):
        if kind in ("op", "backward"):
            times[name] = times.get(name, 0.0) + ns
    found = (Cost(name, "cpu", ns, ns / max(regions.step_ns, 1.0)) for name, ns in times.items() if ns > 0)
    return tuple(sorted(found, key=lambda cost: (-cost.step_ns, cost.name)))


def usual_steps(analysis: Analysis, steps: Steps) -> NDArray[np.int64]:
    """Positions of the steps that stand for the program: those that are replayed, else the steady ones."""
    if (forecast := analysis.index_or_none(Forecast)) is not None:
        return forecast.program.sample.steps
    steady = np.flatnonzero(steps.steady)
    return steady if len(steady) else np.arange(len(steps))


def _gpu_ns(names: Texts, took_ns: NDArray[np.int64], steps: int, words: str = "{}") -> dict[str, float]:
    """Time of work by name, per step."""
    return {words.format(name): ns / max(steps, 1) for name, ns in names.sums(took_ns).items()}


def fitted_communication(analysis: Analysis, work_ns: float, exchanged: dict[str, float]) -> dict[str, float]:
    """Communication without what the replayed step has no room for: there, ranks wait for each other less.

    Where the CPU sets the pace, they wait for launches, of which `in_exchanges` tells: if other work leaves any room.
    """
    forecast = analysis.index_or_none(Forecast)
    room_ns = max(forecast.step.unprofiled_ns - work_ns, 0.0) if forecast is not None else 0.0
    if forecast is None or (forecast.step.bound == "cpu" and room_ns > 0):
        return exchanged
    factor = min(room_ns / max(sum(exchanged.values()), 1.0), 1.0)
    return {name: factor * ns for name, ns in exchanged.items()}


def _idle_ns(idle: IdleTime, steps: Steps, count: int) -> dict[str, float]:
    """Traced idle time by cause, per step, in words; without what only the recording made idle.

    After the last launch of the last step its mark may go on: that is the step's, as far as the mark reaches.
    """
    within_ns = np.maximum(np.minimum(idle.end_ns, steps.cpu_end_ns[idle.step]) - idle.start_ns, 0)
    sums = idle.cause.sums(np.where(idle.cause.one_of("tail"), within_ns, idle.dur_ns))
    lost = {cause: ns for cause, ns in sums.items() if cause == "tail" or GROUPS.get(cause, RECORDING) != RECORDING}
    words = {cause: TEXTS[cause].idle if cause in TEXTS else cause.replace("-", " ") for cause in lost}
    return {words[cause]: ns / max(count, 1) for cause, ns in lost.items()}


def _unprofiled(analysis: Analysis, busy_ns: float, idle_ns: dict[str, float]) -> tuple[float, dict[str, float]]:
    """(the step, idle time in it) without the profiler; as traced where that cannot be replayed."""
    traced = sum(idle_ns.values())
    forecast = analysis.index_or_none(Forecast)
    if forecast is None:
        return max(busy_ns + traced, 1.0), idle_ns
    step_ns, late_ns = forecast.step.unprofiled_ns, forecast.program.late_ns
    # The busiest stream may do nothing while another works: no more is idle than was.
    left = min(max(step_ns - late_ns - forecast.base[0].gpu_ns, 0.0), traced)
    as_recorded = sum(ns for name, ns in idle_ns.items() if name in _AS_RECORDED)
    kept = min(left / max(as_recorded, 1.0), 1.0)
    rest = max(left - as_recorded, 0.0) / max(traced - as_recorded, 1.0)
    # Streams at work at once, or a cut recording, may have more work than the step has room for: shares are of that.
    alone = {name: ns * (kept if name in _AS_RECORDED else rest) for name, ns in idle_ns.items()}
    if late_ns:
        alone[LOADING] = alone.get(LOADING, 0.0) + late_ns
    return max(step_ns, busy_ns, 1.0), alone


def in_exchanges(step: StepEstimate, costs: Sequence[Cost]) -> float:
    """Share of the step in which the GPU waits, where the CPU sets the pace and most of that is in communication.

    The replay takes such waiting for the launching of other ranks: 0 where idle time is at least half of it.
    """
    waits = 1 - step.device_ns / max(step.unprofiled_ns, 1)
    idle, exchanging = (sum(cost.share for cost in costs if cost.kind == kind) for kind in ("idle", "communication"))
    return waits if step.bound == "cpu" and 2 * idle < waits <= idle + exchanging else 0.0
