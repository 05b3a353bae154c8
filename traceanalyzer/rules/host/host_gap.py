"""The CPU runs code without ops while the GPU waits."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, median
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.units import format_ns
from traceanalyzer.regions.regions import DropRegion
from traceanalyzer.regions.responsible import Leading
from traceanalyzer.replay.edits import ShrinkGaps
from traceanalyzer.rule import Claims, Hits, IdleTime, LostTime, rule
from traceanalyzer.rule.advice import TORCH_CODE_ADVICE, library_advice, library_caller, own_code_advice
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rule.idioms import idiom_of
from traceanalyzer.rule.region_hits import with_region
from traceanalyzer.timeline.steps import Steps, between_marks
from traceanalyzer.timeline.synchronisation import SyncCalls

# Of a stretch and of the function's call, that lie in one another for it to be the call; a choice.
_WHOLE = 0.8
# Minimum share of the time for one function to name the pause; chosen.
_MOST = 0.5
_LINE = (
    "Move this code out of the loop, run it rarely, or run it in another process. A thread of the same "
    "process still competes for the GIL."
)
_SPREAD = (
    "The time is spread over many calls: move what need not run in every step out of the loop. "
    "{torch.compile} or a CUDA graph removes most of the rest."
)
_UNKNOWN = (
    "Pass with_stack=True when you record: the report then names the line. If it names none, the pause is garbage "
    "collection: call gc.freeze() after set-up and gc.disable() before the loop, and gc.collect() every N steps."
)
_SCHEDULE = (
    "Prepare the next batch, and handle the tokens of the last one, while the GPU works (asynchronous scheduling: "
    "--async-scheduling of vLLM, the overlap schedule of SGLang)."
)
_CODE = "; this is Python or garbage collection (only stacks show which)"
_DENSE = "; without recorded stacks this would be far shorter"
# Share of the time below which a place is not reported. The message names three.
_MINOR = 0.1


class Limits:
    min_gap_ns: int = 100_000
    """a recurring pause is reported from this length on (with recorded stacks: from twice this length);
    pauses caused by torch's own Python code are shorter (H200)"""
    python_bound_share: float = 0.3
    """recurring pauses shorter than min_gap_ns are reported, too, if together they take at least this share
    of the steps' time"""
    min_torch_ns: int = 1_000_000
    """pauses in the Python code of torch itself are ignored if they are shorter than this; the end of
    backward takes 0.2 to 0.5 ms, and so does zero_grad (H200 host)"""
    min_cost_share: float = 0.02
    """reported only if the pauses, and the GPU's idle time during them, take at least this share of a normal
    step on average; in healthy traces, random variation stays below this share (measured on H200)"""
    min_pause_ns: int = 1_000_000
    """pauses of at least this length are also recurring if they come at different places, but in several
    steps; garbage collection of 100,000 objects takes 1 ms"""
    min_steps_share: float = 0.5
    """a pause is recurring if at least this share of the steps has a pause at the same place; chosen"""
    min_steps: int = 3
    """with fewer steps than this, the rule cannot know which steps are normal, and min_calls applies"""
    min_calls: int = 3
    """with fewer than min_steps steps: a pause is a cold start, and is not reported, if it comes before the
    first of at least this many calls of an op; the op's later calls must come without such a pause"""
    dense_call_ns: int = 5_000
    """confidence is low if the user's Python calls in the pauses take less than this time on average;
    recording the stacks of so short calls makes the pauses longer; code with calls of 2.8 µs took 1.2 ms
    without stacks and 4.1 ms with stacks (measured on H200)"""


