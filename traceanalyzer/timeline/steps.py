"""Where steps begin and end in the trace and in the analysed window, on the CPU and on each device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Window
from traceanalyzer.model.arrays import Mask, Ns, distinct, median, medians
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.model.units import format_ns
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.device_work import MIN_LOST, NO_WORK, DeviceWork, LostRecords
from traceanalyzer.timeline.mark_search import (
    FROM_THE_START,
    SERVING,
    Marks,
    find_marks,
    iterations_within,
    phase_and_batch,
)
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.recording_edges import known_from
from traceanalyzer.timeline.synchronisation import SyncCalls

Span = tuple[int, int]

_WHOLE = 0.99  # share of a step: offsets as a report prints them are rounded, and cut less off
# In 95 recordings (V100 to H200) warm loops on a busy device have first steps of up to 1.2 times the later ones, loops
# that start on an idle device of 1.3 to 3, and cold ones of 1.8 to 1,400.
_COLD = 1.5
_MUCH_UNSEEN_NS = 1_000_000  # less is lost in any recording's start; chosen
_LOST = 0.01  # of a step's launches; none of 100 recordings, V100 to MI300, lost more in all
_EMPTY = 0.1  # an empty step took 1/190 of the step before it (MI250, torch 2.x); a real one is no tenth of the others


@dataclass(frozen=True, slots=True)
class MarkedSteps:
    """Steps as they are marked on the CPU, and the work that each of them launched.

    Attributes:
        kind: "ProfilerStep", "Optimizer.step", the name of another mark, or "window" if nothing marks steps.
        source: one sentence that says which definition this is.
        number: int64 (steps,), as in the mark, else counted from 0.
        cpu_start_ns, cpu_end_ns: int64 (steps,), the marks on the CPU lane.
        bounds_ns: device -> int64 (steps + 1,), where the steps begin and end on that device. The first bound
            may lie after the window's start: work of an earlier step that the recording caught belongs to none.
        of_work: int64 (work,), parallel to `DeviceWork`: the step that launched it, -1 for none of these.
        steady: bool (steps,), neither a cold leading step nor an empty one at the end of the whole trace.
        phase: (steps,), what a serving engine calls the step ("prefill", "decode", ..), None for others.
        batch: int64 (steps,), requests in it as its mark says, -1 for unknown.
        capturing: bool (steps,), whether a CUDA graph is captured in it and none in other steps.
        open_end: whether nothing marks the end of the last step, so that a part of it may be missing.
        damaged: bool (steps,), whether launches in it lost their work and other steps are whole.
    """

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
    open_end: bool
    damaged: Mask

    def __len__(self) -> int:
        return len(self.number)


def between_marks(steps: MarkedSteps, nesting: Nesting) -> intervals.Set:
    """From the end of each mark of a server to the next mark: it schedules, and handles tokens; else empty."""
    if steps.kind != SERVING:
        return intervals.EMPTY
    rows = np.flatnonzero(nesting.annotation & np.isin(nesting.start_ns, steps.cpu_start_ns))
    ends = steps.cpu_start_ns.copy()
    np.maximum.at(ends, np.searchsorted(steps.cpu_start_ns, nesting.start_ns[rows]), nesting.end_ns[rows])
    return intervals.union(ends, np.maximum(steps.cpu_end_ns, ends))


@dataclass(frozen=True, slots=True)
class StepMarks(MarkedSteps):
    """All steps of the trace, whatever part of it is analysed.

    The window reaches from the first step's start or the first work, whichever is earlier, to the last step's end or
    the end of the last work. Steps tile it on each device: a step there is the work that its launches started, not
    what overlaps the CPU's mark, because a GPU-bound loop runs far behind the CPU. The boundary before a step is its
    CPU start or the end of all work launched before it, whichever is later.

    Attributes:
        whole_ns: the window [start, end) of the whole trace.
        left_out_ns: what of the recording lies before the window and after it.
        known_ns: device -> ns from which on the recording tells what it did, as in `recording_edges`.
        amid: whether the recording began amid a step, which launched work before the first mark.
    """

    whole_ns: tuple[int, int]
    left_out_ns: tuple[int, int]
    known_ns: Mapping[int, int]
    amid: bool

    @classmethod
    def build(
        cls, trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork | None, lost: LostRecords
    ) -> Self:
        work = NO_WORK if work is None else work
        first, last = _whole(trace, nesting, syncs, work)
        whole, marks = _window_and_marks(trace, nesting, syncs, work, first, last)
        recorded = whole[0]
        in_mark_ns = None if marks.kind in FROM_THE_START else int(marks.start_ns[0])
        known_ns = known_from(trace, nesting, syncs, work, marks.start_ns, recorded, in_mark_ns)
        whole = min(known_ns.values(), default=recorded), whole[1]
        marks = _within(marks, whole, nesting, syncs, work)
        marks = iterations_within(trace, nesting, syncs, work, marks)
        unseen_ns = whole[0] - recorded
        unseen = f"; the first {format_ns(unseen_ns)} of the recording have no GPU events and are left out"
        begun = captures(trace, nesting).begin_ns
        capturing = _of_some(np.searchsorted(begun, marks.end_ns) > np.searchsorted(begun, marks.start_ns))
        damaged = _damaged(lost, nesting, marks, work)
        of_work = _step_of_work(work, marks.start_ns, marks.kind)
        bounds = _bounds(work, marks.start_ns, of_work, whole)
        serving = [phase_and_batch(name) for name in marks.names] or [(None, -1)] * len(marks.number)
        return cls(
            whole_ns=whole,
            left_out_ns=(max(whole[0] - first, 0), max(last - whole[1], 0)),
            kind=marks.kind,
            source=marks.source + unseen * (unseen_ns >= _MUCH_UNSEEN_NS) + steps_that_capture(capturing),
            number=marks.number,
            cpu_start_ns=marks.start_ns,
            cpu_end_ns=marks.end_ns,
            bounds_ns=bounds,
            of_work=of_work,
            steady=_steady(marks, bounds, of_work, capturing | damaged),
            phase=tuple(phase for phase, _ in serving),
            batch=np.array([batch for _, batch in serving], np.int64),
            capturing=capturing,
            open_end=marks.open_end,
            damaged=damaged,
            known_ns=known_ns,
            amid=bool((of_work[work.call >= 0] < 0).any()),
        )


def _window_and_marks(
    trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork, start: int, end: int
) -> tuple[Span, Marks]:
    marks = find_marks(trace, nesting, start, end)
    if marks.kind == "window" and len(work.row):
        # Nobody knows whether what the CPU does after the last work, its op and the last wait belongs to what repeats.
        launched = work.call[work.call >= 0]
        top = nesting.top_op(launched)
        ends = work.end_ns, nesting.end_ns[np.where(top >= 0, top, launched)], syncs.end_ns[~syncs.profiler]
        end = min(end, int(np.concatenate(ends).max()))
        marks = replace(marks, end_ns=np.array([end]))
    if marks.kind == "ProfilerStep":
        start, end = int(marks.start_ns[0]), int(marks.end_ns[-1])
        if len(work.row):
            # The work before unlinked work is not in the file: until then nobody can say whether the device was idle.
            first = int(work.start_ns[0])
            start, end = first if work.call[0] < 0 else min(start, first), max(end, int(work.end_ns.max()))
    return (start, end), marks


def _of_some(unusual: Mask) -> Mask:
    return unusual & ~unusual.all()


def _damaged(lost: LostRecords, nesting: Nesting, marks: Marks, work: DeviceWork) -> Mask:
    """Which steps lost the work of more than a few of their launches, where others did not; bool (steps,)."""

    def in_steps(rows: Ns) -> Ns:
        step = np.searchsorted(marks.start_ns, nesting.start_ns[rows], side="right") - 1
        return np.bincount(step[step >= 0], minlength=len(marks.number))

    missing, launched = in_steps(lost.launch), in_steps(distinct(work.call[work.call >= 0]))
    return _of_some((missing > _LOST * (missing + launched)) & (len(lost.launch) >= MIN_LOST))


def steps_that_capture(capturing: Mask) -> str:
    count = int(capturing.sum())
    if not count:
        return ""
    verb = "captures a CUDA graph" if count == 1 else "capture CUDA graphs"
    return f"; {count} of {len(capturing)} {verb}, once each, and do not count as the usual step"


def _within(marks: Marks, whole: Span, nesting: Nesting, syncs: SyncCalls, work: DeviceWork) -> Marks:
    """The marks; an edge of the recording that stands for one is where it begins to tell, or where the CPU ends."""
    begins, ends = marks.start_ns.copy(), marks.end_ns.copy()
    if marks.kind in FROM_THE_START:
        launched = int(work.call_start_ns[0]) if (work.call[:1] >= 0).any() else whole[0]
        begins[0] = min(max(int(begins[0]), min(whole[0], launched)), int(ends[0]))
    counted = nesting.thread >= 0
    counted[syncs.row[syncs.profiler]] = False
    if marks.open_end and counted.any():
        ends[-1] = max(min(int(ends[-1]), int(nesting.end_ns[counted].max())), int(begins[-1]) + 1)
    return replace(marks, start_ns=begins, end_ns=ends)


def _whole(trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork) -> Span:
    """From the first row to the last, less the profiler's own rows, within what the profiler says it recorded."""
    counts = nesting.thread >= 0
    counts[syncs.row[syncs.profiler]] = False
    rows = np.flatnonzero(counts)
    starts, ends = nesting.start_ns[rows], nesting.end_ns[rows]
    if trace.meta.window_ns is not None:  # rows still running at the end are written far beyond it
        ends = np.minimum(ends, np.maximum(starts, trace.meta.window_ns[1]))
    starts, ends = np.append(starts, work.start_ns), np.append(ends, work.end_ns)
    if len(starts) == 0:
        raise Unavailable("the trace has no rows on either lane")
    return int(starts.min()), int(ends.max())


