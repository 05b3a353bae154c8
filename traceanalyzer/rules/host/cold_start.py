"""Time that a program needs once, at its start."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.idle.stalled_calls import KINDS, FirstUse
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, median
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, Kind, LostTime, rule
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.steps import Steps

# Of idle time, in the accounting's table.
_FIRST = ("graph-capture", "first-use", "module-loading", "compilation", "autotuning")
# These have rows of their own.
_NAMED = tuple(map(KINDS.index, ("capturing graphs", "compiling", "loading kernels")))
_PYTHON = "Python before the first op"


class Limits:
    min_steps: int = 3
    """the rule needs at least this many steps to know which steps are normal; with fewer steps, it reports
    every stall of a kind that a cold start causes"""
    times_usual: float = 2.0
    """a first step is cold if it takes more than this many times the median time of the other steps"""
    min_excess_ns: int = 1_000_000
    """a cold start is ignored if its stalls take less than this time in all; on an H200 the shortest cold
    start took 2 ms, and steps vary at random by up to 0.5 ms"""
    min_whole_share: float = 0.05
    """with fewer than min_steps steps: the severity is info if the GPU is idle in these stalls for less than
    this share of the recorded time"""


@rule(since="0.1", claims=Claims.ONCE, limits=Limits, kind=Kind.ONCE)
def cold_start(
    calls: Calls,
    quiet: CallsAfterCpuGaps,
    once: FirstUse,
    activity: Activity,
    idle: IdleTime,
    steps: Steps,
    limits: Limits,
) -> Iterator[Hits]:
    """The recording holds a cold start.

    What it looks for: stalls that happen once. Typical stalls: loading of kernels, the first use of a
    library, tuning, compilation, capture of CUDA graphs. If the first steps take far longer than later steps,
    the Python time of the first steps counts, too.
    Why it costs: the device waits. This happens once per process, not in every step.
    Bad: a recording, or a measurement, without warm-up. Good: schedule(wait=1, warmup=3).
    How sure: loading, compilation and allocation are recorded. A first use shows as a call that takes many times its
    usual time. With at least three steps, the severity is info, because a cold start does not slow later steps.
    When it is wrong: a program that keeps getting new shapes pays this cost again and again. A longer
    recording shows this.
    Source: kineto issue 1020; measured on an H200 with torch 2.11 and on public traces of A100 and MI250.
    """
    cold = cold_steps(steps, activity, limits)
    stalls = calls[np.isin(calls.rows, once.row)]
    prepares = quiet.before_first_calls(limits.min_steps) & (len(steps) < limits.min_steps)
    late = quiet[(quiet.dur_ns >= limits.min_excess_ns) & (np.isin(quiet.step, cold) | prepares)]
    # A stall that recurs in at least half of the later steps is no cold start.
    charged = idle.charged_to(*_FIRST).happening_once(limits.min_steps)
    charged = charged[charged.call.rows >= 0]
    rows = np.concatenate((stalls.rows, late.rows, charged.call.rows))
    # A call may begin before the window, or end after it.
    start = np.maximum(np.concatenate((stalls.start_ns, late.start_ns, charged.start_ns)), steps.window_start_ns)
    end = np.minimum(np.concatenate((stalls.end_ns, late.end_ns, charged.end_ns)), steps.window_end_ns)
    inside = start < end
    start, end, rows = start[inside], end[inside], rows[inside]
    spans = intervals.union(start, end)
    if intervals.length(spans) < limits.min_excess_ns:
        return
    longest = Calls(calls.events, longest_rows(rows, start, end, spans))
    lost = LostTime.idle_within(idle, *spans)
    steady = len(steps) >= limits.min_steps
    share = intervals.length(lost.merged()) / max(steps.window_ns, 1)
    most = 2 * share >= 1
    usual = int(median(steps.durations_ns()[len(cold) :])) if steady else 0
    kinds = _by_kind(calls, once, activity, charged, late, steps)
    if len(cold):
        message = "the first recorded step takes {first} on the CPU, later steps take {usual} each (median)"
    elif steady:
        message = "stalls that do not recur leave the GPU idle for {total}"
    else:
        message = "most of the window is a cold start, {total}" if most else "a cold start takes {total} of the window"
    yield Hits(
        occurrences=longest,
        lost=lost,
        repeated_rows=True,  # one per stretch, by its longest call, which may have several
        message=message + ": {kinds}",
        advice="Warm up before measuring, schedule(wait=1, warmup=3): a normal step does not contain this time."
        if steady
        else "Record after a warm-up, schedule(wait=1, warmup=3, active=5)"
        + (": this window says little about a normal step." if most else "."),
        confidence=Confidence.HIGH if steady or np.isin(once.kind, _NAMED).any() else Confidence.MEDIUM,
        evidence={
            "stall_ns": intervals.length(spans),
            "kinds": kinds,
            "ops": longest.outer_op.name.or_else(longest.name).sums(spans[1] - spans[0]),
            "first_ns": int(steps.durations_ns()[0]),
            "usual_ns": usual,
        },
        info=steady or share < limits.min_whole_share,
    )


def cold_steps(steps: Steps, activity: Activity, limits: Limits) -> Rows:
    """Positions of leading steps that take far longer than the others, without the profiler's time."""
    if len(steps) < limits.min_steps:
        return np.empty(0, np.int64)
    profiler_ns = intervals.covered(activity.sets["profiler"], steps.cpu_start_ns, steps.cpu_end_ns)
    dur = steps.cpu_end_ns - steps.cpu_start_ns - profiler_ns
    usual = median(dur[1:])
    wide = (dur > limits.times_usual * usual) & (dur - usual >= limits.min_excess_ns)
    leading = int(np.argmin(np.append(wide, False)))
    return np.arange(leading if leading <= max(1, len(steps) // 3) else 0)


def longest_rows(rows: Rows, start: Rows, end: Rows, spans: intervals.Set) -> Rows:
    """The longest row of each span."""
    span = np.searchsorted(spans[0], start, side="right") - 1
    order = np.lexsort((start - end, span))
    return rows[order[np.unique(span[order], return_index=True)[1]]]


def _by_kind(
    calls: Calls, once: FirstUse, activity: Activity, charged: IdleTime, late: CallsAfterCpuGaps, steps: Steps
) -> dict[str, int]:
    """Time within the window in ns by kind, each nanosecond once, longest first."""
    nesting, covered = calls.events.nesting, intervals.EMPTY
    spent: dict[str, int] = {}
    parts = [(kind, once.row[once.kind == position]) for position, kind in enumerate(KINDS)]
    sets = [(kind, intervals.union(nesting.start_ns[rows], nesting.end_ns[rows])) for kind, rows in parts]
    if len(parts[0][1]):  # a capture is more than the calls that begin it
        sets[0] = KINDS[0], activity.sets["capture"]
    sets.append((KINDS[-1], intervals.union(charged.start_ns, charged.end_ns)))
    for kind, whole in [*sets, (_PYTHON, intervals.union(late.start_ns, late.end_ns))]:
        spans = intervals.clip(whole, steps.window_start_ns, steps.window_end_ns)
        spent[kind] = spent.get(kind, 0) + intervals.length(intervals.difference(spans, covered))
        covered = intervals.union(*map(np.concatenate, zip(covered, spans, strict=True)))
    return dict(sorted(((kind, ns) for kind, ns in spent.items() if ns), key=lambda item: -item[1]))
