"""The CPU launches short kernels more slowly than the GPU runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.rewrites import Compile, GraphLaunch
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.capturable import is_compiled, obstacles
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.unprofiled import busy_share, only_profiled
from traceanalyzer.rule.views import IdleTime, Work
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls


@dataclass(frozen=True, slots=True)
class Limits:
    max_pause_ns: int = limit(
        1_000_000,
        "between two ops: an optimizer's or backward's start takes 0.2 to 0.8 ms, H200 host; twice with stacks",
    )
    min_launch_share: float = limit(
        0.5, "of that idle time inside ops: below it the code between them is what is slow; by definition"
    )
    min_window_share: float = limit(0.05, "idle in the trace itself: less cannot be worth a graph")
    min_idle_share: float = limit(
        0.25, "of all idle time: less is beside other faults, which are the ones to fix"
    )
    min_sure_share: float = limit(0.02, "saved even at the interval's low end: the rule's own min_share")
    min_same_share: float = limit(
        0.5, "of the steps launch the same kernels on the same grids: shapes are static"
    )
    max_syncs: float = limit(1.0, "a step: one read-back at its end does not cut a graph in two")
    min_compile_share: float = limit(0.1, "saved by it: of its replay only the sign can be trusted (pairs)")
    min_pointwise_share: float = limit(0.3, "of the launches: eager pointwise kernels that a compiler fuses")


_DISPATCHING = ("dispatching", "launch-latency")
_BETWEEN_OPS = ("host-code", "python", "engine")
_POINTWISE = re.compile(r"elementwise_kernel|elementwise_grid_stride|reduce_kernel|CatArrayBatched")


@rule(since="0.2", claims=Claims.LAUNCHES, min_share=0.02, limits=Limits)
def launch_bound(
    work: Work, idle: IdleTime, steps: Steps, syncs: SyncCalls, forecast: Forecast | None, limits: Limits
) -> Iterator[Hits]:
    """The GPU waits for launch after launch of short kernels.

    What it looks for: idle time in which the CPU was dispatching ops, or on its short way from one to the next, and
    that no other finding explains (a read-back, an optimizer's loop, calls that repeat).
    Why it costs: an eager op takes the CPU about 5 us, more with autograd; after a shorter kernel the GPU waits.
    Bad: 300 kernels of 1 us a step. Good: the same in a CUDA graph, fused by torch.compile, or a larger batch.
    How sure: idle time is measured; a saving is claimed only where the replay leaves the GPU idle at any plausible
    slowdown, else the profiler may have made the loop launch-bound: info.
    The remedy is the one that the trace supports: a CUDA graph where steps launch the same kernels on the same grids
    without synchronising in between, torch.compile where eager pointwise kernels can be fused, else a larger batch.
    When it is wrong: shapes that repeat within the few recorded steps and change later cannot be captured.
    Source: PyTorch's "Accelerating PyTorch with CUDA Graphs"; measured on an H200 with torch 2.11.
    """
    found = _between_launches(idle, limits)
    if len(found) == 0:
        return
    eager = work[(work.step >= 0) & ~work.in_graph]
    remedy, edit, fix, confidence, advice = _remedy(eager, steps, syncs, forecast, limits)
    unsure = forecast is not None and forecast.saving([edit]).low_share < limits.min_sure_share
    no_fault = only_profiled(forecast) or unsure
    least_ns = max(limits.min_idle_share * idle.total_ns, limits.min_window_share * steps.window_ns)
    minor = found.total_ns < least_ns
    launches, pace = round(len(eager) / max(len(steps), 1)), _pace(eager)
    yield Hits(
        at=found,
        cause="profiled-only" if no_fault else "minor" if minor else remedy,
        fix=() if minor else fix,
        confidence=confidence,
        message=f"the CPU launches {{launches}} kernel{'s' if launches != 1 else ''} a step, of {{kernel}} each"
        + (", one in {launch}" if pace else "")
        + ", and the GPU waits for it: before {ops}"
        + ("; without the profiler it may be busy all the same" if no_fault else "")
        + ("; most idle time has other reasons" if minor and not no_fault else ""),
        advice=advice,
        evidence={
            "launches": launches,
            "kernel_ns": int(np.median(eager.dur_ns)) if len(eager) else 0,
            "launch_ns": pace,
            "ops": found.launch.outer_op.name.or_else(found.launch.name).sums(found.dur_ns),
            "remedy": remedy,
            "busy_share": busy_share(forecast),
        },
        info=no_fault or minor,
    )


def _pace(eager: Work) -> int:
    """Median time from one launch to the next."""
    starts = distinct(eager.launch.start_ns[eager.launch.there])
    return int(np.median(np.diff(starts))) if len(starts) > 1 else 0


_GRAPH = (
    "Capture the step in a CUDA graph: torch.cuda.graph, or torch.compile(mode='reduce-overhead'): every step launches "
    "the same kernels on the same grids."
)
_ONE_STEP = (
    "Where steps repeat the same shapes, which one recorded step does not show, capture them in a CUDA graph: "
    "torch.cuda.graph, or torch.compile(mode='reduce-overhead'). Else do more with each launch: a larger batch."
)
_COMPILE = "Compile the model with torch.compile: {:.0f} % of the launches are pointwise kernels that fuse."
_BATCH = "Do more with each launch: a larger batch, or several requests at once. No CUDA graph takes the step yet: {}."


def _between_launches(idle: IdleTime, limits: Limits) -> IdleTime:
    """Idle time inside ops and on the way from one to the next, where the ops take most of it."""
    inside = np.isin(idle.piece, idle.charged_to(*_DISPATCHING).piece)
    pause_ns = limits.max_pause_ns * (2 if idle.events.user_code.recorded else 1)
    way = np.isin(idle.piece, idle.charged_to(*_BETWEEN_OPS).piece) & (idle.dur_ns <= pause_ns)
    launched = idle.has_next & ~idle.launch.name.matches(r"GraphLaunch")
    both = idle[(inside | way) & launched]
    return (
        both if idle[inside].total_ns >= limits.min_launch_share * both.total_ns else idle[inside & launched]
    )


def _remedy(
    eager: Work, steps: Steps, syncs: SyncCalls, forecast: Forecast | None, limits: Limits
) -> tuple[str, Edit, Edit | tuple[()], Confidence, str]:
    """(cause, edit that takes the launches away, what of it the remedy does, how sure, advice)."""
    graph = GraphLaunch()
    against = obstacles(eager, steps, syncs, limits.max_syncs, limits.min_same_share)
    if not against and len(steps) > 1:
        return "graph", graph, graph, Confidence.HIGH, _GRAPH
    pointwise = eager.name.matches(_POINTWISE) & ~eager.name.matches(r"^triton_")
    share, compiled = float(pointwise.mean()), Compile(eager.entries[pointwise])
    fuses = share >= limits.min_pointwise_share and not is_compiled(eager)
    if fuses and (forecast is None or forecast.saving([compiled]).share >= limits.min_compile_share):
        return "compile", compiled, compiled, Confidence.MEDIUM, _COMPILE.format(100 * share)
    if not against:
        return "graph", graph, graph, Confidence.LOW, _ONE_STEP
    # A larger batch makes no step shorter: what it is worth cannot be replayed.
    return "batch", graph, (), Confidence.MEDIUM, _BATCH.format(", and ".join(against))
