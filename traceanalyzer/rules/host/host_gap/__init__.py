"""Between two ops the CPU does something that has no op, and the GPU waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, distinct
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import ShrinkGaps
from traceanalyzer.rule import Claims, Hits, IdleTime, LostTime, limit, rule
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rules.host.host_gap.cpu_gap_texts import evidence_of, told
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = limit(
        100_000,
        "a recurring pause is reported from this length on (with recorded stacks: from twice this length); "
        "pauses caused by torch's own Python code are shorter (H200)",
    )
    python_bound_share: float = limit(
        0.3,
        "recurring pauses shorter than min_gap_ns are reported, too, if together they take at least this "
        "share of the steps' time",
    )
    min_torch_ns: int = limit(
        1_000_000,
        "pauses in the Python code of torch itself are ignored if they are shorter than this; the end of "
        "backward takes 0.2 to 0.5 ms, and so does zero_grad (H200 host)",
    )
    min_cost_share: float = limit(
        0.02,
        "reported only if the pauses, and the GPU's idle time during them, take at least this share of a "
        "normal step on average; in healthy traces, random variation stays below this share (measured on "
        "H200)",
    )
    min_pause_ns: int = limit(
        1_000_000,
        "pauses of at least this length are also recurring if they come at different places, but in several"
        " steps; garbage collection of 100,000 objects takes 1 ms",
    )
    min_steps_share: float = limit(
        0.5,
        "a pause is recurring if at least this share of the steps has a pause at the same place; chosen",
    )
    min_steps: int = limit(
        3,
        "with fewer steps than this, the rule cannot know which steps are normal, and min_calls applies",
    )
    min_calls: int = limit(
        3,
        "with fewer than min_steps steps: a pause is a cold start, and is not reported, if it comes before "
        "the first of at least this many calls of an op; the op's later calls must come without such a "
        "pause",
    )
    alike_share: float = limit(
        0.5,
        "a pause comes back if another step has a pause at the same place that is longer than this share of"
        " the first pause; chosen",
    )
    dense_call_ns: int = limit(
        5_000,
        "confidence is low if the user's Python calls in the pauses take less than this time on average; "
        "recording the stacks of so short calls makes the pauses longer; code with calls of 2.8 µs took 1.2"
        " ms without stacks and 4.1 ms with stacks (measured on H200)",
    )


_DENSE = "; without recorded stacks this would be far shorter"
_MINOR = 0.1  # share of the time below which a place is not told; the message names three


@rule(since="0.1", claims=Claims.GENERAL, limits=Limits, causes=("once",))
def host_gap(
    quiet: CallsAfterCpuGaps, idle: IdleTime, steps: Steps, syncs: SyncCalls, limits: Limits
) -> Iterator[Hits]:
    """Between ops the CPU runs something else, and the GPU waits.

    What it looks for: pauses in which the threads that launch work run neither ops nor runtime calls, while
    the GPU is idle.
    Typical: Python code, garbage collection, logging, numpy.
    Why it costs: during a pause no work is launched.
    Bad: a metric computed in Python between two layers; gc.collect() in every step. Good: the metric only
    every 100 steps, or in another process; gc.disable() in the loop and gc.collect() every 1,000 steps.
    Moving the code to another thread does not help: only one thread of a process runs Python at a time.
    How sure: pauses and idle time are measured. With recorded stacks, the finding names the user's function
    that takes most of the pauses. The recording of stacks slows down code with many short calls. In such code
    confidence is low.
    When it is wrong: an extension launches work without torch's dispatcher, so the trace has no op for it.
    Source: measured on an H200 with torch 2.11.
    """
    idle = idle.for_launches()
    own = quiet[quiet.is_users(limits.min_torch_ns)]
    if len(steps) == 1:  # nothing comes after the end of the recording
        own = own[~np.isin(own.rows, syncs.row[syncs.profiler])]
    if len(steps) < limits.min_steps:
        own = own[~own.before_first_calls(limits.min_calls)]
    long = own.dur_ns >= limits.min_gap_ns * (2 if quiet.events.user_code.recorded else 1)
    recurs = _recurs(own, steps, limits)
    least_ns = limits.min_cost_share * float(np.median(steps.durations_ns())) * len(steps)
    for line, found in _groups(own[long & recurs], own[~long & recurs], steps, limits):
        if found.total_ns < least_ns:
            continue
        if intervals.length(LostTime.idle_within(idle, found.start_ns, found.end_ns).merged()) >= least_ns:
            lost = LostTime.idle_from(idle, found.start_ns, found.end_ns)
            dense = found.user_calls() * limits.dense_call_ns > found.total_ns
            yield _hits(found, lost, line, sure=len(steps) > 1, dense=dense)
    few = own[long & ~recurs]
    again = few.similar_in(quiet, limits.alike_share)
    rare = again < limits.min_steps_share * len(steps)  # else torch's own: of the user's it recurs
    yield _once(few[rare | (again == 1)], idle, back=bool((again[rare] > 1).any()))


def _groups(
    long: CallsAfterCpuGaps, short: CallsAfterCpuGaps, steps: Steps, limits: Limits
) -> Iterator[tuple[str | None, CallsAfterCpuGaps]]:
    """(line, its stretches): the long ones by line; the short ones together, where they take much of the steps."""
    for line, found in long.by(long.line):
        yield line, found if line else found.main_places(_MINOR)
    if short.total_ns >= limits.python_bound_share * (steps.cpu_end_ns[-1] - steps.cpu_start_ns[0]):
        line, spent = next(iter(short.line.sums(short.dur_ns).items()), (None, 0))
        yield line if 2 * spent > short.total_ns else None, short.main_places(_MINOR)


def _hits(found: CallsAfterCpuGaps, lost: LostTime, line: str | None, *, sure: bool, dense: bool) -> Hits:
    said, advice, evidence, alone = told(found, line)
    return Hits(
        occurrences=found,
        named_by=line,
        lost=lost,
        fix=ShrinkGaps(found.start_ns, found.end_ns),
        message=said + (_DENSE if dense else ""),
        advice=advice,
        confidence=Confidence.LOW if dense else Confidence.HIGH if alone and sure else Confidence.MEDIUM,
        evidence=evidence,
        related=(found.before,),
    )


def _once(found: CallsAfterCpuGaps, idle: IdleTime, *, back: bool) -> Hits:
    most = " at most" if len(found) > 1 else ""
    where = "in {lines}" if found.line.there.any() else "{places}"
    return Hits(
        occurrences=found,
        cause="once",
        lost=LostTime.idle_from(idle, found.start_ns, found.end_ns),
        message=f"{{in_steps}}{' ({times})' * (len(found) > 1)}, no op runs for{most} {{largest}}, {where}; "
        + ("this pause recurs in few steps only" if back else "this pause does not recur in this recording"),
        advice="Record more steps before you change anything, to see whether the pause comes back.",
        evidence=evidence_of(found),
        related=(found.before,),
        info=True,
    )


def _recurs(quiet: CallsAfterCpuGaps, steps: Steps, limits: Limits) -> Mask:
    """At the same place in half of the steps; or a pause, wherever it falls, in several."""
    often = quiet.in_steps(quiet.place) >= limits.min_steps_share * len(steps)
    pause = quiet.dur_ns >= limits.min_pause_ns
    return np.asarray(often | (pause & (len(distinct(quiet.step[pause])) > 1)))
