"""Where steps begin and end in the whole trace, before anybody asks for a part of it.

The window reaches from the first step's start or the first work, whichever is earlier, to the last step's end
or the end of the last work, so that all work of the trace is in it. Steps tile it on each device: a step there
is the work that its launches started, not what overlaps the CPU's mark, because a GPU-bound loop runs far
behind the CPU. The boundary before a step is its CPU start or the end of all work launched before it,
whichever is later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import distinct, numbered
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace, codes, ints
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import OPTIMIZER_MARK, SERVING_MARK, STEP_MARK
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

Ns = NDArray[np.int64]

_MIN_COVER = (
    0.5  # share of the window that a repeated annotation must cover to count as the step; by definition half
)


@dataclass(frozen=True, slots=True)
class StepMarks:
    """All steps of the trace.

    Attributes:
        whole_ns: the window [start, end) of the whole trace.
        kind: "ProfilerStep", "Optimizer.step", the name of another mark, or "window" when nothing marks steps.
        source: one sentence saying which definition this is.
        number: int64 (steps,), as in the mark, else counted from 0.
        cpu_start_ns, cpu_end_ns: int64 (steps,), the marks on the CPU lane.
        bounds_ns: device -> int64 (steps + 1,), where the steps begin and end on that device. The first bound
            may lie after the window's start: work of an earlier step that the recording caught belongs to none.
        of_work: int64 (work,), parallel to `DeviceWork`: the step that launched it, -1 for none.
    """

    whole_ns: tuple[int, int]
    kind: str
    source: str
    number: Ns
    cpu_start_ns: Ns
    cpu_end_ns: Ns
    bounds_ns: Mapping[int, Ns]
    of_work: Ns

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork | None) -> Self:
        whole, (kind, source, number, begins, ends) = _window_and_marks(trace, nesting, syncs, work)
        of_work = _step_of_work(work, begins, kind)
        bounds = {} if work is None else _bounds(work, begins, of_work, whole)
        return cls(whole, kind, source, number, begins, ends, bounds, of_work)


_Marks = tuple[str, str, Ns, Ns, Ns]


def _window_and_marks(
    trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork | None
) -> tuple[tuple[int, int], _Marks]:
    start, end = _whole(trace, nesting, syncs, work)
    marks = _marks(trace, nesting, start, end)
    if marks[0] == "ProfilerStep":
        start, end = int(marks[3][0]), int(marks[4][-1])
        if work is not None:
            start, end = _reached(work, start), max(end, int(work.end_ns.max()))
    return (start, end), marks


def _reached(work: DeviceWork, start: int) -> int:
    """Start of the window: the first step's, or the first work's where that began earlier or was launched before.

    In a GPU-bound loop the work before the first recorded one began before the recording and is not in the
    file: until the first unlinked work nobody can say whether the device was idle.
    """
    first = int(work.start_ns[0])
    return first if work.call[0] < 0 else min(start, first)


def _whole(trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork | None) -> tuple[int, int]:
    """From the first row to the last, less the profiler's own rows, within what the profiler says it recorded."""
    own = np.zeros(len(trace.cpu), bool)
    own[syncs.row[syncs.profiler]] = True
    rows = (nesting.thread >= 0) & ~own
    starts, ends = nesting.start_ns[rows], nesting.end_ns[rows]
    if trace.meta.window_ns is not None:  # rows still running at the end are written far beyond it
        ends = np.minimum(ends, np.maximum(starts, trace.meta.window_ns[1]))
    lanes = [(starts, ends)] if work is None else [(starts, ends), (work.start_ns, work.end_ns)]
    spans = [(int(begin.min()), int(end.max())) for begin, end in lanes if len(begin)]
    if not spans:
        raise Unavailable("the trace has no rows on either thread")
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _marks(trace: Trace, nesting: Nesting, start: int, end: int) -> _Marks:
    """(kind, source, numbers, starts, ends) of the first kind of mark that the trace has."""
    found = _Annotations.of(trace, nesting, end)
    for pattern, kind in ((STEP_MARK, "ProfilerStep"), (SERVING_MARK, "serving step")):
        begins, ends, names = found.outermost(pattern)
        if len(begins):
            numbers = [int(m.group(1)) if (m := STEP_MARK.match(n)) else i for i, n in enumerate(names)]
            shown = "ProfilerStep marks" if kind == "ProfilerStep" else f"the server's own marks ({names[0]})"
            return kind, f"steps are {shown}", np.array(numbers, np.int64), begins, ends
    begins, ends, names = found.outermost(OPTIMIZER_MARK)
    if len(begins) > 1:
        edges = np.concatenate(([start], ends[:-1]))
        source = "no ProfilerStep marks: a step reaches from one Optimizer.step's end to the next"
        return "Optimizer.step", source, np.arange(len(ends)), edges, np.append(ends[:-1], end)
    return _repeated(found, start, end)


