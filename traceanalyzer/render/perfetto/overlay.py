"""Report and analyses -> overlays, one per trace."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, Ns, distinct, grouped, starts_of_runs
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.overlay import NO_DRIFT, Counter, Drift, Overlay, Slices
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.perfetto.finding_tracks import evidence_tracks, finding_tracks, numbered
from traceanalyzer.report.tables import depth_changes
from traceanalyzer.report.words import in_words
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.timeline.device_work import Busy, DeviceWork
from traceanalyzer.timeline.steps import Steps

MOST_SAMPLES = 20_000  # per counter: what the viewer draws without delay
_BUSY_STRETCHES = 1_000  # of the window
_LEAST_STRETCH_NS = 10_000  # shorter ones are within or between single kernels
_ABOUT = "Nothing ran on the device; a slice is named after the cause."
T = TypeVar("T")


def queue_counters(analysis: Analysis) -> Iterator[Counter]:
    work, steps = analysis.index(DeviceWork), analysis.index(Steps)
    for device in distinct(work.device).tolist():
        own = (work.device == device) & (work.call >= 0)
        at, queued = depth_changes(work.call_start_ns[own], work.end_ns[own])
        about = "Work launched but not finished; large while the CPU is ahead of the device."
        at, depth, how = drawn_curve(at, queued.astype(np.float64), steps)
        yield Counter(f"Queue depth: device {device}", at, depth, "launches", about + how)


def drawn_curve(at: Ns, value: Floats, steps: Steps) -> tuple[Ns, Floats, str]:
    """The curve, or its mean over equal stretches of the window where it changes too often."""
    if len(at) <= MOST_SAMPLES:
        return at, value, ""
    edges = _edges(steps.window_start_ns, steps.window_end_ns, MOST_SAMPLES)
    area = np.append(0.0, np.cumsum(value[:-1] * np.diff(at)))
    place = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, len(at) - 1)
    reached = area[place] + value[place] * np.maximum(edges - at[place], 0)
    mean = np.diff(reached) / np.maximum(np.diff(edges), 1)
    return edges[:-1], mean, f" Mean of every {format_ns(edges[1] - edges[0])}."


def _edges(start: int, end: int, stretches: int) -> Ns:
    count = max(1, min(stretches, (end - start) // _LEAST_STRETCH_NS))
    return start + (end - start) * np.arange(count + 1) // count


def busy_counters(analysis: Analysis) -> Iterator[Counter]:
    steps = analysis.index(Steps)
    edges = _edges(steps.window_start_ns, steps.window_end_ns, _BUSY_STRETCHES)
    about = f"Share of every {format_ns(edges[1] - edges[0])} in which any work ran on the device."
    for device, busy in analysis.index(Busy).devices.items():
        ran = intervals.covered(busy, edges[:-1], edges[1:])
        share = 100.0 * ran / np.maximum(np.diff(edges), 1)
        at, value = np.append(edges[:-1], edges[-1]), np.append(share, 0.0)
        yield Counter(f"Busy: device {device}", at, value, "%", about)


def memory_counters(analysis: Analysis) -> Iterator[Counter]:
    for device in analysis.index(MemoryView).devices:
        at = device.curve["time_ns"].to_numpy(np.int64)
        samples = min(len(at), MOST_SAMPLES)
        first = np.arange(samples) * len(at) // max(samples, 1)  # of each stretch, whose peak is shown
        for what in ("allocated", "reserved"):
            value = device.curve[f"{what}_bytes"].to_numpy(np.float64, na_value=np.nan)
            if len(at) and not np.isnan(value).any():
                peaks = np.maximum.reduceat(value, first)
                yield Counter(f"Memory {what}: {device.device}", at[first], peaks, "bytes")


def idle_tracks(analysis: Analysis) -> Iterator[Slices]:
    idle = analysis.index(IdleTime)
    for device in distinct(idle.device).tolist():
        own = idle[idle.device == device]
        yield idle_track(own[np.argsort(own.start_ns, kind="stable")], device)


def idle_track(idle: IdleTime, device: int) -> Slices:
    """Stretches that touch and have one cause and op are one: they are cut at steps only."""
    cause, op = idle.cause, idle.op.name
    start, end = idle.start_ns, idle.end_ns
    kind, first = grouped([cause.code, op.code])
    apart = starts_of_runs(kind) | np.append(True, start[1:] != end[:-1])
    last = np.append(apart[1:], True)
    return Slices(
        name=f"Idle: device {device}",
        start_ns=start[apart],
        end_ns=end[last],
        kind=kind[apart],
        names=[in_words(str(cause[row])) for row in first.tolist()],
        args=[{"cause": str(cause[row])} | ({"op": op[row]} if op[row] else {}) for row in first.tolist()],
        about=_ABOUT,
    )


def step_tracks(analysis: Analysis) -> Iterator[Slices]:
    steps = analysis.index(Steps)
    if not steps.marked:
        return
    tracks = [(f"device {device}", edges[:-1], edges[1:]) for device, edges in steps.bounds_ns.items()]
    names = [f"Step {number}" for number in steps.number.tolist()]
    args = [
        {"mark": steps.kind, "steady": steady, **({"phase": phase} if phase else {})}
        for steady, phase in zip(steps.steady.tolist(), steps.phase, strict=True)
    ]
    for name, start, end in tracks or [("CPU", steps.cpu_start_ns, steps.cpu_end_ns)]:
        yield Slices(f"Steps: {name}", start, end, np.arange(len(steps)), names, args, about=steps.source)


def overlays_of(report: Report, analysed: Sequence[tuple[int | None, Analysis]]) -> tuple[Overlay, ...]:
    """One overlay per trace that the report was made of. What a trace cannot show, such as memory, is not drawn."""
    findings, clocks, overlays = numbered(report), _clocks(report), []
    for rank, analysis in analysed:
        own = [one for one in findings if one.finding.rank == rank]
        slices = *finding_tracks(own), *_made(idle_tracks, analysis), *_made(step_tracks, analysis)
        slices = *slices, *_made(evidence_tracks, analysis, own)
        of_time = queue_counters, busy_counters, memory_counters
        counters = tuple(one for make in of_time for one in _made(make, analysis))
        meta, (ahead_ns, drift) = analysis.trace.meta, clocks.get(rank, (0, NO_DRIFT))
        drawn = Overlay(rank, meta.source, meta.base_time_ns - ahead_ns, slices=slices, counters=counters)
        overlays.append(drawn.evened(drift) if drift.ppm else drawn)
    return tuple(overlays)


def _clocks(report: Report) -> dict[int | None, tuple[int, Drift]]:
    """Rank -> what its clock reads more than the reference's in mid-window, and gains; of clocks surely off."""
    known = {one.rank: one for one in report.job.ranks} if report.job else {}
    found: dict[int | None, tuple[int, Drift]] = {}
    for trace in report.traces:
        one = known.get(-1 if trace.rank is None else trace.rank)
        if one is not None and (clock := one.clock) is not None:
            middle_ns = (trace.window.start_ns + trace.window.end_ns) // 2
            ahead = clock.ahead_within_ns(*[one.base_ns + middle_ns] * 2)
            if abs(ahead) > clock.uncertainty_ns or clock.drift_ppm:
                found[trace.rank] = ahead, Drift(clock.drift_ppm, middle_ns)
    return found


def _made(make: Callable[..., Iterator[T]], *given: object) -> tuple[T, ...]:
    try:
        return tuple(make(*given))
    except Unavailable:
        return ()
