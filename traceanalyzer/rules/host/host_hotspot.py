"""CPU work while the GPU waits: ops on the CPU, or Python code."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, median
from traceanalyzer.regions.responsible import Leading
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, rule
from traceanalyzer.rule.advice import TORCH_CODE_ADVICE, library_advice, library_caller
from traceanalyzer.rule.claims import REGION
from traceanalyzer.rule.cpu_gaps import HostCalls
from traceanalyzer.rule.region_hits import region_hits, with_region
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.timeline.steps import Steps

# Share of the time with an idle GPU that the message calls all of it.
_WHOLE = 0.95
# Minimum share of the time for a function of torch to name it; chosen.
_MOST = 0.5
# CPU time of an op that launches a kernel instead, without the profiler; 5 to 12 us, H200 host.
_LAUNCH_NS = 8_000.0
# Causes of idle time while the CPU is busy, in the accounting's table.
_WORKING = ("host-work", "host-code", "python", "dispatching", "launch-latency", "long-call")
_ONE_STEP = "Only one step is recorded: check whether this recurs. "
_ELSEWHERE = (
    "Take it out of the loop, run it on the device, or do it ahead in another process (a thread of this one "
    "still competes for the GIL)."
)


class Limits:
    min_stretch_ns: int = 100_000
    """shorter pauses without a launch are ignored (with recorded stacks: pauses shorter than twice this
    time); without any other work, the CPU needs up to tens of µs from one launch to the next"""
    min_cost_share: float = 0.02
    """reported only if the GPU is idle during the work for at least this share of a normal step; a smaller
    share may be random variation (measured on H200)"""
    min_steps_share: float = 0.5
    """work is regarded as recurring if at least this share of the steps has it; chosen"""
    naming_share: float = 0.5
    """the finding names an op if the op takes at least this share of the pauses; chosen"""
    only_op_share: float = 0.8
    """the finding names an op, and not the user's function, if the op takes at least this share of the time
    of all ops in the function; chosen"""


@rule(since="0.1", claims=Claims.HOST_CATCH_ALL, min_share=0.02, limits=Limits, causes=(REGION,))
def host_hotspot(
    calls: Calls, stretches: HostCalls, idle: IdleTime, steps: Steps, leading: Leading | None, limits: Limits
) -> Iterator[Hits]:
    """The CPU computes something, such as numpy or ops on CPU tensors, while the GPU waits.

    What it looks for: pauses in which the CPU launches nothing. The finding names the CPU op that takes most
    of the pause. If there is no such op, it names the user's function that runs then. A function or an
    optimizer's step that takes at least 10 % of the step without the profiler has a finding of its own.
    Typical: random numbers or indexing on CPU tensors, numpy, tokenising, decoding, JSON, sorting.
    Why it costs: the GPU is idle until the next launch.
    Bad: torch.randn(...).to("cuda"). Good: torch.randn(..., device="cuda").
    Saving: without the function, or without its ops where these compute: what is between them stays.
    How sure: the CPU time and the GPU's idle time are measured. Time in library code counts for the user's
    function that calls the library. Ops that compute nothing, such as aten::view, are not named.
    When it is wrong: the work happens only once. One recorded step cannot show whether the work recurs.
    Source: measured on an H200 with torch 2.11.
    """
    if leading is not None:
        working = idle[idle.cause.one_of(*_WORKING)]
        for hits, _ in region_hits(working, leading, limits.min_cost_share, ("optimizer",)):
            yield hits
    into, leaving = stretches.by_autograd
    least_ns = limits.min_stretch_ns * (2 if stretches.events.user_code.recorded else 1)
    pauses = stretches[(stretches.dur_ns >= least_ns) & ~into & ~leaving]
    if not len(pauses):
        return
    by = pauses.subject(limits.naming_share, limits.only_op_share)
    frequent = by.there & ~by.meets(is_view) & (pauses.in_steps(by) >= limits.min_steps_share * len(steps))
    worth_ns = limits.min_cost_share * median(steps.durations_ns()) * len(steps)
    idle = idle.for_launches()
    charged = idle.charged_to("host-work").call.distinct()
    for key, where in pauses[frequent].by(by[frequent]):
        ops, _ = where.ops()
        named = ops[ops.name.one_of(key)]
        held: Calls = where
        if len(named) and named.total_ns >= limits.naming_share * ops.total_ns:  # else it is the longest of several
            # with calls of this name before the first launch, to which idle time is charged
            rows = np.append(named.rows, charged.rows[charged.name.one_of(key)])
            held = Calls(calls.events, distinct(rows))
        lost = LostTime.idle_within(idle, held.start_ns, held.end_ns)
        if intervals.length(lost.merged()) >= worth_ns:
            computes = ops.total_ns >= limits.naming_share * where.total_ns
            parts = ops.name.sums(ops.dur_ns) if held is where and computes else {}
            # What Python and libraries do between ops stays where those run on the device.
            goes = ops if parts else held
            fix = DropSpans(goes.start_ns, goes.end_ns, leaving_ns=_LAUNCH_NS if parts else 0.0)
            hits = _hits(held, lost, fix, key, parts, len(steps) > 1)
            yield hits if leading is None else with_region(hits, leading.named(key))


def _hits(calls: Calls, lost: LostTime, fix: DropSpans, key: str, parts: dict[str, int], again: bool) -> Hits:
    """Hits for an op or a function; `parts` is the ns of ops in a function that computes, else empty."""
    is_op = not isinstance(calls, HostCalls)
    computes = is_op or bool(parts)
    lines = calls.line.sums(calls.dur_ns) if is_op else {}
    torchs = calls.main_one(calls.torchs, _MOST) if isinstance(calls, HostCalls) and not computes else None
    once = not computes and not again
    times = " {host_a_step} ({times_a_step})" if len(calls) > 1 else " {host}, once"
    if key in parts:
        subject = "{ops} compute on the CPU for"
    elif computes:
        subject = "{by} computes on the CPU" + ", with {ops}," * bool(parts) + " for"
    else:
        subject = "between ops, the Python code of {by} takes"
    all_idle = intervals.length(lost.merged()) >= _WHOLE * calls.total_ns
    return Hits(
        occurrences=calls,
        named_by=key,
        lost=lost,
        fix=fix,
        message=subject
        + times
        + (f", most of it in {torchs}" if torchs else "")
        + "{at_lines}; nothing is launched then, and the GPU is idle "
        + ("all this time" if all_idle else "for {per_step} of each step"),
        advice=_ONE_STEP * once + _advice(calls, key, parts, torchs),
        confidence=Confidence.HIGH if computes else Confidence.LOW if torchs else Confidence.MEDIUM,
        evidence={"host_ns": calls.total_ns, "longest_ns": int(calls.dur_ns.max()), "lines": lines}
        | ({"ops": parts} if parts else {}),
        info=once,
    )


def _advice(calls: Calls, key: str, parts: dict[str, int], torchs: str | None) -> str:
    if not isinstance(calls, HostCalls):
        return "Run it on the device: create the tensor there, or move it there before this op."
    if parts:
        return "Run it on the device: create its tensors there, or move them there first; or take it out of the loop."
    if torchs:
        return TORCH_CODE_ADVICE
    caller = library_caller(calls, key)
    return _ELSEWHERE if caller is None else library_advice(calls, key, caller)