def _repeated(found: _Annotations, start: int, end: int) -> _Marks:
    """An annotation of the user that repeats and covers most of the window, else the window as one step."""
    begins, ends, code = found.outermost_by_name()
    cover = np.bincount(code, weights=ends - begins, minlength=len(found.names))
    often = np.bincount(code, minlength=len(found.names)) > 1
    best = min(np.flatnonzero(often), key=lambda c: (-cover[c], found.names[c]), default=None)
    if best is not None and cover[best] >= max(_MIN_COVER * (end - start), 1):
        name, mine = found.names[best], code == best
        source = f"no ProfilerStep marks: steps are the annotation {name!r}"
        return name, source, np.arange(int(mine.sum())), begins[mine], ends[mine]
    source = "no step marks: the whole window counts as one step; call prof.step() to get steps"
    return "window", source, np.array([0]), np.array([start]), np.array([end])


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The user annotations of the CPU lane, ordered by start, longest first; ends cut at the recording's."""

    start_ns: Ns
    end_ns: Ns
    code: Ns
    names: tuple[str, ...]  # by code

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting, latest: int) -> Self:
        rows = np.flatnonzero(nesting.annotation)
        starts = ints(trace.cpu, "start_ns")[rows]
        ends = np.minimum(starts + ints(trace.cpu, "dur_ns")[rows], np.maximum(latest, starts))
        order = np.lexsort((-ends, starts))
        code, used = numbered(codes(trace.cpu, "name")[rows])
        names = trace.cpu["name"].cat.categories[used]
        return cls(starts[order], ends[order], code[order], tuple(map(str, names)))

    def outermost(self, wanted: re.Pattern[str]) -> tuple[Ns, Ns, list[str]]:
        """Starts, ends and names of those wanted that lie in no other of them."""
        table = np.array([bool(wanted.match(name)) for name in self.names] + [False], bool)
        rows = np.flatnonzero(table[self.code])
        rows = rows[_outermost(np.zeros(len(rows), np.int64), self.start_ns[rows], self.end_ns[rows])]
        return self.start_ns[rows], self.end_ns[rows], [self.names[c] for c in self.code[rows].tolist()]

    def outermost_by_name(self) -> tuple[Ns, Ns, Ns]:
        """Starts, ends and codes of those that lie in no other of the same name, ordered by name and start."""
        rows = np.argsort(self.code, kind="stable")
        rows = rows[_outermost(self.code[rows], self.start_ns[rows], self.end_ns[rows])]
        return self.start_ns[rows], self.end_ns[rows], self.code[rows]


def _outermost(group: Ns, start: Ns, end: Ns) -> NDArray[np.bool_]:
    """Which begin when all before them in their group have ended; ordered by group and start."""
    if len(group) == 0:
        return np.zeros(0, bool)
    # By rank, each group behind the one before, so that one running maximum does for all.
    instants = distinct(np.concatenate((start, end)))
    begins, ends = (np.searchsorted(instants, at) + group * len(instants) for at in (start, end))
    free = begins[1:] >= np.maximum.accumulate(ends)[:-1]
    return np.concatenate(([True], free | (group[1:] != group[:-1])))


def _step_of_work(work: DeviceWork | None, begins: Ns, kind: str) -> Ns:
    """By the launch's start; unlinked work goes with the work before it, since a device runs in order."""
    if work is None:
        return np.empty(0, np.int64)
    if kind == "window":
        return np.zeros(len(work.row), np.int64)
    found = np.searchsorted(begins, work.call_start_ns, side="right") - 1
    at = np.where(work.call >= 0, np.arange(len(found)), -1)
    for device in distinct(work.device):
        mine = work.device == device
        last = np.maximum.accumulate(at[mine])
        if last[-1] < 0:  # nothing on this device is linked: what is left is where it lies
            found[mine] = np.searchsorted(begins, work.start_ns[mine], side="right") - 1
        else:
            found[mine] = np.where(last >= 0, found[np.maximum(last, 0)], -1)
    return np.asarray(found, np.int64)


def _bounds(work: DeviceWork, begins: Ns, of_work: Ns, window: tuple[int, int]) -> dict[int, Ns]:
    bounds = {}
    for device in distinct(work.device).tolist():
        mine = work.device == device
        latest = np.full(len(begins) + 1, window[0])
        np.maximum.at(latest, of_work[mine] + 1, work.end_ns[mine])
        before = np.maximum.accumulate(latest)[:-1]  # end of all work launched before each step
        inner = np.maximum(before, begins)
        if not (of_work[mine] < 0).any():
            inner[0] = window[0]
        bounds[device] = np.clip(np.append(inner, window[1]), *window)
    return bounds
