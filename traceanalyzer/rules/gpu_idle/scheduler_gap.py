"""Idle time that no other rule explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.cause_texts import ELSE, TEXTS
from traceanalyzer.idle.recurrence import standing_out
from traceanalyzer.model.arrays import distinct, grouped
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.unprofiled import only_profiled
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.timeline.steps import Steps

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = limit(2_000, "queued kernels hand over within 0.8 to 1.7 us on an H200 with torch 2.11")
    min_steps: int = limit(3, "fewer steps cannot tell what recurs from what happens once")
    min_steps_share: float = limit(0.5, "by definition: what is in half of the steps is the step's")
    spike: float = limit(5.0, "times the median step: more than that, in one step only, is a hiccup")


_SAYS_WHY = (
    "not-recorded",
    "graph-capture",
    "profiler-overhead",
    "in-graph",
    "unlinked",
    "tail",
    "waiting",
    "unknown",
)
_NOT_THE_CODE = (
    "not-recorded",
    "graph-capture",
    "profiler-overhead",
    "launch-latency",
    "in-graph",
    "unlinked",
    "tail",
    "start",
)


@rule(since="0.1", claims=Claims.REST, limits=Limits)
def scheduler_gap(idle: IdleTime, steps: Steps, forecast: Forecast | None, limits: Limits) -> Iterator[Hits]:
    """The GPU is idle between kernels, and no other rule says why.

    What it looks for: time within the steps in which nothing runs on the device and that no other rule claimed, by
    the cause that the accounting gives it.
    Why it costs: an idle GPU does nothing for its price.
    Bad: `for x in xs: y = model(x); log(y.item())`. Good: queue work ahead of the device and read back rarely.
    How sure: the cause comes from the accounting (docs/accounting.md), with the events that decided it. What
    appears in every step is the code's; what stands out in a single step of three or more is the profiler's or a
    hiccup, and in the leading steps only it is the recording getting under way: both are info.
    When it is wrong: the profiler slows the CPU, so a loop that barely keeps ahead without it falls behind with it;
    where the replay says that the device may be busy without it, the finding is info.
    Source: the table of causes of the accounting.
    """
    lasting = idle[(idle.dur_ns >= limits.min_gap_ns) | idle.cause.one_of("in-graph")]
    start, once = _standing_out(lasting, steps, limits)
    if start.any():
        yield _hits(lasting[start], "start", *TEXTS["start"], Confidence.HIGH, info=True)
    recurring, alone = lasting[~once & ~start], lasting[once & ~start]
    for cause, found in recurring.by(recurring.cause):
        sure = Confidence.LOW if cause in ("unknown", "waiting") else Confidence.HIGH
        rare = (
            len(distinct(found.step)) < limits.min_steps_share * len(steps) and len(steps) >= limits.min_steps
        )
        info = cause in _NOT_THE_CODE or only_profiled(forecast) or rare
        yield _hits(found, cause, *TEXTS.get(cause, ELSE), sure, info=info)
    for cause, found in alone.by(alone.cause):
        what = f"in one step only, so the profiler's or a hiccup: {TEXTS.get(cause, ELSE)[0]}"
        advice = "See whether it comes back in a longer recording before changing anything."
        yield _hits(found, f"{cause}-once", what, advice, Confidence.HIGH, info=True)


def _hits(found: IdleTime, cause: str, what: str, advice: str, sure: Confidence, *, info: bool) -> Hits:
    ops = found.op.name.or_else(found.launch.op.name).sums(found.dur_ns)
    return Hits(
        at=found,
        cause=cause,
        message="{in_steps} the GPU is idle: " + what + (", before {ops}" if ops else ""),
        advice=advice,
        confidence=sure,
        evidence={"largest_gap_ns": int(found.dur_ns.max()), "ops": ops},
        info=info,
    )


def _standing_out(idle: IdleTime, steps: Steps, limits: Limits) -> tuple[Mask, Mask]:
    """(what is idle in leading steps only, what stands out in a single step) of causes that say no more than late."""
    plain = ~idle.cause.one_of(*_SAYS_WHY)
    head = (idle.before_entries < 0) & (plain | idle.cause.one_of("unknown"))  # before the first work of all
    if len(steps) < limits.min_steps or steps.asked or not len(idle):
        return head, np.zeros(len(idle), bool)
    key, _ = grouped([idle.device, idle.cause.code])
    found = standing_out(key, idle.step, idle.dur_ns, len(steps), limits.spike)
    return head | (found.leading | (idle.step < 0)) & plain, found.alone & plain & ~head
