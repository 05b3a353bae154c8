"""Delays that the recorder measured while no profiler ran, and that the trace hides or distorts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.records import dataclass
from traceanalyzer.replay.edits import DropSpans, FetchInTime, ShrinkGaps
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels, usual_at_place
from traceanalyzer.timeline.unprofiled import FETCH_NS, TimedSteps, Unprofiled

_CAUSES = (
    "garbage-collection",
    "competing-thread",
    "other-process",
    "late-batches",
    "alternating-steps",
    "periodic-steps",
)
_MEASURED = "{measured} of the time without the profiler"


@dataclass(frozen=True, slots=True)
class Limits:
    min_measured_share: float = limit(
        0.05,
        "a delay is reported if it takes at least this share of the time without the profiler, before and "
        "after the recorded steps; chosen: on six recordings of healthy programs on an H200 none did",
    )
    min_lock_ns: int = limit(
        1_000_000,
        "a thread competes for the interpreter's lock if another thread waits this long for it; without a "
        "competitor it takes 0.07 ms, with one that computes 5 ms (H200 host)",
    )
    min_thread_share: float = limit(
        0.3, "a thread competes for the interpreter's lock if it computes for this share of the time; chosen"
    )
    min_drained_share: float = limit(
        0.5,
        "the interpreter's lock delays the GPU if the GPU has nothing left to do at the end of this share "
        "of the steps; chosen",
    )
    min_busy_share: float = limit(
        0.9,
        "another process may be on the GPU if the driver reports the GPU as busy for this share of the time",
    )
    min_slow_times: float = limit(
        1.5, "a kernel is delayed by another process if it takes this many times its usual duration; chosen"
    )
    min_kernels: int = limit(
        3, "another process delays kernels of any kind: at least this many different ones; chosen"
    )
    min_pause_ns: int = limit(
        1_000_000, "shorter pauses of the CPU are no garbage collection; one of 100,000 objects takes 1 ms"
    )
    long_times: float = limit(
        1.5, "steps are uneven if the long ones take at least this many times as long as the others; chosen"
    )
    max_spread_share: float = limit(
        0.25, "steps are of two kinds if the times of each kind differ by at most this share; chosen"
    )


@rule(
    since="0.3",
    claims=Claims.EVENT,
    specificity=2,
    min_share=0.0,
    limits=Limits,
    causes=_CAUSES,
)
def unprofiled_delay(
    unprofiled: Unprofiled,
    work: Work,
    idle: IdleTime,
    pauses: CallsAfterCpuGaps,
    executions: RepeatedKernels,
    calls: Calls,
    limits: Limits,
) -> Iterator[Hits]:
    """Steps without the profiler lose time for a reason that the trace does not show.

    What it looks for: measurements of `traceanalyzer record` outside the profiled steps. They are garbage
    collections, waits for batches, other threads of Python, other processes on the GPU, and times of steps.
    Why it costs: the profiler makes steps longer, so workers keep up that are too slow without it. A trace of
    six steps does not show what happens every tenth step, and no event in it is a garbage collection.
    Bad: a DataLoader whose two workers need 40 ms for a batch, in a step of 30 ms. Good: more workers, so
    that a batch is ready at the end of each step.
    How sure: each share is measured while no profiler runs. The process on the GPU is known from the driver,
    or else from kernels of all kinds that take longer at times while the driver reports a busy GPU.
    When it is wrong: the timed steps are not typical, such as those after a change of the data. Uneven steps
    are normal where batches differ in size, and where the program evaluates or saves.
    Source: six programs with these faults on an H200, torch 2.11.
    """
    host = [
        *_garbage_collections(unprofiled, idle, pauses, limits),
        *_competing_threads(unprofiled, idle, pauses, limits),
        *_late_batches(unprofiled, work, calls, limits),
    ]
    yield from host
    others = [*_other_processes(unprofiled, work, executions, limits)]
    yield from others
    if not host and not others:
        yield from _uneven_steps(unprofiled, work, limits)


def _garbage_collections(
    unprofiled: Unprofiled, idle: IdleTime, pauses: CallsAfterCpuGaps, limits: Limits
) -> Iterator[Hits]:
    share = unprofiled.least("collecting_share")
    long = pauses[pauses.dur_ns >= limits.min_pause_ns]
    if share < limits.min_measured_share or not len(long):
        return
    part = max(unprofiled.parts, key=lambda part: part.collecting_share)
    yield Hits(
        occurrences=long,
        cause="garbage-collection",
        lost=LostTime.idle_from(idle.for_launches(), long.start_ns, long.end_ns),
        fix=ShrinkGaps(long.start_ns, long.end_ns),
        message="Python's garbage collector takes "
        + _MEASURED
        + ": {collections} collections, {full} of them full, in "
        "{timed_steps} steps",
        advice="Call gc.freeze() after set-up and gc.disable() before the loop, and gc.collect() every N steps. Keep "
        "fewer Python objects from step to step: tensors or arrays instead of lists of records.",
        evidence={
            "measured_share": share,
            "collections": part.collections,
            "full": part.full,
            "timed_steps": len(part.step_ms),
        },
        measured_share=share,
    )


def _competing_threads(
    unprofiled: Unprofiled, idle: IdleTime, pauses: CallsAfterCpuGaps, limits: Limits
) -> Iterator[Hits]:
    lock_ns = round(unprofiled.least("lock_ms") * 1e6)
    part = unprofiled.parts[0]
    busiest = max(part.threads, key=lambda thread: thread.cpu_share, default=None)
    if busiest is None or busiest.cpu_share < limits.min_thread_share or lock_ns < limits.min_lock_ns:
        return
    if unprofiled.least("drained_share") < limits.min_drained_share or part.cpu_share is None:
        return
    share = min(busiest.cpu_share, 1.0 - min(part.cpu_share, 1.0))
    stretches = idle.for_launches()
    if share < limits.min_measured_share or not len(stretches):
        return
    yield Hits(
        occurrences=stretches,
        cause="competing-thread",
        lost=LostTime.all_of(stretches),
        fix=ShrinkGaps(pauses.start_ns, pauses.end_ns),
        message="the thread {name} computes for {thread} of the time and holds the interpreter's lock (GIL): "
        "the thread of the steps waits {lock} each time it needs the lock, and runs for {own} of the time",
        advice="Do this work in another process, or in code that releases the GIL. To test it, run without the thread.",
        evidence={
            "measured_share": share,
            "name": busiest.name,
            "thread_share": busiest.cpu_share,
            "lock_ns": lock_ns,
            "own_share": part.cpu_share,
        },
        measured_share=share,
    )


def _late_batches(unprofiled: Unprofiled, work: Work, calls: Calls, limits: Limits) -> Iterator[Hits]:
    if unprofiled.least("waiting_share") < limits.min_measured_share:
        return
    share, part = unprofiled.waiting_share, unprofiled.parts[0]
    loads = calls[calls.name.matches(r"_MultiProcessingDataLoaderIter\.__next__")]
    waits = loads[loads.dur_ns > FETCH_NS]
    yield Hits(
        occurrences=loads if len(loads) else _first_of_each_step(work),
        cause="late-batches",
        lost=LostTime.none(),
        fix=(FetchInTime(), DropSpans(waits.start_ns, waits.end_ns, leaving_ns=FETCH_NS)),
        message="steps wait for batches during "
        + _MEASURED
        + " ({late} of {timed_steps} steps), and the GPU is idle "
        "meanwhile; under the profiler steps are longer, and the {workers} workers keep up",
        advice="The workers are too slow: raise num_workers towards the number of CPU cores, make the transforms "
        "cheaper or cache their results. Until they keep up, no other change makes steps shorter.",
        evidence={
            "measured_share": share,
            "late": part.late_batches,
            "timed_steps": len(part.step_ms),
            "workers": part.workers,
        },
        measured_share=share,
    )


def _other_processes(
    unprofiled: Unprofiled, work: Work, executions: RepeatedKernels, limits: Limits
) -> Iterator[Hits]:
    """From the driver's list, or from delayed kernels where a container hides it."""
    listed = {pid: use for part in unprofiled.parts for pid, use in part.others.items() if use != 0.0}
    busy = unprofiled.least("gpu_busy_share") >= limits.min_busy_share
    if not listed and not busy:
        return
    usual = usual_at_place(executions, 0.5)
    delayed = executions.dur_ns >= limits.min_slow_times * usual
    names = distinct(executions.group[delayed])
    if not listed and len(names) < limits.min_kernels:
        return
    share = 1.0 - _usual_work_ns(executions, usual) / unprofiled.step_ns
    if share < limits.min_measured_share or not delayed.any():
        return
    slow = work[executions.entry[delayed]]
    known = next(iter(listed.items()), None)
    yield Hits(
        **reduce_to(slow, np.minimum(usual[delayed], slow.dur_ns)),
        cause="other-process",
        message=(
            "process {pid} of another program uses the GPU"
            if known
            else "the GPU is shared with another process: the driver reports it as busy, but this program keeps it "
            "busy for {own} of the step only"
        )
        + ", and {kernels} kernels of this program take up to {worst} instead of {usual}",
        advice="Look for other processes on the GPU: nvidia-smi on the host, as a container does not show them.",
        confidence=Confidence.HIGH if known else Confidence.MEDIUM,
        evidence={
            "measured_share": share,
            "own_share": 1.0 - share,
            "pid": str(known[0]) if known else None,
            "kernels": len(names),
            "worst_ns": int(slow.dur_ns.max()),
            "usual_ns": int(usual[delayed][int(slow.dur_ns.argmax())]),
        },
        measured_share=share,
    )