@rule(since="0.1", claims=Claims.GENERAL, limits=Limits, causes=("once",))
def host_gap(
    quiet: CallsAfterCpuGaps, idle: IdleTime, steps: Steps, syncs: SyncCalls, leading: Leading | None, limits: Limits
) -> Iterator[Hits]:
    """Between ops the CPU runs something else, and the GPU waits.

    What it looks for: pauses in which the threads that launch work run neither ops nor runtime calls, while
    the GPU is idle.
    Typical: Python code, garbage collection, logging, numpy.
    Why it costs: during a pause no work is launched.
    Bad: a metric computed in Python between two layers; gc.collect() in every step. Good: the metric only
    every 100 steps, or in another process; gc.disable() in the loop and gc.collect() every 1,000 steps.
    Moving the code to another thread does not help: only one thread of a process runs Python at a time.
    How sure: pauses and idle time are measured. With recorded stacks, the finding names the user's function that takes
    most of the pauses. The recording of stacks slows down code with many short calls. In such code confidence is low.
    When it is wrong: an extension launches work without torch's dispatcher, so the trace has no op for it.
    Source: measured on an H200 with torch 2.11.
    """
    idle = idle.for_launches()
    members = quiet[quiet.is_users(limits.min_torch_ns)]
    if len(steps) == 1:  # nothing comes after the end of the recording
        members = members[~np.isin(members.rows, syncs.row[syncs.profiler])]
    if len(steps) < limits.min_steps:
        members = members[~members.before_first_calls(limits.min_calls)]
    long = members.dur_ns >= limits.min_gap_ns * (2 if quiet.events.user_code.recorded else 1)
    frequent = members.in_steps(members.place) >= limits.min_steps_share * len(steps)
    pause = members.dur_ns >= limits.min_pause_ns
    recurs = frequent | (pause & (len(distinct(members.step[pause])) > 1))
    least_ns = limits.min_cost_share * median(steps.durations_ns()) * len(steps)
    for line, pauses in _pauses_by_line(members[long & recurs], members[~long & recurs], steps, limits):
        if pauses.total_ns < least_ns:
            continue
        if intervals.length(LostTime.idle_within(idle, pauses.start_ns, pauses.end_ns).merged()) >= least_ns:
            lost = LostTime.idle_from(idle, pauses.start_ns, pauses.end_ns)
            dense = pauses.user_calls() * limits.dense_call_ns > pauses.total_ns
            yield _hits(pauses, lost, line, steps, leading, dense=dense)
    yield _single_pause_hits(members[long & ~recurs], idle)


def _pauses_by_line(
    long: CallsAfterCpuGaps, short: CallsAfterCpuGaps, steps: Steps, limits: Limits
) -> Iterator[tuple[str | None, CallsAfterCpuGaps]]:
    """(line, its pauses): long pauses by line, short ones together if they take much of the steps."""
    for line, pauses in long.by(long.line):
        yield line, pauses if line else pauses.main_places(_MINOR)
    if short.total_ns >= limits.python_bound_share * (steps.cpu_end_ns[-1] - steps.cpu_start_ns[0]):
        line, spent = next(iter(short.line.sums(short.dur_ns).items()), (None, 0))
        yield line if 2 * spent > short.total_ns else None, short.main_places(_MINOR)


