"""Between two ops the CPU does something that has no op, and the GPU waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, grouped
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
    own = quiet[_is_users(quiet, limits)]
    if len(steps) == 1:  # nothing comes after the end of the recording
        own = own[~np.isin(own.rows, syncs.row[syncs.profiler])]
    long = own.dur_ns >= limits.min_gap_ns * (2 if quiet.events.user_code.recorded else 1)
    recurs = _recurs(own, steps, limits)
    least_ns = limits.min_cost_share * float(np.median(steps.durations_ns())) * len(steps)
    groups = list(own[long & recurs].by(own[long & recurs].line))
    short = own[~long & recurs]
    if short.total_ns >= limits.min_share * (steps.cpu_end_ns[-1] - steps.cpu_start_ns[0]):
        groups.append((_leading_line(short), short))
    for line, found in groups:
        found = found if line else _main_places(found)
        lost = Lost.idle_within(idle, found.start_ns, found.end_ns)
        if intervals.length(lost.spans()) >= least_ns:
            yield _hits(found, lost, line, sure=len(steps) > 1)
    yield _once(own[long & ~recurs], idle)


def _hits(found: QuietCalls, lost: Lost, line: str | None, *, sure: bool) -> Hits:
    lines = found.line.sums(found.dur_ns)
    what, advice = "{by} runs {times_a_step} between ops, {gap} each ({largest} at most)", _LINE
    if not line:
        what = "the CPU runs no op {times_a_step} for {gap} ({largest} at most), "
        what += "in {lines}" if lines else "between {places}: python or garbage collection, which only stacks tell apart"
        advice = _LINE if lines else _UNKNOWN
    return Hits(
        at=found,
        by=line,
        lost=lost,
        fix=ShrinkGaps(found.start_ns, found.end_ns),
        message=what + "; the GPU is idle for {per_step} of each step meanwhile",
        advice=advice,
        confidence=Confidence.HIGH if line and sure else Confidence.MEDIUM,
        evidence=_evidence(found) | {"lines": lines},
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


_MINOR = 0.1  # share of the time below which a place is not told; the message names three
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


def _leading_line(found: QuietCalls) -> str | None:
    """The line in which most of the time goes by, if there is one."""
    line, spent = next(iter(found.line.sums(found.dur_ns).items()), (None, 0))
    return line if 2 * spent > found.total_ns else None


def _main_places(found: QuietCalls) -> QuietCalls:
    """Without the places that matter little."""
    place, first = grouped([found.before.name.code, found.name.code])
    spent = np.bincount(place, weights=found.dur_ns, minlength=len(first))
    return found[spent[place] >= _MINOR * found.total_ns]


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