def _usual_work_ns(executions: RepeatedKernels, usual: Floats) -> float:
    """GPU time of a step in which no kernel is delayed, ns."""
    steps = max(len(distinct(executions.step)), 1)
    return float(usual.sum()) / steps


def _uneven_steps(unprofiled: Unprofiled, work: Work, limits: Limits) -> Iterator[Hits]:
    patterns = [_pattern(part, limits) for part in unprofiled.parts]
    if not all(patterns) or len({pattern["cause"] for pattern in patterns if pattern}) > 1:
        return
    pattern = patterns[0]
    assert pattern is not None
    share = min(found["measured_share"] for found in patterns if found)
    if share < limits.min_measured_share:
        return
    cause = pattern.pop("cause")
    yield Hits(
        occurrences=_first_of_each_step(work),
        cause=cause,
        lost=LostTime.none(),
        message="{long_steps} of {timed_steps} steps without the profiler take {long} instead of {short}"
        + (
            ", one in {period}: an evaluation, a checkpoint or logging takes {measured} of the time"
            if cause == "periodic-steps"
            else ", in turn with the others: the batches differ in size"
        ),
        advice="Evaluate, save and log less often, or in another process; time steps without them to compare runs."
        if cause == "periodic-steps"
        else "Sort the data into batches of equal work (buckets of lengths, a token budget), so that ranks do not wait "
        "for each other and small batches fill the GPU.",
        evidence={**pattern, "measured_share": share},
        measured_share=share,
        max_severity=Severity.MEDIUM,
    )


