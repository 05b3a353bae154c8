"""The same kernel at the same place of the step takes differently long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.lazy import pd
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.timeline.repeated_kernels import (
    RepeatedKernels,
    losing,
    spread,
    steps_of_place,
    usual_at_place,
)
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    min_steps: int = limit(3, "of the same work; two cannot tell which is the odd one")
    slow: float = limit(1.25, "times the usual; 99 % of undisturbed kernels (H200) stay below 1.12")
    usual: float = limit(0.2, "quantile over the steps: a mode shared by a fifth of them still counts")
    rare: float = limit(0.15, "up to this share slow executions are outliers; above it, a second mode")
    drift: float = limit(1.08, "last over first steps; clocks of undisturbed H200 traces move by up to 1.05")
    max_beside_share: float = limit(0.1, "of an execution beside other work of the program, which slows it")
    min_lost_share: float = limit(0.001, "of kernel time; what a kernel loses below that is not worth a look")


# cause -> (message, advice)
_TEXTS = {
    "drift": (
        "{by} drifts over the steps: from {first_step} in the first to {last_step} in the last; median "
        "{median_dur}, 10th to 90th percentile {p10} to {p90}",
        "The clock changes, or the work grows from step to step: warm up, lock the clocks, record shapes.",
    ),
    "outliers": (
        "{slow} of {executions} executions of {by} take up to {worst_dur}, in steps {slow_steps} (median "
        "{median_dur}, 10th to 90th percentile {p10} to {p90})",
        "Look for another process on the GPU (nvidia-smi), or for power or thermal throttling in those steps.",
    ),
    "comes-and-goes": (
        "{slow} of {executions} executions of {by} take {slowdown} times as long as the rest, in steps {slow_steps} "
        "(median {median_dur}, 10th to 90th percentile {p10} to {p90}, worst {worst_dur})",
        "The GPU is shared at times (a process, a copy, another stream), or steps differ: record shapes.",
    ),
}


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.01, limits=Limits, causes=tuple(_TEXTS))
def kernel_variance(executions: RepeatedKernels, work: Work, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """A kernel's duration varies between steps.

    What it looks for: kernels of one name, grid and block at the same place in the step (by order of launch),
    compared across steps: outliers, two modes, or drift. Communication is left out, since it waits for peers.
    Why it costs: the same work takes longer in some steps than it needs; contention by another process, clocks
    that ramp or throttle. The mean over all executions hides it.
    Bad: a second process on the same GPU. Good: the GPU to yourself, locked clocks for benchmarks.
    How sure: the durations are measured. Name, grid, block, place and recorded shapes agree. Where the number of
    executions per step varies, shapes must have been recorded, since different shapes under one name are no
    variance; without shapes the confidence is low where whole steps are slow: they may do other work.
    When it is wrong: data-dependent work (sparse, early exit) varies by nature.
    Source: the noise floors in the limits were measured on an H200 with torch 2.11.
    """
    if not steps.marked or len(steps) < limits.min_steps:
        raise Unavailable(f"needs {limits.min_steps} marked steps or more", "record a longer schedule")
    table = losing(executions.table, limits.min_lost_share * executions.table["dur"].sum())
    ran = work[table["entry"].to_numpy()]
    table = table[ran.beside_ns() <= limits.max_beside_share * ran.dur_ns]
    table = table[steps_of_place(table) >= limits.min_steps]
    base = usual_at_place(table, limits.usual)
    excess = np.maximum(table["dur"].to_numpy() - base, 0).astype(np.int64)
    excess[excess < _resolution(work)] = 0
    table = table.assign(ratio=(base + excess) / np.maximum(base, 1), excess=excess)
    worst = table.groupby("group")["ratio"].transform("max")
    table = table[worst >= min(limits.slow, limits.drift)]
    if table.empty:
        return
    groups = dict(list(table.groupby("group")))
    for cause, chosen in _causes(table, limits):
        for number, slow in chosen.groupby("group"):
            yield _hits(cause, slow, groups[number], work, steps)


def _causes(table: pd.DataFrame, limits: Limits) -> Iterator[tuple[str, pd.DataFrame]]:
    """(cause, its executions). Drift first: a ramp also looks like two modes."""
    by_step = table.pivot_table(index="group", columns="step", values="ratio", aggfunc="median")
    groups = zip(by_step.index, by_step.to_numpy(), strict=True)
    ramps = [number for number, ratios in groups if _ramps(ratios[~np.isnan(ratios)], limits)]
    drifting = table["group"].isin(ramps)
    yield "drift", table[drifting & (table["excess"] > 0)]
    slow = ~drifting & (table["ratio"] >= limits.slow)
    share = slow.groupby(table["group"]).transform("mean")
    yield "outliers", table[slow & (share <= limits.rare)]
    yield "comes-and-goes", table[slow & (share > limits.rare)]


def _ramps(ratios: Any, limits: Limits) -> bool:
    """Steps that only rise or only fall (a sixth of the neighbours may disagree), by more than the limit."""
    if len(ratios) <= limits.min_steps:
        return False
    change, third = np.diff(ratios), max(1, len(ratios) // 3)
    first, last = float(np.median(ratios[:third])), float(np.median(ratios[-third:]))
    agreeing = float(np.mean(change <= 0 if last < first else change >= 0))
    return agreeing >= 5 / 6 and max(first, last) >= limits.drift * min(first, last)


def _hits(cause: str, slow: pd.DataFrame, group: pd.DataFrame, work: Work, steps: Steps) -> Hits:
    """One kernel (name, grid, block) and its slow executions; lost is what they took above the usual."""
    found, excess = work[slow["entry"].to_numpy()], slow["excess"].to_numpy()
    numbers = sorted({int(steps.number[position]) for position in slow["step"]})
    message, advice = _TEXTS[cause]
    return Hits(
        **quicker(found, found.dur_ns - excess),
        named_by=found.name[0],
        cause=cause,
        message=message,
        advice=advice,
        confidence=_confidence(slow, group),
        evidence={**spread(slow, group), "grid": found.text("grid")[0] or "", "slow_steps": numbers},
    )


def _confidence(slow: pd.DataFrame, group: pd.DataFrame) -> Confidence:
    """Without shapes, a step that is slow as a whole and evenly so may have done other work."""
    if slow["shaped"].all():
        return Confidence.HIGH
    in_slow_steps = group[group["step"].isin(slow["step"])]
    return Confidence.LOW if len(in_slow_steps) == len(slow) else Confidence.HIGH


def _resolution(work: Work) -> int:
    """What the clock cannot tell: a start and an end in whole microseconds are each off by up to one."""
    return 1 if work.events.trace.meta.capabilities.get("nanoseconds", True) else 2_001
