"""Delays that the recorder measured while no profiler ran, and that the trace hides or distorts."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.replay.edits import DropSpans, FetchInTime, ShrinkGaps
from traceanalyzer.rule import MEASURED_SHARE, Calls, Claims, Hits, IdleTime, LostTime, Work, reduce_to, rule
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels, usual_at_place
from traceanalyzer.timeline.unprofiled import FETCH_NS, Unprofiled

_MEASURED = "{measured} of the time without the profiler"
_ALTERNATE = 3  # at most so many steps from a long one to the next alternate: more are periodic


class Limits:
    min_measured_share: float = 0.05
    """a delay is reported if it takes at least this share of the time without the profiler, before and after
    the recorded steps; chosen: on six recordings of healthy programs on an H200 none did"""
    min_lock_ns: int = 1_000_000
    """a thread competes for the interpreter's lock if another thread waits this long for it; without a
    competitor it takes 0.07 ms, with one that computes 5 ms (H200 host)"""
    min_thread_share: float = 0.3
    """a thread competes for the interpreter's lock if it computes for this share of the time; chosen"""
    min_drained_share: float = 0.5
    """the interpreter's lock delays the GPU if the GPU has nothing left to do at the end of this share of the
    steps; chosen"""
    min_busy_share: float = 0.9
    """another process may be on the GPU if the driver reports the GPU as busy for this share of the time"""
    min_foreign_share: float = 0.25
    """and if this program's own work explains that but for this share; of 16 programs that had an H200 to themselves,
    the driver reported up to 0.18 more than their own work, since it counts short gaps as busy"""
    min_slow_times: float = 1.5
    """a kernel is delayed by another process if it takes this many times its usual duration; chosen"""
    min_kernels: int = 3
    """another process delays kernels of any kind: at least this many different ones; chosen"""
    min_pause_ns: int = 1_000_000
    """shorter pauses of the CPU are no garbage collection; one of 100,000 objects takes 1 ms"""
    long_times: float = 1.5
    """steps are uneven if the long ones take at least this many times as long as the others; chosen"""
    max_spread_share: float = 0.25
    """steps are of two kinds if the times of each kind differ by at most this share; chosen"""


