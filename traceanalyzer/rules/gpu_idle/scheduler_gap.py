"""Idle time between kernels, by cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.advice import NO_MORE_THAN_LATE, NOBODYS_LOSS, ONCE, SURE, TEXTS
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.idle.recurrence import standing_out
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import numbered, pick
from traceanalyzer.model.finding import Confidence, Hit
from traceanalyzer.model.trace import Trace, codes, event_ids
from traceanalyzer.rule.places import Places
from traceanalyzer.rule.registry import rule
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.python_calls import innermost_function

_OPS_LISTED = 8
_Columns = dict[str, NDArray[Any]]  # of a table, which pandas would look up ten times slower


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = 2_000  # queued kernels hand over within 0.8 to 1.7 us on an H200 with torch 2.11
    min_share: float = 0.005  # of the window, per cause: where severity `low` begins
    min_steps: int = 3  # fewer steps cannot tell what recurs from what happens once
    spike: float = 5.0  # times the median step: more than that, in one step only, is a hiccup


@rule(limits=Limits, since="0.1")
def scheduler_gap(
    books: Accounting, idle: Idle, activity: Activity, where: Places, trace: Trace, limits: Limits
) -> Iterator[Hit]:
    """The GPU is idle between kernels.

    What it looks for: time within the steps in which nothing runs on the device, by cause: launched late (and
    what the CPU did instead), a synchronisation round trip, the profiler, a CUDA graph's inside, latency.
    Why it costs: an idle GPU does nothing for its price, and every cause has another cure.
    Bad: `for x in xs: y = model(x); log(y.item())`. Good: queue work ahead of the device and read back rarely.
    How sure: the cause comes from the accounting (docs/accounting.md), one per gap, with the events that decided
    it. A gap that appears in every step is the code's. Places nothing says more than that the CPU was late, one
    that appears in a single step of three or more is the profiler's or a hiccup's, and one in the leading steps
    only is the recording getting under way: both are reported apart, as info.
    When it is wrong: the profiler slows the CPU, so a loop that barely keeps ahead without it falls behind with
    it; and two causes that follow each other within one gap are charged to the one that holds first.
    Source: the precedence table of the accounting, traceanalyzer/indexes/idle.py.
    """
    gaps = _table(books, idle, activity, where, trace, limits)
    if len(where.steps) >= limits.min_steps and not where.steps.asked:
        gaps = _told_apart(gaps, len(where.steps), limits)
    totals = gaps.groupby(["device", "cause"])["ns"].transform("sum")
    large = gaps[totals >= limits.min_share * where.steps.window_ns]
    for (_, cause), group in large.groupby(["device", "cause"]):
        yield from _hits(group, str(cause), idle, where, trace)


def _table(
    books: Accounting, idle: Idle, activity: Activity, where: Places, trace: Trace, limits: Limits
) -> pd.DataFrame:
    """One row per gap and step: device, step (the one in which most of the gap lies), gap, start, ns, outside (ns in
    no op or call), cause, name (code of the name of the op to blame, else of the next)."""
    rows = np.flatnonzero(books.gap >= 0)
    in_graph = idle.is_cause("in_graph")[books.gap[rows]]
    rows = rows[in_graph | (idle.dur_ns[books.gap[rows]] >= limits.min_gap_ns)]
    start, ns, gap = books.start_ns[rows], books.dur_ns[rows], books.gap[rows]
    names = np.append(codes(trace.cpu, "name"), -1)
    columns = {
        "device": books.device[rows],
        "step": books.step[rows],
        "gap": gap,
        "start": start,
        "ns": ns,
        "outside": ns - intervals.covered(activity.sets["dispatching"], start, start + ns),
        "cause": _causes(idle, gap, where),
        "name": names[np.where(idle.op[gap] >= 0, idle.op[gap], _launching(idle.work[gap], where.work))],
    }
    table = pd.DataFrame(columns)
    longest = table.loc[table.groupby("gap")["ns"].idxmax(), ["gap", "step"]].set_index("gap")["step"]
    return table.assign(step=table["gap"].map(longest))


def _causes(idle: Idle, gap: NDArray[np.int64], where: Places) -> NDArray[np.object_]:
    """Cause of each gap; a round trip whose op only copies to the device is an upload, with another cure."""
    up, down = (
        np.unique(where.work.op[where.work.kind == KINDS.index(f"copy_{kind}")]) for kind in ("h2d", "d2h")
    )
    uploads = np.setdiff1d(up[up >= 0], down)
    found = np.array(CAUSES, dtype=object)[idle.cause[gap]]
    found[(found == "synchronisation_round_trip") & np.isin(idle.op[gap], uploads)] = "blocking_upload"
    return found


def _launching(entries: NDArray[np.int64], work: DeviceWork) -> NDArray[np.int64]:
    """Row of the op, else of the call, that launched each piece of work; -1 for none."""
    op, call = pick(work.op, entries), pick(work.call, entries)
    return np.where(op >= 0, op, call)


def _told_apart(gaps: pd.DataFrame, steps: int, limits: Limits) -> pd.DataFrame:
    """What does not recur gets a cause of its own: `start` for leading steps, `<cause>-once` for a single one."""
    key = gaps.groupby(["device", "cause"]).ngroup()
    found = standing_out(gaps.assign(key=key)[["key", "step", "ns"]], steps, limits.spike)
    flags = gaps[["step"]].assign(key=key).merge(found, on=["key", "step"], how="left")
    leading, alone = (flags[name].eq(True).to_numpy() for name in ("leading", "alone"))
    plain = gaps["cause"].isin(NO_MORE_THAN_LATE)
    start = (leading | (gaps["step"] < 0)) & plain
    once = alone & ~start & plain
    return gaps.assign(cause=gaps["cause"].mask(start, "start").mask(once, gaps["cause"] + ONCE))


def _hits(gaps: pd.DataFrame, cause: str, idle: Idle, where: Places, trace: Trace) -> Iterator[Hit]:
    """One hit per step, with what only the costliest needs to tell: the python function behind it."""
    columns = {
        str(name): column.to_numpy() for name, column in gaps.sort_values("step", kind="stable").items()
    }
    bounds = np.flatnonzero(np.diff(columns["step"])) + 1
    parts = {name: np.split(column, bounds) for name, column in columns.items()}
    per_step: list[_Columns] = [
        dict(zip(parts, part, strict=True)) for part in zip(*parts.values(), strict=True)
    ]
    costs = [int(group["ns"].sum()) for group in per_step]
    for group, cost in zip(per_step, costs, strict=True):
        further = {}
        if cause == "late_launch:python" and cost == max(costs):
            further = {"where": _function(group, trace)}
        yield _hit(group, cost, cause, further, idle, where, trace)


def _hit(
    gaps: _Columns, cost: int, cause: str, further: dict[str, Any], idle: Idle, where: Places, trace: Trace
) -> Hit:
    """All gaps of one cause in one step; the longest stands for them."""
    starts, durations = gaps["start"], gaps["ns"]
    plain = cause.removesuffix(ONCE)
    evidence = _evidence(gaps, cost, plain, trace)
    longest = int(np.argmax(np.where(gaps["name"] == evidence.pop("name"), durations, 0)))
    gap, start = int(gaps["gap"][longest]), int(starts[longest])
    engine = plain == "late_launch:host_code" and bool(trace.meta.rows.get("python"))
    message, advice = TEXTS["engine" if engine else plain]
    entry = int(idle.work[gap]) if idle.work[gap] >= 0 else int(idle.before[gap])
    span = where.of_work(entry, start, start + int(durations[longest]))
    when = "in one step only, so the profiler's or a hiccup's" if plain != cause else "{in_steps}"
    return Hit(
        span=replace(span, step=where.step(int(gaps["step"][0]))),
        events=_events(trace, idle, where, gap),
        cost_ns=cost,
        cost_spans=tuple(zip(starts.tolist(), (starts + durations).tolist(), strict=True)),
        cause=cause.removeprefix("late_launch:").replace("_", "-"),
        message="idle for {total} (" + when + "): " + message,
        advice=TEXTS["once"][1] if plain != cause else advice,
        confidence=SURE.get(plain, Confidence.HIGH),
        evidence=evidence | further,
        info=plain != cause or plain in NOBODYS_LOSS or (plain == "waiting" and not where.communicates),
    )


def _events(trace: Trace, idle: Idle, where: Places, gap: int) -> tuple[int, ...]:
    """The work before, the work after, its launch, and the events that decided the cause."""
    work, before, after = where.work, int(idle.before[gap]), int(idle.work[gap])
    gpu = [(trace.gpu, int(work.row[entry]) if entry >= 0 else -1) for entry in (before, after)]
    cpu = (int(work.call[after]) if after >= 0 else -1, int(idle.row[gap]), int(idle.op[gap]))
    return event_ids(*gpu, *((trace.cpu, row) for row in cpu))


def _evidence(gaps: _Columns, cost: int, cause: str, trace: Trace) -> dict[str, Any]:
    inverse, used = numbered(gaps["name"])
    sums = np.bincount(inverse, weights=gaps["ns"]).astype(np.int64)
    largest = np.argsort(-sums, kind="stable")[:_OPS_LISTED]
    categories = trace.cpu["name"].cat.categories
    missing = "prof.step()" if cause == "profiler_overhead" else "no op"
    names = [str(categories[used[i]]) if used[i] >= 0 else missing for i in largest]
    return {
        "name": used[largest[0]],
        "op": names[0],
        "ops": dict(zip(names, sums[largest].tolist(), strict=True)),
        "gaps": len(gaps["ns"]),
        "largest_gap_ns": int(gaps["ns"].max()),
        "outside_share": int(gaps["outside"].sum()) / cost,
    }


def _function(gaps: _Columns, trace: Trace) -> str:
    """The python function behind the longest gap."""
    longest = int(np.argmax(gaps["ns"]))
    start = int(gaps["start"][longest])
    return innermost_function(trace, start, start + int(gaps["ns"][longest])) or "no single function"