def _hits(
    pauses: CallsAfterCpuGaps, lost: LostTime, line: str | None, steps: Steps, leading: Leading | None, *, dense: bool
) -> Hits:
    text, advice, evidence, single = describe_pauses(pauses, line)
    text += _DENSE if dense else ""
    between = between_marks(steps, pauses.events.nesting)
    between_ns = int(intervals.covered(between, pauses.start_ns, pauses.end_ns).sum())
    if between_ns >= _MOST * pauses.total_ns:
        text += "; {between} a step of this lies between two iterations of the server"
        advice = f"{_SCHEDULE} {advice}"
        evidence |= {"between_ns": between_ns // len(steps)}
    sure = single and len(steps) > 1
    hits = Hits(
        occurrences=pauses,
        named_by=line,
        lost=lost,
        fix=ShrinkGaps(pauses.start_ns, pauses.end_ns),
        fault_key="stalled-thread",
        message=text,
        advice=advice,
        confidence=Confidence.LOW if dense else Confidence.HIGH if sure else Confidence.MEDIUM,
        evidence=evidence,
        related=(pauses.before,),
    )
    hits = hits if leading is None else with_region(hits, leading.named(line))
    built_in = evidence.get("built_in")
    if built_in is None or idiom_of("calls", [built_in]) is None:
        return hits
    # The remedy replaces this call; at most all of the function goes.
    calls = pauses.calls_of(built_in)
    most_part = pauses.total_ns / max(intervals.length(calls), 1)
    return replace(hits, fix=DropRegion(*calls, stall=True, most_part=most_part))


def _single_pause_hits(pauses: CallsAfterCpuGaps, idle: IdleTime) -> Hits:
    most = " at most" if len(pauses) > 1 else ""
    where = "in {lines}" if pauses.line.there.any() else "{places}"
    return Hits(
        occurrences=pauses,
        cause="once",
        lost=LostTime.idle_from(idle, pauses.start_ns, pauses.end_ns),
        message=f"{{in_steps}}{' ({times})' * (len(pauses) > 1)}, no op runs for{most} {{largest}}, {where}; "
        "this pause does not recur in this recording",
        advice="Record more steps before you change anything, to see whether the pause comes back.",
        evidence=evidence_of(pauses),
        related=(pauses.before,),
        info=True,
    )


def evidence_of(pauses: CallsAfterCpuGaps) -> dict[str, Any]:
    return {
        "gap_ns": int(median(pauses.dur_ns)) if len(pauses) else 0,
        "largest_ns": int(pauses.dur_ns.max(initial=0)),
        "places": {_between_text(place): ns for place, ns in pauses.place.sums(pauses.dur_ns).items()},
        "lines": pauses.line.sums(pauses.dur_ns),
    }


def _between_text(place: str) -> str:
    """`between aten::mm and aten::add`, `between two calls of aten::mm`."""
    before, _, after = place.partition(" and ")
    return f"between two calls of {before}" if before == after else f"between {place}"


def describe_pauses(pauses: CallsAfterCpuGaps, line: str | None) -> tuple[str, str, dict[str, Any], bool]:
    """(message, advice, evidence, True if each pause is one call of the line's function); no line without stacks."""
    evidence = evidence_of(pauses) | {"functions": pauses.functions() if line else {}}
    calls_ns = pauses.calls_ns(line, _WHOLE) if line else np.empty(0, np.int64)
    if single := len(calls_ns) > 0:
        evidence |= {"gap_ns": int(median(calls_ns)), "largest_ns": int(calls_ns.max())}
    several = len(pauses) > 1
    alike = format_ns(evidence["gap_ns"]) == format_ns(evidence["largest_ns"])
    if single:
        spread = " each time" + " (median; at most {largest})" * (not alike)
        text = "{by} runs {times_a_step} and takes {gap}" + spread * several
    elif several:
        text = "long pauses without ops ({times_a_step}) take {pauses_a_step}, at most {largest} each"
        evidence |= {"pauses_ns": pauses.total_ns}
    else:
        text = "a long pause without ops takes {gap}, {times_a_step}"
    caller = library_caller(pauses, line) if line else None
    evidence |= {"caller": caller} if caller else {}
    if line is None or caller is None:
        advice = pause_advice(pauses, evidence, single=single)
    else:
        advice = library_advice(pauses, line, caller)
    if torchs := pauses.main_one(pauses.torchs, _MOST):
        return text + f", most of this time in {torchs}", TORCH_CODE_ADVICE, evidence, False
    if line and not single and pauses.within_ns(line) < _WHOLE * pauses.total_ns:
        text += "; more than half of this time is within {by}"
    else:
        text += place_text(evidence, line, single=single)
    if built_in := pauses.main_one(pauses.built_in, _MOST):
        inner_ns = int(median(intervals.covered(pauses.calls_of(built_in), pauses.start_ns, pauses.end_ns)))
        evidence |= {"built_in": built_in, "inner_ns": inner_ns}
        text += "; {built_in} takes {inner} of it" if single else ", mostly in the call of {built_in}"
        # The table of idioms has the remedy for this very call.
        advice = "" if idiom_of("calls", [built_in]) else advice
    return text, advice, evidence, single


def place_text(evidence: Mapping[str, Any], line: str | None, *, single: bool) -> str:
    inner = evidence["functions"]
    if not line:
        places = evidence["places"].values()
        mostly = "mostly" if 2 * max(places, default=0) > sum(places) else "partly"
        where = f"; {mostly} {{places}}" if len(evidence["places"]) > 1 else ", {places}"
        return ", in {lines}" if evidence["lines"] else where + _CODE
    other = next(iter(inner), line) != line
    if single:
        return ", with most of that time in {functions}" if other else ""
    return ", within {by}" + (": {functions}" if other else "")


def pause_advice(pauses: CallsAfterCpuGaps, evidence: Mapping[str, Any], *, single: bool) -> str:
    """Advice for one function, for several functions, or for unknown code."""
    if not evidence["lines"]:
        return _UNKNOWN
    inner = evidence["functions"]
    function, most_ns = next(iter(inner.items()), (None, 0))
    if function is not None and most_ns >= _MOST * sum(inner.values()):
        return "" if idiom_of("calls", [function]) else own_code_advice(pauses, function) or _LINE
    return _LINE if single else _SPREAD
