"""Events that the recording lost or left out."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.schema import NO_DEVICE_TIME
from traceanalyzer.model.trace import NULL_INT, Trace
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Work, rule
from traceanalyzer.timeline.device_work import EXPORT_FIRST, MIN_LOST, LostRecords
from traceanalyzer.timeline.steps import Steps


class Limits:
    max_lost_share: float = 0.01
    """reported if at least this share of launches or work is lost; none of 100 recordings, V100 to MI300, lost more"""
    min_lost_calls: int = MIN_LOST
    """fewer lost launches are not reported, because at the start and end of a recording a few launches lose
    their work"""
    max_tail_share: float = 0.05
    """reported if, at the end of the recording, launches without recorded work take more than this share of
    the recorded time; chosen"""
    max_early_share: float = 0.01
    """clocks disagree if more than this share of the work starts before its launch; in 37 traces no work
    started before its launch"""
    min_steps: int = 3
    """reported if there are fewer steps than this, because fewer do not show whether a cost recurs"""


_SHOWN = 8  # numbers of steps in a message
_FEWER = "Record fewer steps at a time, and check the free disk space."
# cause -> remedy
_ADVICE = {
    "no-device-times": EXPORT_FIRST[0].upper() + EXPORT_FIRST[1:] + ".",
    "no-device-records": "Stop other profilers (nsys, Nsight Compute, DCGM), allow profiling "
    "(NVreg_RestrictProfilingToAdminUsers=0), and check that the driver fits torch's CUDA.",
    "lost-work": _FEWER,
    "truncated-device-lane": _FEWER,
    "lost-launches": "Record all threads and the runtime's calls: ProfilerActivity.CPU from the process that launches.",
    "clock-error": "Do not trust delays that are shorter than this. torch 2.4 and later align the clocks better.",
    "damaged": "Export the trace again to a disk with free space; do not edit or cut it.",
    "no-warm-up": "Warm up: schedule(wait=1, warmup=3, active=5).",
    "few-steps": "Record at least 5 steps, with prof.step().",
    "left-out": "Pass {} when you record.",
}


@rule(since="0.1", claims=Claims.RECORDING, min_share=0.0, limits=Limits, causes=tuple(_ADVICE))
def trace_health(
    calls: Calls, work: Work | None, lost: LostRecords, trace: Trace, steps: Steps, limits: Limits
) -> Iterator[Hits]:
    """The recording is incomplete, or too short to judge by.

    What it looks for: launches without recorded work, or work without a recorded launch; damaged places in
    the file; work that starts before its launch; no warm-up; fewer than three steps; missing shapes or stacks.
    Why it costs: it costs no time, so the severity is always info. But the report cannot judge what is not
    recorded. The GPU may have been busy where the report shows it as idle.
    Bad: two profilers at once; a recording cut by a full disk. Good: schedule(wait=1, warmup=3, active=5),
    record_shapes=True, with_stack=True.
    How sure: every recorded event is checked.
    When it is wrong: a launch failed, so it started no work.
    Source: Kineto's documentation of CUPTI's buffers; torch.profiler's documentation of schedule().
    """
    if not len(calls):
        return
    untimed = trace.meta.counted.get(NO_DEVICE_TIME, 0)
    if work is None and untimed:
        yield _health_hits(
            _first(calls),
            "no-device-times",
            "all {untimed} GPU records have the time 0: they lost their times when another profiler started",
            untimed=untimed,
        )
    elif work is None and lost.launches:
        yield _health_hits(
            Calls(calls.events, lost.launch),
            "no-device-records",
            "{launches} launches, but no work of a device: CUPTI or roctracer could not record (permissions, another "
            "profiler, or the driver)",
            launches=lost.launches,
        )
    elif work is not None:
        yield from _of_lanes(calls, work, lost, steps, untimed, limits)
    yield from _of_all(_first(calls), trace, steps, limits, has_ops=bool(calls.is_op.any()))


def _health_hits(occurrences: Calls | Work, cause: str, message: str, **evidence: object) -> Hits:
    lost = LostTime.none()
    return Hits(occurrences, message, _ADVICE[cause], cause=cause, lost=lost, evidence=evidence, info=True)


def _first(calls: Calls) -> Calls:
    """The row that begins first, the longest of those: where to look when all of the recording is meant."""
    first = calls[calls.start_ns == calls.start_ns.min()]
    return first[np.lexsort((first.name.ranks(), -first.end_ns))[:1]]


def _of_lanes(
    calls: Calls, work: Work, lost: LostRecords, steps: Steps, untimed: int, limits: Limits
) -> Iterator[Hits]:
    """Launches without work, somewhere or from some instant on, work without launches, and clocks that disagree."""
    missing = Calls(calls.events, lost.launch)
    if len(missing) >= max(limits.min_lost_calls, limits.max_lost_share * lost.launches):
        cause = "lost-work"
        message = "{missing} of {launches} launches have no work in the trace"
        message += ", {untimed} of it without a time: left out" if untimed else ""
        message += _which(steps)
        if lost.tail_ns > limits.max_tail_share * steps.window_ns:
            cause = "truncated-device-lane"
            message = "the device lane ends {tail} before the last launch: {missing} launches have no work"
        counts = {"missing": len(missing), "launches": lost.launches, "tail_ns": lost.tail_ns, "untimed": untimed}
        yield _health_hits(missing, cause, message, **counts)
    if len(lost.entry) >= max(limits.min_lost_calls, limits.max_lost_share * len(work)) and lost.launches:
        rows = Work(work.events, lost.entry)
        message = "{missing} of {work} kernels and copies have no launch in the trace, so their ops are unknown"
        yield _health_hits(rows, "lost-launches", message, missing=len(rows), work=len(work))
    linked = work[work.delay_ns != NULL_INT]
    early = linked[linked.delay_ns < 0]
    if len(early) > limits.max_early_share * len(linked):
        message = (
            "{early} of {linked} kernels and copies start before their launch, by up to {worst}: the clocks of CPU and "
            "GPU disagree, so delays between CPU and GPU are wrong by up to this time"
        )
        counts = {"early": len(early), "linked": len(linked), "worst_ns": int(-early.delay_ns.min())}
        yield _health_hits(early, "clock-error", message, **counts)


def _which(steps: Steps) -> str:
    """The end of a sentence: which steps lost work, and what follows from that."""
    numbers = steps.number[steps.damaged].tolist()
    if not numbers:
        return "; idle time after these launches may not be idle"
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
    which = f"steps {shown}" if len(numbers) > 1 else f"step {shown}"
    them = "them" if len(numbers) > 1 else "it"
    return f"; {which} lost work: idle time there may not be idle, and means leave {them} out"


def _of_all(first: Calls, trace: Trace, steps: Steps, limits: Limits, *, has_ops: bool) -> Iterator[Hits]:
    """What is true of the recording as a whole: damage, too few steps, what was not recorded."""
    places = [damage.message for damage in trace.meta.damage]
    places += [f"{count:,} x {kind}" for kind, count in trace.meta.anomalies.items()]
    if places:
        yield _health_hits(first, "damaged", "parts of the file could not be read: {places}", places=places)
    if steps.kind == "ProfilerStep" and steps.number[0] == 0:
        message = "recording began with the very first step: it contains one-time costs"
        yield _health_hits(first, "no-warm-up", message)
    begin, end = steps.in_use
    if end - begin < limits.min_steps and not steps.asked:
        message = "{steps_found}, which is too few to tell a recurring cost from a one-time cost"
        found = f"{end - begin} step{'s' * (end - begin > 1)} with work" if steps.marked else "no step marks"
        yield _health_hits(first, "few-steps", message, steps_found=found)
    shown = {
        "shapes": ("input shapes, which show how far each op is from its bound", "record_shapes=True"),
        "stacks": ("Python stacks, which name the user's line of each finding", "with_stack=True"),
    }
    absent = [shown[name] for name in shown if not trace.meta.capabilities.get(name)]
    if absent and has_ops:
        missing, options = (
            joint.join(part) for joint, part in zip((", and ", " and "), zip(*absent, strict=True), strict=True)
        )
        hits = _health_hits(first, "left-out", "not recorded: {missing}", missing=missing)
        yield replace(hits, advice=hits.advice.format(options))
