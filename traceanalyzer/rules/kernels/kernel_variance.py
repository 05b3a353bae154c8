"""The same kernel at the same place of the step takes differently long."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.rule import MEASURED_SHARE, Claims, Confidence, Hits, Unavailable, Work, reduce_to, rule
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels, losing, spread, steps_of_place, usual_at_place
from traceanalyzer.timeline.steps import Steps


class Limits:
    min_steps: int = 3
    """reported only if at least this many steps have the same work; of two steps, the rule cannot tell which
    one is unusual"""
    slow_times: float = 1.25
    """an execution is slow if it takes at least this many times the kernel's usual time; 99 % of undisturbed
    kernels (H200) stay below 1.12 times"""
    usual_share: float = 0.2
    """a kernel's usual time is this quantile of its durations: one in five executions is shorter"""
    rare_share: float = 0.15
    """slow executions are outliers if they are at most this share of the kernel's executions; if more are
    slow, the kernel has two modes"""
    max_beside_share: float = 0.1
    """an execution is ignored if other kernels of the program run during more than this share of its time,
    because they slow it down"""
    min_lost_share: float = 0.001
    """reported only if a kernel's slow executions lose at least this share of the time of all kernels"""


_RECURS = 3  # steps: what comes in fewer may be chance; chosen
# cause -> (message, advice)
_TEXTS = {
    "outliers": (
        "{slow} of {executions} launches of {kernel} take up to {worst_dur}, in the steps "
        "with the numbers {slow_steps} in the trace (median {median_dur}, 10th to 90th percentile {p10} to {p90})",
        "Look for another process on the GPU (nvidia-smi), or for power or thermal throttling in those steps.",
    ),
    "comes-and-goes": (
        "{slow} of {executions} launches of {kernel} take {slowdown} times as long as the rest, in the steps "
        "with the numbers {slow_steps} in the trace (median {median_dur}, 10th to 90th percentile {p10} to {p90}, "
        "worst {worst_dur})",
        "The GPU is shared at times (another process, a copy, another stream), or steps differ. Record shapes to tell.",
    ),
}


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.01, limits=Limits, causes=tuple(_TEXTS))
def kernel_variance(executions: RepeatedKernels, work: Work, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """A kernel's duration varies between steps.

    What it looks for: kernels with equal names and grids at the same place in the step. The rule compares
    their durations across steps. It reports outliers, or two modes (a fast and a slow one).
    Why it costs: in some steps the same work takes longer than necessary. Usual reasons are another process
    on the GPU and changing clocks.
    Bad: a second process on the same GPU. Good: no other process on the GPU, locked clocks for benchmarks.
    How sure: durations are measured. Without recorded shapes, a slow step may have had larger inputs, so
    confidence can be low.
    When it is wrong: the duration of the work depends on the data (sparse tensors, early exit).
    Source: the usual variation was measured on an H200 with torch 2.11.
    """
    if not steps.marked or len(steps) < limits.min_steps:
        raise Unavailable(f"needs {limits.min_steps} marked steps or more", "record a longer schedule")
    varying = losing(executions, limits.min_lost_share * executions.dur_ns.sum())
    ran = work[varying.entry]
    varying = varying[ran.beside_ns() <= limits.max_beside_share * ran.dur_ns]
    varying = varying[steps_of_place(varying) >= limits.min_steps]
    base = usual_at_place(varying, limits.usual_share)
    excess = np.maximum(varying.dur_ns - base, 0).astype(np.int64)
    # A start and an end in whole microseconds are each off by up to one.
    exact = work.events.trace.meta.capabilities.get("nanoseconds", True)
    excess[excess < (1 if exact else 2_001)] = 0
    slow = (base + excess) / np.maximum(base, 1) >= limits.slow_times
    share = (np.bincount(varying.group, weights=slow) / np.maximum(np.bincount(varying.group), 1))[varying.group]
    rare = share <= limits.rare_share
    for cause, chosen in (("outliers", slow & rare), ("comes-and-goes", slow & ~rare)):
        for number in distinct(varying.group[chosen]).tolist():
            of_group = varying.group == number
            members = chosen & of_group
            yield _hits(cause, varying[members], varying[of_group], excess[members], work, steps)


def _hits(cause: str, slow: RepeatedKernels, group: RepeatedKernels, excess: Rows, work: Work, steps: Steps) -> Hits:
    """One kernel (name, grid, block) and its slow executions; lost is what they took above the usual."""
    pieces = work[slow.entry]
    numbers = sorted({int(steps.number[position]) for position in slow.step})
    message, advice = _TEXTS[cause]
    reduced = reduce_to(pieces, pieces.dur_ns - excess)
    # the usual step is predicted, which has none of them: what they take of the recorded steps is measured
    rare = cause == "outliers" and _RECURS <= len(numbers) < len(steps) / 2
    if rare:
        reduced["fix"] = ()
    # Without shapes, a step that is slow as a whole and evenly so may have done other work.
    some_quick = np.isin(group.step, slow.step).sum() > len(slow)
    lost_share = float(excess.sum()) / max(int(steps.durations_ns().sum()), 1)
    return Hits(
        **reduced,
        named_by=pieces.name[0],
        cause=cause,
        message=message,
        advice=advice,
        confidence=Confidence.HIGH if slow.shaped.all() or some_quick else Confidence.LOW,
        evidence={
            **spread(slow, group),
            "kernel": short_kernel(pieces.name[0] or ""),
            "grid": pieces.text("grid")[0] or "",
            "slow_steps": numbers,
            **({MEASURED_SHARE: lost_share} if rare else {}),
        },
    )
