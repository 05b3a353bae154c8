"""What the report says of each trace: file, devices, window, steps, what was not recorded."""

from __future__ import annotations

from traceanalyzer.model.report import StepsSummary, StepTimes, TraceReport
from traceanalyzer.model.trace import Device
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share
from traceanalyzer.render.text.page import Page


def put_trace(page: Page, trace: TraceReport, *, several: bool) -> None:
    """One line per part."""
    page.blank()
    meta, unavailable = trace.meta, trace.unavailable or {}
    rank = f"rank {trace.rank}: " if several or meta.rank is not None else ""
    page.pair("trace", f"{rank}{meta.source}")
    busy = {entry.device: entry.share for entry in trace.busy}
    known = {device.ordinal: device for device in meta.devices}
    for ordinal in sorted({*known, *busy}):
        page.pair(f"device {ordinal}", _device(known.get(ordinal, Device(ordinal)), busy.get(ordinal)))
    if not known and not busy:
        page.pair("device", f"none: {unavailable.get('busy', 'no event of a GPU')}")
    page.pair("window", _window(trace))
    page.pair("steps", _steps(trace.steps, unavailable.get("steps", "unknown")) + _recorded(trace))
    if trace.steps is not None and trace.steps.cold is not None:
        page.pair("cold start", _cold(trace.steps.cold))
    page.pair("events", f"{meta.events:,} read")
    if trace.missing:
        page.pair("without", f"{', '.join(trace.missing)} (not recorded)")
    for part, why in unavailable.items():
        if why.startswith("failed"):
            page.pair("failed", f"{part}: {why}")


def _device(device: Device, busy: float | None) -> str:
    known = [device.name or "name not recorded"]
    known += [f"{device.sms} SMs"] if device.sms else []
    known += [format_bytes(device.memory_bytes)] if device.memory_bytes else []
    return ", ".join(known) + ("" if busy is None else f"; busy {format_share(busy)} of the window")


def _window(trace: TraceReport) -> str:
    window = trace.window
    start, end = (format_offset(side - trace.meta.origin_ns) for side in (window.start_ns, window.end_ns))
    asked = ", as asked for with --window" if window.asked else ""
    return f"{format_ns(window.length_ns)}, from {start} to {end}{asked}"


def _steps(steps: StepsSummary | None, why: str) -> str:
    """Number, times and definition, of the steady ones where there is a cold start."""
    if steps is None:
        return f"none: {why}"
    if not steps.marked:
        return steps.source
    times = steps.every if steps.steady is None else steps.steady
    busy = "" if steps.steady is None else _while_busy(times)
    empty = f"; {steps.empty} more launched nothing" if steps.empty else ""
    cut = f"; {steps.cut} more cut by --window" if steps.cut else ""
    return f"{_times(times)}{busy} ({steps.source}){empty}{cut}"


def _recorded(trace: TraceReport) -> str:
    """What the recorded step of the verdict is, where it is another number than the median."""
    steps, step = trace.steps, trace.step
    if steps is None or step is None or step.traced_ns == (steps.steady or steps.every).median_ns:
        return ""
    sampled = step.basis.partition(" replayed")[0]
    return f"; the recorded step of {format_ns(step.traced_ns)} is the mean of those replayed, {sampled}"


def _cold(times: StepTimes) -> str:
    steps = "the first step" if times.count == 1 else f"the first {times.count} steps"
    return f"apart from these: {steps} took {format_ns(times.total_ns)}{_while_busy(times)}"


def _times(times: StepTimes) -> str:
    median, least, most = (format_ns(ns) for ns in (times.median_ns, times.min_ns, times.max_ns))
    return f"{times.count:,}; " + (f"median {median}, from {least} to {most}" if times.count > 1 else median)


def _while_busy(times: StepTimes) -> str:
    return "" if times.busy_share is None else f", device busy {format_share(times.busy_share)}"