def _steady(marks: Marks, bounds: Mapping[int, Ns], of_work: Ns, unusual: Mask) -> Mask:
    """Which steps tell how long a step takes: none that are unusual, cold, or empty at the end."""
    count = len(marks.number)
    steady = np.ones(count, bool)
    edges = [*bounds.values()] or [np.append(marks.start_ns, marks.end_ns[-1:])]
    took = np.stack([np.diff(of_device) for of_device in edges])
    launched = np.bincount(of_work[of_work >= 0], minlength=count)
    on_cpu = marks.end_ns - marks.start_ns
    # prof.step() leaves an empty step when the recording stops.
    if count > 1 and launched[-1] == 0 and on_cpu[-1] < _EMPTY * median(on_cpu[:-1]):
        steady[-1] = False
    full = int(steady.sum())
    # Leading steps, at most half of all, that take long against the later half.
    usual = medians(took[:, full // 2 : full])[:, None]
    cold = (took[:, : full // 2] > _COLD * usual).any(axis=0)
    steady[: int(np.cumprod(cold).sum())] = False
    return np.asarray(steady & ~unusual)


def _step_of_work(work: DeviceWork, begins: Ns, kind: str) -> Ns:
    """By the launch's start; unlinked work goes with the work before it, since a device runs in order."""
    if kind == "window":
        return np.zeros(len(work.row), np.int64)
    step = np.searchsorted(begins, work.call_start_ns, side="right") - 1
    linked = np.where(work.call >= 0, np.arange(len(step)), -1)
    for device in distinct(work.device):
        of_device = work.device == device
        last = np.maximum.accumulate(linked[of_device])
        if last[-1] < 0:  # nothing on this device is linked: what is left is where it lies
            step[of_device] = np.searchsorted(begins, work.start_ns[of_device], side="right") - 1
        else:
            step[of_device] = np.where(last >= 0, step[np.maximum(last, 0)], -1)
    return np.asarray(step, np.int64)


def _bounds(work: DeviceWork, begins: Ns, of_work: Ns, window: Span) -> dict[int, Ns]:
    bounds = {}
    for device in distinct(work.device).tolist():
        of_device = work.device == device
        latest = np.full(len(begins) + 1, window[0])
        np.maximum.at(latest, of_work[of_device] + 1, work.end_ns[of_device])
        # Not before all work launched earlier has ended.
        inner = np.maximum(np.maximum.accumulate(latest)[:-1], begins)
        if not (of_work[of_device] < 0).any():
            inner[0] = window[0]
        bounds[device] = np.clip(np.append(inner, window[1]), *window)
    return bounds


@dataclass(frozen=True, slots=True)
class Steps(MarkedSteps):
    """The analysed window and the steps in it; `bounds_ns` lie within the window.

    Attributes:
        window_start_ns, window_end_ns: what is analysed, the user's --window if there is one.
        asked: whether the user asked for a part of the trace.
        cut: bool (steps,), whether the user's window leaves a part of it out on a device.
        warm: whether the trace holds a step, or a part of one, before the first one.
        left_out_ns: what of the recording lies before the window and after it; nothing where the user asked for one.
    """

    window_start_ns: int
    window_end_ns: int
    asked: bool
    cut: Mask
    warm: bool
    left_out_ns: tuple[int, int] = (0, 0)

    @property
    def window_ns(self) -> int:
        return self.window_end_ns - self.window_start_ns

    @property
    def marked(self) -> bool:
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

        What the profiler did meanwhile is part of it. Raises ValueError: no work of that device was recorded.
        """
        if device is not None and device not in self.bounds_ns:
            raise ValueError(f"device {device} has no work: the devices are {sorted(self.bounds_ns)}")
        marks = np.append(self.cpu_start_ns, self.cpu_end_ns[-1:])
        return np.diff(marks if device is None else self.bounds_ns[device])

    def at(self, device: int, instants: Ns) -> Ns:
        """Position of the step in which each instant lies on that device; -1 before the first."""
        position = np.searchsorted(self.bounds_ns[device][:-1], instants, side="right") - 1
        return np.asarray(position, np.int64)

    def at_cpu(self, instants: Ns) -> Ns:
        """Position of the step in which each instant lies on the CPU; -1 before the first mark."""
        return np.asarray(np.searchsorted(self.cpu_start_ns, instants, side="right") - 1, np.int64)

    @classmethod
    def build(cls, marks: StepMarks, window: Window) -> Self:
        low, high = marks.whole_ns
        if window.asked_ns is not None:
            low, high = max(low, window.asked_ns[0]), min(high, window.asked_ns[1])
            if low >= high:
                raise Unavailable("the window that was asked for lies outside the trace")
        inside = np.arange(len(marks.number)) if window.asked_ns is None else _overlapping(marks, low, high)
        first, last = int(inside[0]), int(inside[-1]) + 1
        edges = {device: np.clip(ns[first : last + 1], low, high) for device, ns in marks.bounds_ns.items()}
        within = (marks.of_work >= first) & (marks.of_work < last)
        by_step = ("number", "cpu_start_ns", "cpu_end_ns", "steady", "phase", "batch", "capturing", "damaged")
        return cls(
            kind=marks.kind,
            source=marks.source,
            bounds_ns=edges,
            of_work=np.where(within, marks.of_work - first, -1),
            window_start_ns=low,
            window_end_ns=high,
            asked=window.asked_ns is not None,
            cut=_cut(marks, edges, first, last),
            open_end=marks.open_end and last == len(marks.number),
            warm=first > 0 or marks.amid,
            left_out_ns=marks.left_out_ns if window.asked_ns is None else (0, 0),
            **{name: getattr(marks, name)[first:last] for name in by_step},
        )


def _cut(marks: StepMarks, edges: Mapping[int, Ns], first: int, last: int) -> Mask:
    """Which of the steps [first, last) are shorter between these edges than they are, on any device."""
    cut = np.zeros(last - first, bool)
    for device, bounds in marks.bounds_ns.items():
        cut |= np.diff(edges[device]) < _WHOLE * np.diff(bounds[first : last + 1])
    return cut


def _overlapping(marks: StepMarks, low: int, high: int) -> Ns:
    """Positions of the steps that lie in the analysed part: on a device, or where there is none on the CPU."""
    bounds = marks.bounds_ns.values()
    on_cpu = (marks.cpu_start_ns < high) & (marks.cpu_end_ns > low)
    inside = np.zeros(len(marks.number), bool) if bounds else on_cpu
    for edges in bounds:
        inside |= (edges[:-1] < high) & (edges[1:] > low)
    # Where that part ends before the first step, it is the first one, without length.
    return np.flatnonzero(inside) if inside.any() else np.zeros(1, np.int64)
