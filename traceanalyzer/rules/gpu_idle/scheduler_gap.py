"""Idle time that no other rule explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.cause_table import CAUSES
from traceanalyzer.idle.cause_texts import ELSE, NOT_THE_CODE, TEXTS
from traceanalyzer.model.arrays import distinct, grouped
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule import Claims, Hits, IdleTime, Kind, limit, rule
from traceanalyzer.rule.unprofiled import busy_advice, is_busy, only_profiled
from traceanalyzer.timeline.names import GRAPH_LAUNCH
from traceanalyzer.timeline.steps import Steps

_STRETCHED = "python"  # medium at most: recording stacks makes it several times as slow
_LARGE_GRAPH = (
    "Launch the graph while the GPU still runs: prepare its inputs on the device, and wait after the launch."
)
_USUAL = (
    "host-code",
    "host-work",
    "engine",
    "long-call",
    "python",
)  # what every program pays that is not queued ahead
_JITTER = "long-call"  # now here, now there: the code's only where the same op is held up again and again


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = limit(
        2_000,
        "shorter gaps are ignored; queued kernels follow each other within 0.8 to 1.7 µs on an H200 with torch "
        "2.11",
    )
    min_steps: int = limit(3, "at least this many steps are needed; fewer do not show whether a cost recurs")
    min_steps_share: float = limit(
        0.5, "idle time counts as recurring if at least this share of the steps has it; chosen"
    )
    usual_share: float = limit(
        0.03,
        "time between ops, in the autograd engine or inside an op is info below this share of the window, where "
        "nothing tells what a fix would save; programs without a fault pay up to 1.1 % on an H100, and more is medium",
    )
    spike_times: float = limit(
        5.0, "a gap is an exception of one step if it is at least this many times the gap of the median step"
    )


@rule(
    since="0.1",
    claims=Claims.REMAINDER,
    limits=Limits,
    causes=("start", *CAUSES, *(f"{cause}-once" for cause in CAUSES)),
    kind=Kind.REMAINDER,
)
def scheduler_gap(idle: IdleTime, steps: Steps, forecast: Forecast | None, limits: Limits) -> Iterator[Hits]:
    """The GPU is idle between kernels, and no other rule says why.

    What it looks for: idle time of the device within steps that no other rule reports. There is one finding for
    each cause; `traceanalyzer explain CAUSE` and docs/accounting.md describe the causes.
    Why it costs: you pay for a GPU that does nothing.
    Bad: Python that prepares each launch while the GPU waits. Good: queue work ahead of the device.
    How sure: each cause is concluded from recorded events. Idle time in every step comes from the code. The
    finding is info if only one of at least three steps has the idle time (the profiler, or chance), or if only
    the first steps have it (the start of the recording).
    When it is wrong: the profiler slows the CPU. If the device may be busy without the profiler, the finding is
    info. So is what every program pays between its ops, up to 3 % of the window. The cause `python` is known only
    from recorded stacks; its confidence is at most medium, because recording stacks slows Python.
    Source: the table of causes in docs/accounting.md.
    """
    lasting = idle[(idle.dur_ns >= limits.min_gap_ns) | idle.cause.one_of("in-graph")]
    start, once = lasting.standing_out(limits.min_steps, limits.spike_times)
    if start.any():
        yield _hits(
            lasting[start],
            "start",
            TEXTS["start"].happened,
            TEXTS["start"].advice,
            Confidence.HIGH,
            info=True,
        )
    recurring, alone = lasting[~once & ~start], lasting[once & ~start]
    for cause, found in recurring.by(recurring.cause):
        sure = Confidence.LOW if cause in ("unknown", "waiting") else Confidence.HIGH
        rare = _in_steps(found, same=cause == _JITTER) < limits.min_steps_share * len(steps)
        rare &= len(steps) >= limits.min_steps
        info = cause in NOT_THE_CODE or only_profiled(forecast) or rare
        text = TEXTS.get(cause, ELSE)
        advice = _LARGE_GRAPH if _launches_graphs(found) else text.advice
        advice = busy_advice(advice) if is_busy(forecast) and cause not in NOT_THE_CODE else advice
        usual = limits.usual_share if cause in _USUAL else 0.0
        yield _hits(found, cause, text.happened, advice, sure, info=info, usual=usual)
    for cause, found in alone.by(alone.cause):
        what = (
            f"{TEXTS.get(cause, ELSE).happened}; this happens in one step only, so it may be the profiler or "
            "chance"
        )
        advice = "Record longer before you change anything: it may not recur."
        yield _hits(found, f"{cause}-once", what, advice, Confidence.HIGH, info=True)


def _launches_graphs(found: IdleTime) -> bool:
    """Whether most of it ends with the launch of a graph: a graph in place of it is no remedy."""
    of_graphs = found.launch.name.matches(GRAPH_LAUNCH)
    return bool(2 * found.dur_ns[of_graphs].sum() > found.total_ns)


def _hits(
    found: IdleTime, cause: str, what: str, advice: str, sure: Confidence, *, info: bool, usual: float = 0.0
) -> Hits:
    ops = _ops(found)
    return Hits(
        occurrences=found,
        cause=cause,
        message="{in_steps} the GPU is idle"
        + (" before {ops:of this idle time}" if (ops.code >= 0).any() else "")
        + f": {what}",
        advice=advice,
        confidence=sure,
        evidence={"largest_gap_ns": int(found.dur_ns.max()), "ops": ops},
        info=info,
        normal_share=usual,
        max_severity=Severity.MEDIUM if cause == _STRETCHED else Severity.HIGH,
    )


def _in_steps(found: IdleTime, *, same: bool) -> int:
    """In how many steps it is; if `same`, at most because the same call of the step was held up."""
    if not same:
        return len(distinct(found.step))
    place = found.held_up_at()
    _, first = grouped([place, found.step])
    return int(np.bincount(place[first]).max(initial=0))


def _ops(found: IdleTime) -> Texts:
    names = found.op.name
    return names if (names.code >= 0).all() else names.or_else(found.launch.op.name)