def _pattern(part: TimedSteps, limits: Limits) -> dict[str, Any] | None:
    """Long and short steps that follow each other regularly; None where they do not."""
    times = part.step_ms
    if len(times) < 6:
        return None
    is_long = times > (times.min() + times.max()) / 2
    short, long = times[~is_long], times[is_long]
    if float(np.median(long)) < limits.long_times * float(np.median(short)) or len(long) < 2:
        return None
    if max(_spread(short), _spread(long)) > limits.max_spread_share:
        return None
    distances = np.diff(np.flatnonzero(is_long))
    period = int(np.median(distances))
    if np.abs(distances - period).max() > 1 or period < 2:
        return None
    lost = float(long.sum() - len(long) * np.median(short))
    return {
        "cause": "alternating-steps" if period <= 3 else "periodic-steps",
        "measured_share": lost / float(times.sum()),
        "long_steps": len(long),
        "timed_steps": len(times),
        "period": period,
        "long_ns": round(float(np.median(long)) * 1e6),
        "short_ns": round(float(np.median(short)) * 1e6),
    }


def _spread(times: Floats) -> float:
    """10th to 90th percentile, as a share of the median."""
    low, high = np.quantile(times, (0.1, 0.9))
    return float((high - low) / np.median(times))


def _first_of_each_step(work: Work) -> Work:
    """The first piece of work of each step; of unmarked steps the first of all."""
    inside: Rows = np.flatnonzero(work.step >= 0)
    _, first = np.unique(work.step[inside], return_index=True)
    return work[inside[first] if len(inside) else np.arange(min(len(work), 1))]
