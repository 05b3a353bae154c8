"""What the head of a report says of each trace: window, steps, how busy each device was, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.job.loads import RankLoads
from traceanalyzer.job.ranks import Ranks
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Ns, distinct, median
from traceanalyzer.model.device_times import DeviceBusy
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.report import AnalysedWindow, StepsSummary, StepTimes, TraceReport
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace, ints, ints_at, matching
from traceanalyzer.rule.grouping import Scope
from traceanalyzer.timeline.device_work import Busy
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

T = TypeVar("T")

_LEAST_STEPS = 3  # fewer cannot tell a cold start from steps that differ
ALL_CUT = ", all cut by --window"  # the end of the source of steps of which the window holds parts only
_COLD_TIMES = 4.0  # the later steps: first steps of warm loops reach 3.2 (H200), of cold ones 13 to 1,386

_TIME_TYPES = {"rank": "Int64", "device": "int64", "step": "Int64"}
_TIME_TYPES |= {"class": "str", "cause": "str", "op": "str", "ns": "int64"}


def span_of(trace: Trace) -> tuple[int, int]:
    """From the start of the first event to the end of the last, in ns as in the frames."""
    lanes = [lane for lane in (trace.lanes.cpu, trace.lanes.gpu) if len(lane)]
    ends = [int((ints(lane, "start_ns") + ints(lane, "dur_ns")).max()) for lane in lanes]
    return trace.meta.origin_ns, max(ends, default=trace.meta.origin_ns)


def scope_of(analysis: Analysis, rank: int | None) -> Scope:
    """The analysed window that costs are shares of."""
    steps = attempt({}, "steps", lambda: analysis.index(Steps), None)
    dialect = analysis.trace.meta.dialect
    if steps is None:
        asked = analysis.window.asked_ns
        return Scope(rank, *(asked or span_of(analysis.trace)), asked=asked is not None, dialect=dialect)
    return Scope(rank, steps.window_start_ns, steps.window_end_ns, steps.working, steps.asked, dialect)


def summarise(analysis: Analysis, rank: int | None) -> TraceReport:
    """The head of one trace's report, without estimates and verdict; what cannot be computed says why."""
    scope, meta = scope_of(analysis, rank), analysis.trace.meta
    unavailable: dict[str, str] = {}
    return TraceReport(
        rank=rank,
        meta=meta,
        window=AnalysedWindow(scope.start_ns, scope.end_ns, analysis.window.asked_ns is not None),
        steps=attempt(unavailable, "steps", lambda: _steps(analysis), None),
        busy=attempt(unavailable, "busy", lambda: _busy(analysis, scope), ()),
        accounting=attempt(unavailable, "accounting", lambda: analysis.index(Accounting).summaries, ()),
        waiting_ns=attempt({}, "waiting", lambda: round(analysis.index(RankLoads).own.waiting_ns), None),
        missing=tuple(name for name, there in meta.capabilities.items() if not there),
        unavailable=unavailable,
    )


def attempt(unavailable: dict[str, str], name: str, make: Callable[[], T], otherwise: T) -> T:
    """What `make` gives; where it cannot, or fails in any way, `otherwise`, and the reason is written down."""
    try:
        return make()
    except Unavailable as reason:
        unavailable[name] = str(reason)
    except Exception as error:  # a fault in one part of the head costs neither the others nor the findings
        import logging

        logging.getLogger(__name__).debug("%s failed", name, exc_info=True)
        unavailable[name] = f"failed: {type(error).__name__}: {error}"
    return otherwise


def _busy(analysis: Analysis, scope: Scope) -> tuple[DeviceBusy, ...]:
    found = []
    for device, busy in analysis.index(Busy).devices.items():
        ns = intervals.length(intervals.clip(busy, scope.start_ns, scope.end_ns))
        found.append(DeviceBusy(device, ns, ns / scope.length_ns if scope.length_ns else 0.0))
    return tuple(found)


def _steps(analysis: Analysis) -> StepsSummary:
    """Their number and times: on the first device, where there is one, because the CPU may run far ahead."""
    steps = analysis.index(Steps)
    device = min(steps.bounds_ns, default=None)
    begin, end = steps.in_use
    # Those that the window holds whole, which are in the middle; all if there are none.
    whole = begin + np.flatnonzero(~steps.cut[begin:end])
    first, last = (int(whole[0]), int(whole[-1]) + 1) if len(whole) else (begin, end)
    durations = steps.durations_ns(device)[first:last]
    cold = _cold(durations) if steps.marked else 0

    def times(begin: int, end: int) -> StepTimes:
        return _times(analysis, steps, device, first + begin, first + end)

    return StepsSummary(
        kind=steps.kind,
        source=steps.source + ALL_CUT * bool(steps.marked and steps.cut[first:last].any()),
        marked=steps.marked,
        device=device,
        empty=len(steps) - (end - begin),
        every=times(0, len(durations)),
        cold=times(0, cold) if cold else None,
        steady=times(cold, len(durations)) if cold else None,
        cut=(end - begin) - (last - first),
        left_out_ns=steps.left_out_ns,
    )


