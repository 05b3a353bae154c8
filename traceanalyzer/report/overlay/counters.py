"""Counters: how much work is queued, how busy each device is, and how much memory is allocated.

A viewer slows down with many samples: curves with more than `MOST_SAMPLES` changes are drawn by their mean, memory by
its maximum, in as many equal stretches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, Ns, distinct
from traceanalyzer.model.overlay import Counter
from traceanalyzer.model.units import format_ns
from traceanalyzer.timeline.device_work import Busy, DeviceWork
from traceanalyzer.timeline.steps import Steps

MOST_SAMPLES = 20_000  # per counter: what the viewer draws without delay
_BUSY_STRETCHES = 1_000  # of the window
_LEAST_STRETCH_NS = 10_000  # shorter ones are within or between single kernels

Values = Floats


def queue_counters(analysis: Analysis) -> Iterator[Counter]:
    """Per device: work that was launched and has not finished.

    Raises:
        Unavailable: nothing ran on a device.
    """
    work, steps = analysis.index(DeviceWork), analysis.index(Steps)
    for device in distinct(work.device).tolist():
        own = (work.device == device) & (work.call >= 0)
        at, depth = _depth(work.call_start_ns[own], work.end_ns[own])
        about = "Work launched but not finished; large while the CPU is ahead of the device."
        at, depth, how = _drawn(at, depth, steps)
        yield Counter(f"Queue depth: device {device}", at, depth, "launches", about + how)


def _depth(launched: Ns, finished: Ns) -> tuple[Ns, Values]:
    """(instants of change, work queued from then on)."""
    instants = np.concatenate((launched, finished))
    change = np.repeat((1, -1), len(launched))
    order = np.argsort(instants, kind="stable")
    last = np.append(np.diff(instants[order]) > 0, True)[: len(order)]
    return instants[order][last], np.cumsum(change[order])[last].astype(np.float64)


def _drawn(at: Ns, value: Values, steps: Steps) -> tuple[Ns, Values, str]:
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
    """Edges of equal stretches, none shorter than it needs to be."""
    count = max(1, min(stretches, (end - start) // _LEAST_STRETCH_NS))
    return start + (end - start) * np.arange(count + 1) // count


def busy_counters(analysis: Analysis) -> Iterator[Counter]:
    """Per device: the share of each thousandth of the window in which anything ran, in percent.

    Raises:
        Unavailable: nothing ran on a device.
    """
    steps = analysis.index(Steps)
    edges = _edges(steps.window_start_ns, steps.window_end_ns, _BUSY_STRETCHES)
    about = f"Share of every {format_ns(edges[1] - edges[0])} in which any work ran on the device."
    for device, busy in analysis.index(Busy).devices.items():
        ran = intervals.covered(busy, edges[:-1], edges[1:])
        share = 100.0 * ran / np.maximum(np.diff(edges), 1)
        at, value = np.append(edges[:-1], edges[-1]), np.append(share, 0.0)
        yield Counter(f"Busy: device {device}", at, value, "%", about)


def memory_counters(analysis: Analysis) -> Iterator[Counter]:
    """Per allocator: allocated and reserved bytes.

    Raises:
        Unavailable: no memory events were recorded.
    """
    for device in analysis.index(MemoryView).devices:
        at = device.curve["time_ns"].to_numpy(np.int64)
        for what in ("allocated", "reserved"):
            value = device.curve[f"{what}_bytes"].to_numpy(np.float64, na_value=np.nan)
            if len(at) and not np.isnan(value).any():
                yield Counter(f"Memory {what}: {device.device}", *_peaks(at, value), "bytes")


def _peaks(at: Ns, value: Values) -> tuple[Ns, Values]:
    """The curve, or the maximum of every stretch of samples where there are too many: no peak is lost."""
    if len(at) <= MOST_SAMPLES:
        return at, value
    first = np.arange(MOST_SAMPLES) * len(at) // MOST_SAMPLES
    return at[first], np.maximum.reduceat(value, first)
