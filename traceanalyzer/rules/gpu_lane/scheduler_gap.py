"""Idle time between kernels, by cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import intervals
from traceanalyzer.finding import Confidence, Hit
from traceanalyzer.indexes.accounting import Accounting
from traceanalyzer.indexes.activity import Activity
from traceanalyzer.indexes.advice import NOBODYS_LOSS, ONCE, SURE, TEXTS
from traceanalyzer.indexes.idle import CAUSES, Idle
from traceanalyzer.indexes.pythons import innermost_function
from traceanalyzer.indexes.recurrence import standing_out
from traceanalyzer.indexes.where import Where
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, codes, event_ids

_OPS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = 2_000  # queued kernels hand over within 0.8 to 1.7 us on an H200 with torch 2.11
    min_share: float = 0.005  # of the window, per cause: where severity `low` begins
    min_steps: int = 3  # fewer steps cannot tell what recurs from what happens once
    spike: float = 5.0  # times the median step: more than that, in one step only, is a hiccup


@rule(limits=Limits, since="0.1")
def scheduler_gap(
    books: Accounting, idle: Idle, activity: Activity, where: Where, trace: Trace, limits: Limits
) -> Iterator[Hit]:
    """The GPU is idle between kernels.

    What it looks for: time within the steps in which nothing runs on the device, by cause: launched late (and
    what the CPU did instead), a synchronisation round trip, the profiler, a CUDA graph's inside, latency.
    Why it costs: an idle GPU does nothing for its price, and every cause has another cure.
    Bad: `for x in xs: y = model(x); log(y.item())`. Good: queue work ahead of the device and read back rarely.
    How sure: the cause comes from the accounting (docs/accounting.md), one per gap, with the events that decided
    it. A gap that appears in every step is the code's. One that appears in a single step of three or more is the
    profiler's or a hiccup's, and one in the leading steps only is the recording getting under way: both are
    reported apart, as info.
    When it is wrong: the profiler slows the CPU, so a loop that barely keeps ahead without it falls behind with
    it; and two causes that follow each other within one gap are charged to the one that holds first.
    Source: the precedence table of the accounting, traceanalyzer/indexes/idle.py.
    """
    gaps = _table(books, idle, trace, limits)
    if len(where.steps) >= limits.min_steps:
        gaps = _told_apart(gaps, len(where.steps), limits)
    totals = gaps.groupby(["device", "cause"])["ns"].transform("sum")
    large = gaps[totals >= limits.min_share * where.steps.window_ns]
    for (_, cause, _), group in large.groupby(["device", "cause", "step"]):
        yield _hit(group, str(cause), idle, activity, where, trace)


def _table(books: Accounting, idle: Idle, trace: Trace, limits: Limits) -> pd.DataFrame:
    """One row per gap and step: device, step, gap, start, ns, cause, name (code of the op's name)."""
    rows = np.flatnonzero(books.gap >= 0)
    in_graph = idle.is_cause("in_graph")[books.gap[rows]]
    rows = rows[in_graph | (idle.dur_ns[books.gap[rows]] >= limits.min_gap_ns)]
    columns = {
        "device": books.device,
        "step": books.step,
        "gap": books.gap,
        "start": books.start_ns,
        "ns": books.dur_ns,
    }
    table = pd.DataFrame({name: values[rows] for name, values in columns.items()})
    causes = np.array(CAUSES, dtype=object)[idle.cause[table["gap"]]]
    names = np.append(codes(trace.cpu, "name"), -1)[idle.op[table["gap"]]]
    return table.assign(cause=causes, name=names)


def _told_apart(gaps: pd.DataFrame, steps: int, limits: Limits) -> pd.DataFrame:
    """What does not recur gets a cause of its own: `start` for leading steps, `<cause>-once` for a single one."""
    key = gaps["device"].astype(str) + ":" + gaps["cause"]
    found = standing_out(gaps.assign(key=key), steps, limits.spike).set_index(["key", "step"])
    flags = found.reindex(pd.MultiIndex.from_arrays([key, gaps["step"]]), fill_value=False).set_index(
        gaps.index
    )
    profiler = gaps["cause"] == "profiler_overhead"
    start = (flags["leading"] | (gaps["step"] < 0)) & ~profiler
    once = flags["alone"] & ~start
    return gaps.assign(cause=gaps["cause"].mask(start, "start") + np.where(once, ONCE, ""))


def _hit(gaps: pd.DataFrame, cause: str, idle: Idle, activity: Activity, where: Where, trace: Trace) -> Hit:
    """All gaps of one cause in one step; the costliest stands for them."""
    largest = gaps.iloc[int(np.argmax(gaps["ns"].to_numpy()))].to_dict()
    gap, start = int(largest["gap"]), int(largest["start"])
    plain = cause.removesuffix(ONCE)
    message, advice = TEXTS[plain]
    entry = max(int(idle.work[gap]), int(idle.before[gap])) if idle.work[gap] < 0 else int(idle.work[gap])
    span = where.of_work(entry, start, start + int(largest["ns"]))
    starts = gaps["start"].to_numpy()
    ends = starts + gaps["ns"].to_numpy()
    when = "in one step only, so the profiler's or a hiccup's" if plain != cause else "{in_steps}"
    return Hit(
        span=replace(span, step=where.step(int(largest["step"]))),
        events=_events(trace, idle, where, gap),
        cost_ns=int(gaps["ns"].sum()),
        cost_spans=tuple(zip(starts.tolist(), ends.tolist(), strict=True)),
        cause=cause.removeprefix("late_launch:").replace("_", "-"),
        message="idle for {total} (" + when + "): " + message,
        advice=TEXTS["once"][1] if plain != cause else advice,
        confidence=SURE.get(plain, Confidence.HIGH),
        evidence=_evidence(gaps, trace) | _further(plain, gap, (starts, ends), idle, activity, trace),
        info=plain != cause or plain in NOBODYS_LOSS or (plain == "waiting" and idle.before[gap] < 0),
    )


def _events(trace: Trace, idle: Idle, where: Where, gap: int) -> tuple[int, ...]:
    """The work before, the work after, its launch, and the events that decided the cause."""
    work, before, after = where.work, int(idle.before[gap]), int(idle.work[gap])
    gpu = [(trace.gpu, int(work.row[entry]) if entry >= 0 else -1) for entry in (before, after)]
    cpu = (int(work.call[after]) if after >= 0 else -1, int(idle.row[gap]), int(idle.op[gap]))
    return event_ids(*gpu, *((trace.cpu, row) for row in cpu))


def _evidence(gaps: pd.DataFrame, trace: Trace) -> dict[str, Any]:
    by_code = gaps.groupby("name")["ns"].sum().sort_values(ascending=False, kind="stable").head(_OPS_NAMED)
    names = [str(trace.cpu["name"].cat.categories[int(c)]) if c >= 0 else "no op" for c in by_code.index]
    return {
        "op": names[0],
        "ops": dict(zip(names, by_code.tolist(), strict=True)),
        "gaps": len(gaps),
        "largest_gap_ns": int(gaps["ns"].max()),
    }


def _further(
    cause: str, gap: int, spans: intervals.Set, idle: Idle, activity: Activity, trace: Trace
) -> dict[str, Any]:
    """What only some causes can tell: the python function, or how much of a round trip was spent outside ops."""
    if cause == "late_launch:python":
        found = innermost_function(trace, int(idle.start_ns[gap]), int(idle.end_ns[gap]))
        return {"where": found or "no single function"}
    if cause == "synchronisation_round_trip":
        inside = intervals.covered(activity.sets["dispatching"], *spans)
        return {"outside_share": 1 - int(inside.sum()) / int((spans[1] - spans[0]).sum())}
    return {}