def _cold(durations: Ns) -> int:
    """Number of leading steps that took much longer than the later half; 0 where they are not a minority."""
    if len(durations) < _LEAST_STEPS:
        return 0
    steady = median(durations[len(durations) // 2 :])
    slow = durations > _COLD_TIMES * steady
    leading = int(np.argmin(slow)) if not slow.all() else len(durations)
    return leading if 2 * leading <= len(durations) else 0


def _times(analysis: Analysis, steps: Steps, device: int | None, first: int, last: int) -> StepTimes:
    durations = steps.durations_ns(device)[first:last]
    total = int(durations.sum())
    busy = None
    if device is not None and total:
        edges = steps.bounds_ns[device]
        ran = intervals.clip(analysis.index(Busy).devices[device], int(edges[first]), int(edges[last]))
        busy = intervals.length(ran) / total
    middle, least, most = (int(of(durations)) for of in (median, np.min, np.max))
    return StepTimes(len(durations), middle, least, most, total, busy)


def accounting_of(ranks: Ranks) -> pd.DataFrame:
    """One row per rank, device, step, class, cause and op: what they took of the window, in ns."""
    none = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _TIME_TYPES.items()})
    frames = ranks.each(_accounting_rows, {rank: rank for rank in ranks.all})
    return pd.concat([none, *frames.values()], ignore_index=True)


def _accounting_rows(analysis: Analysis, rank: int | None, _: None) -> pd.DataFrame:
    idle, steps = analysis.index(Idle), analysis.index(Steps)
    made = analysis.index(Accounting).frame(analysis.trace, idle, steps)
    return made.assign(rank=pd.array([rank] * len(made), "Int64"))[list(_TIME_TYPES)].astype(_TIME_TYPES)


OPS, FILES, WAITS, OTHER = "ops", "files", "waits", "outside"
# Calls of the interpreter as torch.profiler names them.
_CALLS = {
    FILES: regex(
        r"^<built-in function (?:open|stat|scandir|listdir)\b|PyTorchFile(?:Reader|Writer)"
        r"|^<built-in method (?:read|readinto|readline|readlines|write|flush) of _io\.(?:File|Buffered|Text)"
    ),
    WAITS: regex(
        r"^<built-in function (?:sleep|read|select|waitpid)\b"
        r"|^<built-in method (?:acquire|poll|select|recv|recv_into|wait)\b"
    ),
}


def cpu_use(analysis: Analysis) -> tuple[Mapping[str, float], int]:
    """(shares of the steps' time in ops, files, waits for other threads or processes, and outside; threads with ops).

    What happens at once counts as ops, then as files. Files and waits need recorded Python calls. With GPU work: empty.
    """
    events = analysis.index(Events)
    nesting, steps, lanes = events.nesting, events.steps, events.trace.lanes
    span = intervals.union(steps.cpu_start_ns, steps.cpu_end_ns)
    whole_ns = intervals.length(span)
    tops = np.flatnonzero((nesting.op >= 0) & ~nesting.annotation)
    if events.work is not None or not whole_ns or not len(tops):
        return {}, 0
    parts = {OPS: intervals.union(nesting.start_ns[tops], nesting.end_ns[tops])}
    threads = distinct(ints_at(lanes.cpu, "tid", tops))
    if events.trace.meta.rows.get("python"):
        start, tid = ints(lanes.python, "start_ns"), ints(lanes.python, "tid")
        end = start + ints(lanes.python, "dur_ns")
        for part, pattern in _CALLS.items():
            calls = matching(lanes.python, "name", pattern.search) & np.isin(tid, threads)
            parts[part] = intervals.union(start[calls], end[calls])
    left, shares = span, {}
    for part, members in parts.items():
        rest = intervals.difference(left, members)
        shares[part] = (intervals.length(left) - intervals.length(rest)) / whole_ns
        left = rest
    return {**shares, OTHER: intervals.length(left) / whole_ns}, len(threads)
