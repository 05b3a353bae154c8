"""Idle time between kernels, by cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import intervals
from traceanalyzer.finding import Confidence, Hit, Span
from traceanalyzer.indexes.accounting import Accounting
from traceanalyzer.indexes.activity import Activity
from traceanalyzer.indexes.idle import CAUSES, Idle
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.pythons import innermost_function
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.rule import rule
from traceanalyzer.trace import Trace, event_ids, ints, text

_OPS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = 2_000  # queued kernels hand over within 0.8 to 1.7 us on an H200 with torch 2.11
    min_share: float = 0.005  # of the window, per cause: where severity `low` begins
    min_steps: int = 3  # fewer steps cannot tell what recurs from what happens once
    spike: float = 5.0  # times the median step: more than that, in one step only, is a hiccup


# cause -> (what happened, what to do)
_TEXTS = {
    "late_launch:dispatching": (
        "the CPU was still dispatching when the device ran dry, mostly before {op}",
        "Launch less often: torch.compile, CUDA graphs (mode='reduce-overhead'), fused or foreach kernels, larger batches.",
    ),
    "late_launch:python": (
        "python between ops kept the CPU from launching, mostly before {op}, in {where}",
        "Move that python out of the loop, vectorise it, or run it while the device has work queued.",
    ),
    "late_launch:host_code": (
        "the CPU ran no op and launched nothing, mostly before {op}; without stacks python cannot be told from other code",
        "Record with with_stack=True to see the code; suspects are python between ops, garbage collection and logging.",
    ),
    "late_launch:data_loading": (
        "the CPU was waiting for data ({op})",
        "Load ahead: num_workers above 0, pin_memory, a larger prefetch_factor, cheaper transforms, or preprocessed data.",
    ),
    "late_launch:compilation": (
        "code was being compiled ({op})",
        "Warm up before measuring; in steady state look for recompilation: TORCH_LOGS=recompiles, mark dynamic shapes.",
    ),
    "late_launch:module_loading": (
        "kernels were being loaded for the first time ({op})",
        "Warm up before measuring; CUDA_MODULE_LOADING=EAGER loads everything at the start.",
    ),
    "late_launch:allocator": (
        "the CPU was in cudaMalloc or cudaFree, mostly in {op}",
        "Keep memory cached: no empty_cache() in the loop, expandable_segments, or a smaller peak.",
    ),
    "synchronisation_round_trip": (
        "the CPU waited for the device at {op} and then had to launch anew ({outside} of it outside any op)",
        "Avoid the read-back or do it less often: no .item(), .cpu(), nonzero or synchronize() inside the step.",
    ),
    "profiler_overhead": (
        "the profiler was at work ({op}), not your code",
        "Nothing to do: without the profiler this time is not lost. A longer warm-up moves it out of the window.",
    ),
    "launch_latency": (
        "work was queued in time and the device took its usual delay to start it, mostly {op}",
        "Only fewer and larger kernels reduce it: fusion, CUDA graphs.",
    ),
    "in_graph": (
        "gaps between the nodes of a CUDA graph; no launch is involved",
        "Fuse kernels within the graph.",
    ),
    "waiting": (
        "work was launched but held up behind an event or behind work that the trace does not show, mostly {op}",
        "See which stream or rank it waits for; enable_cuda_sync_events=True in the profiler names the event.",
    ),
    "unlinked": (
        "the next work's launch is not in the trace",
        "It was launched before recording began: record longer.",
    ),
    "tail": (
        "nothing more was launched before the last step ended",
        "Look at what the CPU does after its last launch.",
    ),
    "unknown": (
        "work was launched in time, started late, and nothing says why, mostly {op}",
        "See the raw events.",
    ),
    "start": (
        "recording began with an idle device, and the loop had to get under way again",
        "Nothing to do: the profiler waits for the device when it starts. Record more steps to see past it.",
    ),
}
_NOBODYS = ("profiler_overhead", "launch_latency", "in_graph", "unlinked", "tail", "start")
_SURE = {"unknown": Confidence.LOW, "waiting": Confidence.LOW, "late_launch:host_code": Confidence.MEDIUM}


@rule(limits=Limits, since="0.1")
def scheduler_gap(
    books: Accounting, idle: Idle, steps: Steps, work: Launches, trace: Trace, limits: Limits
) -> Iterator[Hit]:
    """The GPU is idle between kernels.

    What it looks for: time within the steps in which nothing runs on the device, by cause: launched late (and
    what the CPU did instead), a synchronisation round trip, the profiler, a CUDA graph's inside, latency.
    Why it costs: an idle GPU does nothing for its price, and every cause has another cure.
    Bad: `for x in xs: y = model(x); log(y.item())`. Good: queue work ahead of the device and read back rarely.
    How sure: the cause comes from the accounting (docs/accounting.md), one per gap, with the events that decided
    it. A gap that appears in every step is the code's. One that appears in a single step of three or more is the
    profiler's or a hiccup's: it is reported apart, as info, and so is the idle device that a recording starts with.
    When it is wrong: the profiler slows the CPU, so a loop that barely keeps ahead without it falls behind with
    it; and two causes that follow each other within one gap are charged to the one that holds first.
    Source: the accounting's precedence table in traceanalyzer/indexes/idle.py.
    """
    gaps = _table(books, idle, limits)
    gaps["once"] = False
    if len(steps) >= limits.min_steps:
        gaps = _told_apart(gaps, len(steps), limits)
    totals = gaps.groupby(["device", "cause", "once"])["ns"].transform("sum")
    for (_, cause, once), group in gaps[totals >= limits.min_share * steps.window_ns].groupby(
        ["device", "cause", "once"]
    ):
        for _, in_step in group.groupby("step"):
            yield _hit(in_step, str(cause), bool(once), idle, steps, work, trace)


def _table(books: Accounting, idle: Idle, limits: Limits) -> pd.DataFrame:
    """One row per gap and step: device, step, gap, ns, cause, op (row of the CPU lane), before."""
    rows = np.flatnonzero(books.gap >= 0)
    in_graph = idle.is_cause("in_graph")[books.gap[rows]]
    rows = rows[in_graph | (idle.dur_ns[books.gap[rows]] >= limits.min_gap_ns)]
    gap = books.gap[rows]
    names = np.array(CAUSES, dtype=object)
    columns = {
        "device": books.device,
        "step": books.step,
        "gap": books.gap,
        "ns": books.dur_ns,
        "start": books.start_ns,
    }
    table = pd.DataFrame({name: values[rows] for name, values in columns.items()})
    return table.assign(cause=names[idle.cause[gap]], op=idle.op[gap], before=idle.before[gap])


def _told_apart(gaps: pd.DataFrame, steps: int, limits: Limits) -> pd.DataFrame:
    """What does not recur, apart: the start of the recording, and a cause that stands out in a single step.

    A cause stands out in a step where its time is a spike over the median step. In leading steps only, the loop
    was getting under way; in one step only, it is a hiccup.
    """
    sums = gaps.groupby(["device", "cause", "step"])["ns"].sum().unstack("step", fill_value=0)
    sums = sums.reindex(columns=range(steps), fill_value=0)
    spikes = sums.gt(limits.spike * sums.median(axis=1), axis=0)
    last = spikes.apply(lambda row: row[row].index.max(), axis=1)
    spikes, last = spikes[last.notna()], last.dropna()
    keys = pd.MultiIndex.from_frame(gaps[["device", "cause", "step"]])
    standing_out = keys.isin(spikes.stack().loc[lambda cell: cell].index)
    group = pd.MultiIndex.from_frame(gaps[["device", "cause"]])
    leading = group.isin(last.index[last < max(1, steps // 3)]) & standing_out
    alone = group.isin(spikes.index[spikes.sum(axis=1) == 1]) & standing_out
    start = (leading | (gaps["before"] < 0) | (gaps["step"] < 0)) & (gaps["cause"] != "profiler_overhead")
    return gaps.assign(cause=gaps["cause"].mask(start, "start"), once=alone & ~start)


def _hit(
    gaps: pd.DataFrame, cause: str, once: bool, idle: Idle, steps: Steps, work: Launches, trace: Trace
) -> Hit:
    """All gaps of one cause in one step; the costliest stands for them."""
    largest = gaps.loc[gaps["ns"].idxmax()]
    gap = int(largest["gap"])
    message, advice = _TEXTS[cause]
    starts, ends = (edges.tolist() for edges in _edges(gaps))
    next_work = int(idle.work[gap])
    call = int(work.call[next_work]) if next_work >= 0 else -1
    at = int(largest["step"])
    return Hit(
        span=Span(
            start_ns=int(largest["start"]),
            end_ns=int(largest["start"] + largest["ns"]),
            device=int(largest["device"]),
            stream=int(work.stream[next_work]) if next_work >= 0 else None,
            thread=int(ints(trace.cpu, "tid")[call]) if call >= 0 else None,
            step=int(steps.number[at]) if at >= 0 else None,
        ),
        events=_events(trace, idle, work, gap, call),
        cost_ns=int(gaps["ns"].sum()),
        cost_spans=tuple(zip(starts, ends, strict=True)),
        cause=cause.removeprefix("late_launch:").replace("_", "-") + ("-once" if once else ""),
        message=_sentence(message, once),
        advice=_advice(advice, once),
        confidence=_SURE.get(cause, Confidence.HIGH),
        evidence=_evidence(gaps, cause, gap, idle, trace),
        info=once or cause in _NOBODYS,
    )


def _edges(gaps: pd.DataFrame) -> intervals.Set:
    """Starts and ends of the gaps, in order of time."""
    starts = gaps["start"].to_numpy()
    return starts, starts + gaps["ns"].to_numpy()


def _sentence(message: str, once: bool) -> str:
    when = "in one step only, so the profiler's or a hiccup's" if once else "{in_steps}"
    return "idle for {total} (" + when + "): " + message


def _advice(advice: str, once: bool) -> str:
    return "Look whether it comes back in a longer recording before changing anything." if once else advice


def _events(trace: Trace, idle: Idle, work: Launches, gap: int, call: int) -> tuple[int, ...]:
    """The work before, the work after, its launch, and the event that decided the cause."""
    cpu, gpu = trace.cpu, trace.gpu
    before, after = (int(work.row[i]) if i >= 0 else -1 for i in (int(idle.before[gap]), int(idle.work[gap])))
    return event_ids(
        (gpu, before), (gpu, after), (cpu, call), (cpu, int(idle.row[gap])), (cpu, int(idle.op[gap]))
    )


def _evidence(gaps: pd.DataFrame, cause: str, gap: int, idle: Idle, trace: Trace) -> dict[str, Any]:
    by_op = gaps.groupby("op")["ns"].sum().reset_index()
    by_op["name"] = [text(trace.cpu, "name", int(op)) or "no op" for op in by_op["op"]]
    by_name = by_op.groupby("name")["ns"].sum().sort_values(ascending=False, kind="stable")
    evidence: dict[str, Any] = {
        "op": str(by_name.index[0]),
        "ops": {str(name): int(ns) for name, ns in by_name.head(_OPS_NAMED).items()},
        "gaps": len(gaps),
        "largest_gap_ns": int(gaps["ns"].max()),
        "covered": round(float(idle.sure[gap]), 3),
    }
    if cause == "synchronisation_round_trip":
        inside = intervals.covered(trace.index(Activity).sets["dispatching"], *_edges(gaps))
        evidence["outside_share"] = 1 - int(inside.sum()) / int(gaps["ns"].sum())
    if cause == "late_launch:python":
        found = innermost_function(trace, int(idle.start_ns[gap]), int(idle.end_ns[gap]))
        evidence["where"] = found or "no single function"
    return evidence
