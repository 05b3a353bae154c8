"""What the head of a report says of each trace: window, steps, how busy each device was, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.idle.inflation import Inflation
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.rule.grouping import Scope
from traceanalyzer.timeline.busy import Busy
from traceanalyzer.timeline.steps import Steps

_BOOKS = {
    "rank": "Int64",
    "device": "int64",
    "step": "Int64",
    "class": "str",
    "cause": "str",
    "op": "str",
    "ns": "int64",
}
_EMPTY_BOOKS = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _BOOKS.items()})


def span_of(trace: Trace) -> tuple[int, int]:
    """From the start of the first event to the end of the last, in ns as in the frames."""
    lanes = [frame for frame in (trace.cpu, trace.gpu) if len(frame)]
    ends = [int((frame["start_ns"] + frame["dur_ns"]).max()) for frame in lanes]
    return trace.meta.origin_ns, max(ends, default=trace.meta.origin_ns)


def scope_of(analysis: Analysis, rank: int | None) -> Scope:
    """The analysed window that costs are shares of."""
    try:
        steps = analysis.index(Steps)
    except Unavailable:
        return Scope(rank, *(analysis.window.asked_ns or span_of(analysis.trace)))
    return Scope(rank, steps.window_start_ns, steps.window_end_ns, len(steps))


def summarise(analysis: Analysis, rank: int | None) -> dict[str, Any]:
    """One JSON-ready mapping per trace; docs/output.md describes every field."""
    scope, trace = scope_of(analysis, rank), analysis.trace
    unavailable: dict[str, str] = {}
    summary = {
        "rank": rank,
        "source": trace.meta.source,
        "events": trace.meta.events,
        "window": {"start_ns": scope.start_ns, "end_ns": scope.end_ns, "length_ns": scope.length_ns},
        "asked": analysis.window.asked_ns is not None,
        "steps": _try(unavailable, "steps", _steps, analysis),
        "busy": _try(unavailable, "busy", _busy, analysis, scope) or [],
        "profiler": _try(unavailable, "profiler", _profiler, analysis),
        "missing": [name for name, there in trace.meta.capabilities.items() if not there],
    }
    return summary | {"unavailable": unavailable}


def accounting_of(analysis: Analysis, rank: int | None) -> list[Mapping[str, Any]]:
    """One mapping per device: rank, device, start_ns, end_ns, parts_ns, and the largest idle causes."""
    try:
        accounting = analysis.index(Accounting)
    except Unavailable:
        return []
    return [{**row, "rank": rank} for row in accounting.summaries]


def accounting_frame(analyses: Iterable[tuple[int | None, Analysis]]) -> pd.DataFrame:
    """One row per rank, device, step, class, cause and op: what they took of the window, in ns."""
    frames = [_EMPTY_BOOKS]
    for rank, analysis in analyses:
        try:
            idle, steps = analysis.index(Idle), analysis.index(Steps)
            books = analysis.index(Accounting).frame(analysis.trace, idle, steps)
        except Unavailable:
            continue
        ranks = pd.array([rank] * len(books), "Int64")
        frames.append(books.assign(rank=ranks)[list(_BOOKS)].astype(_BOOKS))
    return pd.concat(frames, ignore_index=True)


def _try(unavailable: dict[str, str], name: str, make: Any, *args: Any) -> Any:
    """What `make` gives, or None and the reason written down."""
    try:
        return make(*args)
    except Unavailable as reason:
        unavailable[name] = str(reason)
        return None


def _steps(analysis: Analysis) -> dict[str, Any]:
    """Their number and times: on the first device, where there is one, because the CPU may run far ahead."""
    steps = analysis.index(Steps)
    device = min(steps.bounds_ns, default=None)
    times = steps.durations_ns(device)
    return {
        "kind": steps.kind,
        "source": steps.source,
        "marked": steps.marked,
        "count": len(steps),
        "device": device,
        "median_ns": int(np.median(times)),
        "min_ns": int(times.min()),
        "max_ns": int(times.max()),
    }


def _profiler(analysis: Analysis) -> dict[str, Any]:
    """How much of the CPU's step time is the profiler's own: an estimate, with its range and its basis."""
    inflation = analysis.index(Inflation)
    low, high = inflation.share_range
    return {"share": inflation.share, "low_share": low, "high_share": high, "basis": inflation.basis}


def _busy(analysis: Analysis, scope: Scope) -> list[dict[str, Any]]:
    found = []
    for device, busy in analysis.index(Busy).devices.items():
        ns = intervals.length(intervals.clip(busy, scope.start_ns, scope.end_ns))
        share = ns / scope.length_ns if scope.length_ns else 0.0
        found.append({"device": device, "busy_ns": ns, "share": share})
    return found
