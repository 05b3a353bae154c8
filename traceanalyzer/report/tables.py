"""Frames for notebooks: kernels with what launched them, and how much work was queued."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.regions.regions import Regions
from traceanalyzer.report.step_parts import region_words
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls


def kernels(trace: Trace | Analysis) -> pd.DataFrame:
    """Kernels, copies and memsets by start, with the op and the call that launched each.

    Columns: event_id, device, stream, start_ns and dur_ns (int64), start_s (float64, seconds since the trace's first
    event), kind (compute, copy_h2d, ...), kernel, op and launch (names, str, null where not known), launch_event_id,
    delay_ns (from the start of the launch) and step (Int64, the mark's number).

    Raises:
        Unavailable: the trace has no GPU work.
    """
    analysis = _analysis(trace)
    work, cpu, gpu = analysis.index(DeviceWork), analysis.trace.cpu, analysis.trace.gpu
    return pd.DataFrame(
        {
            "event_id": ints(gpu, "event_id")[work.row],
            "device": work.device,
            "stream": work.stream,
            "start_ns": work.start_ns,
            "dur_ns": work.end_ns - work.start_ns,
            "start_s": (work.start_ns - analysis.trace.meta.origin_ns) / 1e9,
            "kind": pd.Categorical.from_codes(work.kind, pd.Index(KINDS)),
            "kernel": _texts(gpu, work.row),
            "op": _texts(cpu, work.op),
            "launch": _texts(cpu, work.call),
            "launch_event_id": pd.Series(pick(ints(cpu, "event_id"), work.call), dtype="Int64").mask(work.call < 0),
            "delay_ns": pd.array(work.delay_ns, "Int64").copy(),
            "step": _step_numbers(analysis),
        }
    ).assign(delay_ns=lambda made: made["delay_ns"].mask(made["delay_ns"] == NULL_INT))


def queue_depth(trace: Trace | Analysis) -> pd.DataFrame:
    """How much work each device had been given and not finished, from one change to the next.

    Columns: device, time_ns and queued (int64), time_s (float64, seconds since `Meta.origin_ns`); ordered by
    device and time. Work whose launch is not in the trace is left out.

    Raises:
        Unavailable: the trace has no GPU work.
    """
    analysis = _analysis(trace)
    work = analysis.index(DeviceWork)
    frames = [pd.DataFrame({"device": [], "time_ns": [], "queued": []}, dtype="int64")]
    for device in distinct(work.device).tolist():
        linked = np.flatnonzero((work.device == device) & (work.call >= 0))
        time, queued = depth_changes(work.call_start_ns[linked], work.end_ns[linked])
        frames.append(pd.DataFrame({"device": device, "time_ns": time, "queued": queued}))
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(time_s=(frame["time_ns"] - analysis.trace.meta.origin_ns) / 1e9)


def idle_gaps(trace: Trace | Analysis) -> pd.DataFrame:
    """Idle time of each device by start, a row per stretch of one cause, op and step.

    Columns: device, start_ns, end_ns and dur_ns (int64), start_s (float64, seconds since `Meta.origin_ns`), cause (as
    in `Report.idle`), op (in which the call lies that decided it, str, null where there is none) and step (Int64, the
    position of the step, null outside of steps).

    Raises:
        Unavailable: the trace has no GPU work.
    """
    analysis = _analysis(trace)
    idle = analysis.index(IdleTime)
    frame = pd.DataFrame(
        {
            "device": idle.device,
            "start_ns": idle.start_ns,
            "end_ns": idle.end_ns,
            "dur_ns": idle.dur_ns,
            "start_s": (idle.start_ns - analysis.trace.meta.origin_ns) / 1e9,
            "cause": pd.Series(idle.cause.values(), dtype="str"),
            "op": pd.Series(idle.op.name.values(), dtype="str"),
            "step": pd.Series(idle.step, dtype="Int64").mask(idle.step < 0),
        }
    )
    return frame.sort_values(["device", "start_ns"], kind="stable", ignore_index=True)


def depth_changes(given: Rows, done: Rows) -> tuple[Rows, Rows]:
    """Instants at which the depth changes, and the depth from there on."""
    time = distinct(np.concatenate([given, done]))
    begun = np.searchsorted(np.sort(given), time, side="right")
    return time, begun - np.searchsorted(np.sort(done), time, side="right")


def _analysis(trace: Trace | Analysis) -> Analysis:
    return trace if isinstance(trace, Analysis) else Analysis(trace)


def _texts(frame: pd.DataFrame, rows: Rows) -> pd.Series[str]:
    """Names of rows, null for -1."""
    return frame["name"].astype("object").reindex(rows).reset_index(drop=True).astype("str").where(rows >= 0)


def _step_numbers(analysis: Analysis) -> pd.Series[int]:
    """Numbers of the steps that launched the work; null where none did or none are marked."""
    work, steps = analysis.index(DeviceWork), analysis.index_or_none(Steps)
    if steps is None:
        return pd.Series([pd.NA] * len(work.row), dtype="Int64")
    known = (steps.of_work >= 0) & steps.marked
    return pd.Series(np.append(steps.number, 0)[steps.of_work], dtype="Int64").mask(~known)


LISTS = ("kernels", "copies", "syncs", "gaps", "annotations")
"""What `listed_events` lists."""


def listed_events(trace: Trace | Analysis, what: str, step: int | None = None) -> pd.DataFrame:
    """Events of one sort by name, the one with the most time first.

    Columns: name, count, total_ns, mean_ns, min_ns, max_ns (int64), share (of the time of all that are listed, 0 to
    1), bytes (int64, of copies, else 0), op, region and line (those with most of the time, null where not known).

    Args:
        what: one of `LISTS`; gaps are idle time of a device by cause.
        step: number of the only step whose events are listed; the trace's own number.

    Raises:
        Unavailable: the trace has no GPU work, or no such step.
    """
    analysis = _analysis(trace)
    events = _events_of(analysis, what)
    if step is not None:
        numbers = analysis.index(Steps).number
        if step not in numbers.tolist():
            raise Unavailable(f"no step {step}: the trace has {', '.join(map(str, numbers.tolist()))}")
        events = events[np.append(numbers, -1)[events.step] == step]
    return _by_name(events, analysis.index_or_none(Regions))


def _events_of(analysis: Analysis, what: str) -> Calls | Work | IdleTime:
    if what == "gaps":
        return analysis.index(IdleTime)
    if what in ("kernels", "copies"):
        work = analysis.index(Work)
        copies = work.kind.matches("^copy")
        return work[copies] if what == "copies" else work[~copies & ~work.kind.matches("memset")]
    calls = analysis.index(Calls)
    if what == "annotations":
        return calls[calls.events.nesting.annotation[calls.rows]]
    waits = analysis.index(SyncCalls)
    return Calls(calls.events, waits.row[~waits.profiler])


def _region_of(regions: Regions, events: Calls | Work | IdleTime) -> str | None:
    """The region of the code in which the CPU launched most of them, or was as they began; None outside of steps."""
    tree, pieces = regions.tree, regions.tree.pieces
    starts = events.launch.start_ns if isinstance(events, Work) else events.start_ns
    at = pieces.at(starts)
    inside = (pieces.start_ns[at] <= starts) & (starts < pieces.end_ns[at])
    times: Counter[str] = Counter()
    for node in distinct(pieces.node[at[inside]]).tolist():
        region, time_ns = node, int(events.dur_ns[inside & (pieces.node[at] == node)].sum())
        while tree.kind[region] in ("op", "backward") and tree.parent[region] > 0:
            region = int(tree.parent[region])
        times[region_words(regions, region)] += time_ns
    return max(times, key=lambda name: (times[name], name), default=None)


def _by_name(events: Calls | Work | IdleTime, regions: Regions | None) -> pd.DataFrame:
    every = max(int(events.dur_ns.sum()), 1)
    times = ("count", "total_ns", "mean_ns", "min_ns", "max_ns")
    keys = events.cause if isinstance(events, IdleTime) else events.name
    table = [
        (
            str(name),
            len(same),
            int(same.dur_ns.sum()),
            int(same.dur_ns.mean()),
            int(same.dur_ns.min()),
            int(same.dur_ns.max()),
            float(same.dur_ns.sum()) / every,
            int(same.bytes.sum()) if isinstance(same, Work) else 0,
            next(iter(same.op.name.sums(same.dur_ns)), None),
            None if regions is None else _region_of(regions, same),
            next(iter((same.launch if isinstance(same, IdleTime) else same).line.sums(same.dur_ns)), None),
        )
        for name, same in events.by(keys)
    ]
    frame = pd.DataFrame(table, columns=["name", *times, "share", "bytes", "op", "region", "line"])
    return frame.sort_values("total_ns", ascending=False, ignore_index=True)
