"""The same kernel at the same place of the step takes differently long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import Unavailable
from traceanalyzer.finding import Confidence, Hit, Span
from traceanalyzer.indexes.accounting import KINDS, kinds_of_work
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, codes, event_ids, text


@dataclass(frozen=True, slots=True)
class Limits:
    min_steps: int = 3  # of the same work; two cannot tell which is the odd one
    slow: float = 1.25  # times the kernel's usual; 99 % of kernels on undisturbed H200 traces stay below 1.12
    usual: float = (
        0.2  # quantile over the steps taken as usual: a mode shared by a fifth of them still counts
    )
    rare: float = 0.15  # share of slow executions up to which they are outliers, above it a second mode
    drift: float = (
        1.08  # last over first steps; clocks of undisturbed H200 traces move by up to 1.05 in a window
    )
    min_share: float = 0.01  # of the window: the noise of undisturbed H200 traces adds up to 0.7 %


@rule(limits=Limits, since="0.1")
def kernel_variance(work: Launches, steps: Steps, trace: Trace, limits: Limits) -> Iterator[Hit]:
    """The same kernel takes differently long across steps.

    What it looks for: kernels of one name, grid and block at the same place in the step (by order of launch),
    compared across steps: outliers, two modes, or drift. Communication is left out, since it waits for peers.
    Why it costs: the same work takes longer in some steps than it needs; contention by another process, clocks
    that ramp or throttle. The mean over all executions hides it.
    Bad: a second process on the same GPU. Good: the GPU to yourself, locked clocks for benchmarks.
    How sure: the durations are measured. Name, grid, block and place agree, and so does the number of executions
    per step; where that number varies, shapes must have been recorded, since different shapes under one name are
    not variance.
    When it is wrong: data-dependent work (sparse, early exit) varies by nature.
    Source: the noise floors in the limits were measured on an H200 with torch 2.11.
    """
    if not steps.marked or len(steps) < limits.min_steps:
        raise Unavailable(f"needs {limits.min_steps} marked steps or more: record a longer schedule")
    table = _comparable(work, steps, trace, limits)
    if table.empty:
        return
    base = table.groupby(["group", "place"])["dur"].transform("quantile", limits.usual)
    table["ratio"] = table["dur"] / np.maximum(base, 1)
    table["excess"] = np.maximum(table["dur"] - base, 0).astype(np.int64)
    drift = table.groupby("group")["excess"].transform("sum") > 0
    for cause, chosen in _causes(table[drift], limits):
        if chosen["excess"].sum() >= limits.min_share * steps.window_ns:
            for _, group in chosen.groupby("group"):
                yield _hit(cause, group, table[table["group"] == group["group"].iloc[0]], work, steps, trace)


def _comparable(work: Launches, steps: Steps, trace: Trace, limits: Limits) -> pd.DataFrame:
    """Executions that can be compared across steps: i (entry of Launches), step, group, place, dur."""
    rows = np.flatnonzero((kinds_of_work(trace, work) == KINDS.index("compute")) & (steps.of_work >= 0))
    gpu = work.row[rows]
    table = pd.DataFrame({"i": rows, "step": steps.of_work[rows], "device": work.device[rows]})
    for name in ("name", "grid", "block"):
        table[name] = codes(trace.gpu, name)[gpu]
    shapes = codes(trace.cpu, "input_dims")
    table["shape"] = np.where(work.op[rows] >= 0, shapes[work.op[rows]], -1)
    table["dur"] = work.end_ns[rows] - work.start_ns[rows]
    order = np.lexsort((work.start_ns[rows], work.call_start_ns[rows]))
    table = table.iloc[order]
    table["group"] = table.groupby(["device", "name", "grid", "block"]).ngroup()
    table["place"] = table.groupby(["group", "step"]).cumcount()
    regular = _regular(table, len(steps), limits)
    by_shape = table[~regular & (table["shape"] >= 0)].assign(place=lambda t: -1 - t["shape"])
    kept = pd.concat([table[regular], by_shape])
    seen = kept.groupby(["group", "place"])["step"].transform("nunique")
    return kept[seen >= limits.min_steps].copy()


def _regular(table: pd.DataFrame, steps: int, limits: Limits) -> pd.Series[bool]:
    """Whether the group runs equally often in every step that has it, in most steps."""
    counts = table.groupby(["group", "step"]).size()
    spread = counts.groupby("group").agg(["min", "max", "size"])
    regular = (spread["min"] == spread["max"]) & (spread["size"] >= max(limits.min_steps, steps // 2))
    return table["group"].map(regular)


def _causes(table: pd.DataFrame, limits: Limits) -> Iterator[tuple[str, pd.DataFrame]]:
    """(cause, its executions). Drift first: a ramp also looks like two modes."""
    by_step = table.groupby(["group", "step"])["ratio"].median().unstack("step")
    ramps = by_step.index[[_ramps(row.dropna().to_numpy(), limits) for _, row in by_step.iterrows()]]
    drifting = table["group"].isin(ramps)
    yield "drift", table[drifting & (table["excess"] > 0)]
    rest = table[~drifting]
    slow = rest["ratio"] >= limits.slow
    share = slow.groupby(rest["group"]).transform("mean")
    yield "outliers", rest[slow & (share <= limits.rare)]
    yield "two-modes", rest[slow & (share > limits.rare)]


def _ramps(ratios: Any, limits: Limits) -> bool:
    """Steps that only rise or only fall (a sixth of the neighbours may disagree), by more than the limit."""
    if len(ratios) <= limits.min_steps:
        return False
    change = np.diff(ratios)
    third = max(1, len(ratios) // 3)
    first, last = float(np.median(ratios[:third])), float(np.median(ratios[-third:]))
    falling = float(np.mean(change <= 0)) if last < first else float(np.mean(change >= 0))
    return falling >= 5 / 6 and max(first, last) >= limits.drift * min(first, last)


_TEXTS = {
    "drift": (
        "{kernel} drifts over the steps: median {median_dur}, p10 to p90 {p10} to {p90}, first step {first_step} "
        "and last step {last_step}; the mean ({mean}) hides it",
        "Clocks ramp up or throttle: warm up until times settle, and lock the clocks for benchmarks.",
    ),
    "outliers": (
        "{kernel} is usually {median_dur} (p10 to p90 {p10} to {p90}), but {slow} of {executions} executions take up "
        "to {worst_dur}, in steps {slow_steps}; the mean ({mean}) hides it",
        "Look for another process on the GPU (nvidia-smi), power or thermal throttling at those steps.",
    ),
    "two-modes": (
        "{kernel} has two modes: {slow} of {executions} executions are {slowdown} times as long as the rest (median "
        "{median_dur}, p10 to p90 {p10} to {p90}, worst {worst_dur}), in steps {slow_steps}; the mean ({mean}) hides it",
        "Something shares the GPU at times: another process, a copy or another stream running at the same moment.",
    ),
}


def _hit(
    cause: str, slow: pd.DataFrame, group: pd.DataFrame, work: Launches, steps: Steps, trace: Trace
) -> Hit:
    """One kernel (name, grid, block) and its slow executions; the cost is what they took above the usual."""
    worst = int(slow.loc[slow["excess"].idxmax(), "i"])
    ends = work.end_ns[slow["i"]]
    shown = slow.nlargest(_EVENTS_NAMED, "excess", keep="first")
    numbers = sorted({int(steps.number[at]) for at in slow["step"]})
    return Hit(
        span=Span(
            start_ns=int(work.start_ns[worst]),
            end_ns=int(work.end_ns[worst]),
            device=int(work.device[worst]),
            stream=int(work.stream[worst]),
            step=int(steps.number[slow.loc[slow["excess"].idxmax(), "step"]]),
        ),
        events=event_ids(*((trace.gpu, int(work.row[i])) for i in shown["i"])),
        cost_ns=int(slow["excess"].sum()),
        cost_spans=tuple(zip((ends - slow["excess"]).tolist(), ends.tolist(), strict=True)),
        cause=cause,
        message=_TEXTS[cause][0],
        advice=_TEXTS[cause][1],
        confidence=Confidence.HIGH if (slow["place"] >= 0).all() else Confidence.MEDIUM,
        evidence=_evidence(slow, group, work, trace) | {"slow_steps": numbers},
    )


_EVENTS_NAMED = 10


def _evidence(slow: pd.DataFrame, group: pd.DataFrame, work: Launches, trace: Trace) -> dict[str, Any]:
    durations = group["dur"]
    by_step = group.groupby("step")["dur"].median()
    rest = group.loc[group.index.difference(slow.index), "dur"]
    p10, p90 = durations.quantile([0.1, 0.9])
    return {
        "kernel": text(trace.gpu, "name", int(work.row[slow["i"].iloc[0]])) or "",
        "grid": text(trace.gpu, "grid", int(work.row[slow["i"].iloc[0]])) or "",
        "executions": len(group),
        "slow": len(slow),
        "slowdown": round(float(slow["dur"].median() / max(rest.median(), 1)), 2) if len(rest) else 1.0,
        "median_dur_ns": int(durations.median()),
        "mean_ns": int(durations.mean()),
        "p10_ns": int(p10),
        "p90_ns": int(p90),
        "worst_dur_ns": int(durations.max()),
        "first_step_ns": int(by_step.iloc[0]),
        "last_step_ns": int(by_step.iloc[-1]),
    }