@rule(
    since="0.3",
    claims=Claims.EVENT,
    specificity=2,
    min_share=0.0,
    limits=Limits,
    causes=(
        *("garbage-collection", "competing-thread", "other-process", "late-batches"),
        *("alternating-steps", "periodic-steps"),
    ),
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

    def much(*found: Hits | None) -> list[Hits]:
        return [hits for hits in found if hits and hits.evidence[MEASURED_SHARE] >= limits.min_measured_share]

    yield from much(
        _garbage_collections(unprofiled, idle, pauses, limits),
        _competing_thread(unprofiled, idle, pauses, limits),
        _late_batches(unprofiled, work, calls, limits),
        _other_process(unprofiled, work, executions, limits),
    ) or much(_uneven_steps(unprofiled, work, limits))


def _garbage_collections(
    unprofiled: Unprofiled, idle: IdleTime, pauses: CallsAfterCpuGaps, limits: Limits
) -> Hits | None:
    long = pauses[pauses.dur_ns >= limits.min_pause_ns]
    if not len(long):
        return None
    part = max(unprofiled.parts, key=lambda part: part.collecting_share)
    return Hits(
        occurrences=long,
        cause="garbage-collection",
        lost=LostTime.idle_from(idle.for_launches(), long.start_ns, long.end_ns),
        fix=ShrinkGaps(long.start_ns, long.end_ns),
        message=f"Python's garbage collector takes {_MEASURED}: {{collections}} collections, {{full}} of them full, "
        "in {timed_steps} steps",
        advice="Call gc.freeze() after set-up and gc.disable() before the loop, and gc.collect() every N steps. Keep "
        "fewer Python objects from step to step: tensors or arrays instead of lists of records.",
        evidence={
            MEASURED_SHARE: unprofiled.least("collecting_share"),
            "collections": part.collections,
            "full": part.full,
            "timed_steps": len(part.step_ms),
        },
    )


def _competing_thread(unprofiled: Unprofiled, idle: IdleTime, pauses: CallsAfterCpuGaps, limits: Limits) -> Hits | None:
    lock_ns, part = round(unprofiled.least("lock_ms") * 1e6), unprofiled.parts[0]
    busiest = max(part.threads, key=lambda thread: thread.cpu_share, default=None)
    if busiest is None or busiest.cpu_share < limits.min_thread_share or lock_ns < limits.min_lock_ns:
        return None
    stretches = idle.for_launches()
    drained = unprofiled.least("drained_share") >= limits.min_drained_share
    if not drained or part.cpu_share is None or not len(stretches):
        return None
    return Hits(
        occurrences=stretches,
        cause="competing-thread",
        fix=ShrinkGaps(pauses.start_ns, pauses.end_ns),
        message="the thread {name} computes for {thread} of the time and holds the interpreter's lock (GIL): "
        "the thread of the steps waits {lock} each time it needs the lock, and runs for {own} of the time",
        advice="Do this work in another process, or in code that releases the GIL. To test it, run without the thread.",
        evidence={
            MEASURED_SHARE: min(busiest.cpu_share, 1.0 - min(part.cpu_share, 1.0)),
            "name": busiest.name,
            "thread_share": busiest.cpu_share,
            "lock_ns": lock_ns,
            "own_share": part.cpu_share,
        },
    )


def _late_batches(unprofiled: Unprofiled, work: Work, calls: Calls, limits: Limits) -> Hits | None:
    if unprofiled.least("waiting_share") < limits.min_measured_share:
        return None
    loads = calls[calls.name.matches(r"_MultiProcessingDataLoaderIter\.__next__")]
    waits, part = loads[loads.dur_ns > FETCH_NS], unprofiled.parts[0]
    return Hits(
        occurrences=loads if len(loads) else _first_of_each_step(work),
        cause="late-batches",
        lost=LostTime.none(),
        fix=(FetchInTime(), DropSpans(waits.start_ns, waits.end_ns, leaving_ns=FETCH_NS)),
        message=f"steps wait for batches during {_MEASURED} ({{late}} of {{timed_steps}} steps), and the GPU is idle "
        "meanwhile; under the profiler steps are longer, and the {workers} workers keep up",
        advice="The workers are too slow: raise num_workers towards the number of CPU cores, make the transforms "
        "cheaper or cache their results. Until they keep up, no other change makes steps shorter.",
        evidence={
            MEASURED_SHARE: unprofiled.waiting_share,
            "late": part.late_batches,
            "timed_steps": len(part.step_ms),
            "workers": part.workers,
        },
    )


def _other_process(unprofiled: Unprofiled, work: Work, executions: RepeatedKernels, limits: Limits) -> Hits | None:
    """From the driver's list, or from delayed kernels where a container hides it."""
    listed = {pid for part in unprofiled.parts for pid, use in part.others.items() if use}
    pid = min(listed, default=None)
    usual = usual_at_place(executions, 0.5)
    delayed = executions.dur_ns >= limits.min_slow_times * usual
    names, slow = distinct(executions.group[delayed]), work[executions.entry[delayed]]
    own_share = usual.sum() / max(len(distinct(executions.step)), 1) / unprofiled.step_ns
    busy_share = unprofiled.least("gpu_busy_share")
    shared = busy_share >= max(limits.min_busy_share, own_share + limits.min_foreign_share)
    if not len(slow) or (pid is None and not (shared and len(names) >= limits.min_kernels)):
        return None
    return Hits(
        **reduce_to(slow, np.minimum(usual[delayed], slow.dur_ns)),
        cause="other-process",
        message=(
            "the GPU is shared with another process: the driver reports it as busy, but this program keeps it busy for "
            "{own} of the step only"
            if pid is None
            else "process {pid} of another program uses the GPU"
        )
        + ", and {kernels} kernels of this program take up to {worst} instead of {usual}",
        advice="Look for other processes on the GPU: nvidia-smi on the host, as a container does not show them.",
        confidence=Confidence.MEDIUM if pid is None else Confidence.HIGH,
        evidence={
            MEASURED_SHARE: (1.0 if pid else busy_share) - own_share,
            "own_share": own_share,
            "pid": None if pid is None else str(pid),
            "kernels": len(names),
            "worst_ns": int(slow.dur_ns.max()),
            "usual_ns": int(usual[delayed][int(slow.dur_ns.argmax())]),
        },
    )


def _uneven_steps(unprofiled: Unprofiled, work: Work, limits: Limits) -> Hits | None:
    found = [part.two_kinds(limits.long_times, limits.max_spread_share) for part in unprofiled.parts]
    patterns = [pattern for pattern in found if pattern is not None]
    alternate = {pattern.period <= _ALTERNATE for pattern in patterns}
    if len(patterns) < len(found) or len(alternate) > 1:
        return None
    pattern, every = patterns[0], not alternate.pop()
    return Hits(
        occurrences=_first_of_each_step(work),
        cause="periodic-steps" if every else "alternating-steps",
        lost=LostTime.none(),
        message="{long_steps} of {timed_steps} steps without the profiler take {long} instead of {short}"
        + (
            ", one in {period}: an evaluation, a checkpoint or logging takes {measured} of the time"
            if every
            else ", in turn with the others: the batches differ in size"
        ),
        advice="Evaluate, save and log less often, or in another process; time steps without them to compare runs."
        if every
        else "Sort the data into batches of equal work (buckets of lengths, a token budget), so that ranks do not wait "
        "for each other and small batches fill the GPU.",
        evidence={
            MEASURED_SHARE: min(one.lost_share for one in patterns),
            "long_steps": pattern.count,
            "timed_steps": len(unprofiled.parts[0].step_ms),
            "period": pattern.period,
            "long_ns": pattern.long_ns,
            "short_ns": pattern.short_ns,
        },
        max_severity=Severity.MEDIUM,
    )


def _first_of_each_step(work: Work) -> Work:
    """The first piece of work of each step; of unmarked steps the first of all."""
    inside: Rows = np.flatnonzero(work.step >= 0)
    _, first = np.unique(work.step[inside], return_index=True)
    return work[inside[first] if len(inside) else np.arange(min(len(work), 1))]
