"""The analysed window and the steps within it, on the CPU and on each device; `StepMarks` says how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.analysis import Window
from traceanalyzer.model.arrays import Mask, Ns
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.step_marks import StepMarks

_WHOLE = 0.99  # of a step: offsets as a report prints them are rounded, and cut less off


@dataclass(frozen=True, slots=True)
class Steps:
    """The analysed window and the steps in it.

    Attributes:
        window_start_ns, window_end_ns: what is analysed, the user's --window if there is one.
        asked: whether the user asked for a part of the trace.
        kind, source: as in `StepMarks`.
        number, cpu_start_ns, cpu_end_ns: int64 (steps,), as in `StepMarks`, of the steps in the window.
        bounds_ns: device -> int64 (steps + 1,), where the steps begin and end there, within the window.
        of_work: int64 (work,), parallel to `DeviceWork`: the step that launched it, -1 for none of these.
        steady: bool (steps,), neither a cold leading step nor an empty one at the end, judged in the whole trace.
        phase, batch: (steps,), as in `StepMarks`.
        capturing: bool (steps,), whether a CUDA graph is captured in it, and in others none.
        cut: bool (steps,), whether the user's window leaves a part of it out on a device.
        warm: whether the trace holds a step, or a part of one, before the first one.
    """

    window_start_ns: int
    window_end_ns: int
    asked: bool
    kind: str
    source: str
    number: Ns
    cpu_start_ns: Ns
    cpu_end_ns: Ns
    bounds_ns: Mapping[int, Ns]
    of_work: Ns
    steady: Mask
    phase: tuple[str | None, ...]
    batch: Ns
    capturing: Mask
    cut: Mask
    warm: bool

    def __len__(self) -> int:
        return len(self.number)

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.window_end_ns - self.window_start_ns

    @property
    def marked(self) -> bool:
        """Whether steps are marked at all."""
        return self.kind != "window"

    @property
    def in_use(self) -> tuple[int, int]:
        """First and last step (exclusive) that launched work; all where none did."""
        launched = self.of_work[self.of_work >= 0]
        return (int(launched.min()), int(launched.max()) + 1) if len(launched) else (0, len(self))

    @property
    def working(self) -> int:
        """How many there are from the first that launched work to the last: what lies at the ends does nothing."""
        first, last = self.in_use
        return last - first

    def durations_ns(self, device: int | None = None) -> Ns:
        """Duration of each step, (steps,): on a device, or from mark to mark on the CPU.

        What the profiler did meanwhile is part of it.

        Raises:
            ValueError: no work of that device was recorded.
        """
        if device is not None and device not in self.bounds_ns:
            raise ValueError(f"device {device} has no work: the devices are {sorted(self.bounds_ns)}")
        marks = np.append(self.cpu_start_ns, self.cpu_end_ns[-1:])
        edges = marks if device is None else self.bounds_ns[device]
        return edges[1:] - edges[:-1]

    def at(self, device: int, instants: Ns) -> Ns:
        """Position of the step in which each instant lies on that device; -1 before the first."""
        found = np.searchsorted(self.bounds_ns[device][:-1], instants, side="right") - 1
        return np.asarray(found, np.int64)

    def at_cpu(self, instants: Ns) -> Ns:
        """Position of the step in which each instant lies on the CPU; -1 before the first mark."""
        return np.asarray(np.searchsorted(self.cpu_start_ns, instants, side="right") - 1, np.int64)

    @classmethod
    def build(cls, marks: StepMarks, window: Window) -> Self:
        low, high = _clipped(window.asked_ns, *marks.whole_ns)
        inside = np.arange(len(marks.number)) if window.asked_ns is None else _overlapping(marks, low, high)
        first, last = int(inside[0]), int(inside[-1]) + 1
        chosen = slice(first, last)
        edges = {device: np.clip(of[first : last + 1], low, high) for device, of in marks.bounds_ns.items()}
        of_work = marks.of_work
        of_work = np.where((of_work >= first) & (of_work < last), of_work - first, -1)
        return cls(
            window_start_ns=low,
            window_end_ns=high,
            asked=window.asked_ns is not None,
            kind=marks.kind,
            source=marks.source,
            number=marks.number[chosen],
            cpu_start_ns=marks.cpu_start_ns[chosen],
            cpu_end_ns=marks.cpu_end_ns[chosen],
            bounds_ns=edges,
            of_work=of_work,
            steady=marks.steady[chosen],
            phase=marks.phase[chosen],
            batch=marks.batch[chosen],
            capturing=marks.capturing[chosen],
            cut=_cut(marks, edges, first, last),
            warm=first > 0 or marks.amid,
        )


def _cut(marks: StepMarks, edges: Mapping[int, Ns], first: int, last: int) -> Mask:
    """Which of the steps [first, last) are shorter between these edges than they are, on any device."""
    cut = np.zeros(last - first, bool)
    for device, bounds in marks.bounds_ns.items():
        cut |= np.diff(edges[device]) < _WHOLE * np.diff(bounds[first : last + 1])
    return cut


def _overlapping(marks: StepMarks, low: int, high: int) -> Ns:
    """Positions of the steps that lie in the analysed part: on a device, or where there is none on the CPU.

    Where none does, because that part ends before the first step, it is the first one, without length.
    """
    bounds = marks.bounds_ns.values()
    on_cpu = (marks.cpu_start_ns < high) & (marks.cpu_end_ns > low)
    inside = np.zeros(len(marks.number), bool) if bounds else on_cpu
    for edges in bounds:
        inside |= (edges[:-1] < high) & (edges[1:] > low)
    return np.flatnonzero(inside) if inside.any() else np.zeros(1, np.int64)


def _clipped(asked: tuple[int, int] | None, start: int, end: int) -> tuple[int, int]:
    """
    Raises:
        Unavailable: the window that was asked for misses the trace.
    """
    if asked is None:
        return start, end
    low, high = max(start, asked[0]), min(end, asked[1])
    if low >= high:
        raise Unavailable("the window that was asked for lies outside the trace")
    return low, high
