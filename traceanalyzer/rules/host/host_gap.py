"""Between two ops the CPU does something that has no op, and the GPU waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import ShrinkGaps
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.rule.views.quiet_calls import QuietCalls
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = limit(100_000, "torch's own python between two ops takes less (H200); twice that with stacks")
    min_share: float = limit(0.3, "of the steps: where python between ops takes so much, short stretches count, too")
    min_torch_ns: int = limit(1_000_000, "backward's end and the optimizer's prologue take 0.2 to 0.5 ms on an H200 host")
    min_cost_share: float = limit(0.02, "of the usual step: below it a stretch is python's jitter; noise/ traces, H200")
    min_pause_ns: int = limit(1_000_000, "elsewhere in each step: garbage collection of 1e5 objects takes as long")
    min_steps_share: float = limit(0.5, "by definition: what is in half of the steps is the step's")


@rule(since="0.3", claims=Claims.GENERAL, limits=Limits)
def host_gap(
    quiet: QuietCalls, idle: IdleTime, steps: Steps, syncs: SyncCalls, limits: Limits
) -> Iterator[Hits]:
    """Between ops the CPU runs something else, and the GPU waits.

    What it looks for: stretches in which no thread that launches work has an op or a call open, and the idle time
    in them: python, garbage collection, logging, numpy. Loading of data, compilation and prof.step() are others'.
    Why it costs: nothing is launched meanwhile.
    Bad: a metric computed in python between two layers; gc.collect() in every step. Good: work of the host in
    another thread or process, or once every many steps.
    How sure: the stretches and the idle time are measured. With stacks the user's line in which most of a stretch
    goes by is named, by its total over all steps. Without them python cannot be told from garbage collection.
    The optimizer's and the autograd engine's own time is left out: it is torch's.
    When it is wrong: an extension that works without torch's dispatcher has no op either. What comes in few steps
    is a hiccup, and is info.
    Source: the blog's "one event dominates: start there"; measured on an H200 with torch 2.11.
    """
    lasting = _lasting(quiet[_is_users(quiet, limits)], steps, limits)
    if len(steps) == 1:  # nothing comes after the end of the recording
        lasting = lasting[~np.isin(lasting.rows, syncs.row[syncs.profiler])]
    if not len(lasting):
        return
    recurs = _recurs(lasting, steps, limits)
    step_ns = int(np.median(steps.durations_ns()))
    for line, found in lasting[recurs].by(lasting[recurs].line):
        lost = Lost.idle_within(idle, found.start_ns, found.end_ns)
        if intervals.length(lost.spans()) >= limits.min_cost_share * step_ns * len(steps):
            yield _hits(found, lost, line)
    yield _once(lasting[~recurs], idle)


def _hits(found: QuietCalls, lost: Lost, line: str | None) -> Hits:
    what = "{by} runs {times_a_step} between ops, {gap} each ({largest} at most)"
    unknown = "the CPU runs no op {times_a_step} for {gap} ({largest} at most), between {places}: python or garbage "
    unknown += "collection, which only stacks tell apart"
    return Hits(
        at=found,
        by=line,
        lost=lost,
        fix=ShrinkGaps(found.start_ns, found.end_ns),
        message=(what if line else unknown) + "; the GPU is idle for {per_step} of each step meanwhile",
        advice=_LINE if line else _UNKNOWN,
        confidence=Confidence.HIGH if line else Confidence.MEDIUM,
        evidence=_evidence(found),
        also=(found.before,),
    )


def _once(found: QuietCalls, idle: IdleTime) -> Hits:
    lines = found.line.sums(found.dur_ns)
    return Hits(
        at=found,
        cause="once",
        lost=Lost.idle_within(idle, found.start_ns, found.end_ns),
        message="the CPU runs no op {times}, {in_steps}, for {largest} at most"
        + (", in {lines}" if lines else ", between {places}")
        + ": a hiccup, as it does not come back",
        advice="See whether it comes back in a longer recording before changing anything.",
        evidence=_evidence(found) | {"lines": lines},
        also=(found.before,),
        info=True,
    )


def _evidence(found: QuietCalls) -> dict[str, Any]:
    gap_ns, largest_ns = int(np.median(found.dur_ns)) if len(found) else 0, int(found.dur_ns.max(initial=0))
    return {"gap_ns": gap_ns, "largest_ns": largest_ns, "places": _places(found)}


_LINE = "Move it out of the loop, do it every many steps, or hand it to another thread or process."
_UNKNOWN = (
    "Record with with_stack=True: it names the line, and a pause without a line of its own is garbage collection "
    "(gc.freeze() after set-up, gc.disable() in the loop)."
)


def _places(found: QuietCalls) -> dict[str, int]:
    """`op before -> op after`, by time."""
    before, after = found.before.outer_op.name.or_else(found.before.name), found.outer_op.name.or_else(found.name)
    places: dict[str, int] = {}
    for pair, part in found.by(before, after):
        places[" and ".join(map(str, pair))] = part.total_ns
    return places


def _lasting(quiet: QuietCalls, steps: Steps, limits: Limits) -> QuietCalls:
    """The stretches that are long, or all where they take much of the steps."""
    spent = steps.cpu_end_ns[-1] - steps.cpu_start_ns[0]
    if quiet.total_ns >= limits.min_share * spent:
        return quiet
    return quiet[quiet.dur_ns >= limits.min_gap_ns * (2 if quiet.events.user_code.recorded else 1)]


def _is_users(quiet: QuietCalls, limits: Limits) -> Mask:
    """Not torch's own: in the autograd engine, on the way there, or at its usual end."""
    into, leaving = quiet.by_autograd
    return ~into & (~leaving | (quiet.dur_ns >= limits.min_torch_ns))


def _recurs(quiet: QuietCalls, steps: Steps, limits: Limits) -> Mask:
    """At the same place in half of the steps; or a pause, wherever it falls, in several."""
    often = quiet.in_steps(quiet.before.name, quiet.name) >= limits.min_steps_share * len(steps)
    pause = quiet.dur_ns >= limits.min_pause_ns
    several = len(distinct(quiet.step[pause])) > 1
    return np.asarray(often | (pause & several))
