"""Iterations within a mark: what the whole mark consists of, again and again.

A mark says where somebody called `prof.step()`, not what a step of the program is: ten forward passes may lie in one.
An iteration is what repeats: the same ops, annotations and launches in the same order, from the mark's first to its
last. A model's layers repeat, too, but something comes before the first and after the last of them.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, numbered
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, matching, texts_of
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.mark_search import Marks
from traceanalyzer.timeline.names import COPY_CALL, LAUNCH, SYNCHRONISING
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

Mask = NDArray[np.bool_]

_LEAST = 3  # repeats: fewer may be chance, as forward and backward of a net of one layer
_LEAST_ROWS = 8  # of an iteration; shorter ones are loops over tensors, in which a launch is all there is
_LAGS = 8  # times that the rarest row comes in an iteration, at most
_USERS = "ProfilerStep"  # kind of the marks that say where the user called `prof.step()`
_DIGITS = re.compile(r"\d+")


def iterations_within(
    trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork | None, marks: Marks
) -> Marks:
    """The iterations of a single mark, where it consists of nothing else; else the mark.

    Of several marks the user knows best what a step is, layers and samples repeat, too; but where each consists of the
    same iterations and they hold different numbers of them, the marks are no unit.
    """
    if work is None or not (work.call >= 0).any() or (len(marks.number) > 1 and marks.kind != _USERS):
        return marks
    kinds = _kinds(trace)
    held = [rows for rows in _outermost(trace, nesting, syncs, work, marks) if len(rows)]
    periods = {_period(kinds[rows]) for rows in held}
    period = periods.pop() if len(periods) == 1 else 0
    if period == 0 or any((kinds[rows[:period]] != kinds[held[0][:period]]).any() for rows in held):
        return marks
    counts = {len(rows) // period for rows in held}
    what = f"the same {period} ops and launches"
    if len(held) > 1 and len(counts) == 1:
        return replace(marks, source=f"{marks.source}; each holds {counts.pop()} repeats of {what}")
    begins = np.concatenate([nesting.start_ns[rows[::period]] for rows in held])
    one = "the recording" if marks.kind == "window" else f"the one {marks.kind} mark"
    inside = one if len(marks.number) == 1 else f"{len(held)} {marks.kind} marks"
    return Marks(
        "iteration",
        f"a step is what repeats {len(begins)} times within {inside}: {what}",
        np.arange(len(begins)),
        begins,
        np.append(begins[1:], marks.end_ns[-1]),
        open_end=marks.open_end,
    )


def _outermost(
    trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork, marks: Marks
) -> list[Rows]:
    """Ops, annotations, launches and waits that lie in nothing but each mark, on the thread that launches most."""
    cpu = trace.lanes.cpu
    launched = work.call[work.call >= 0]
    thread = int(np.bincount(nesting.thread[launched]).argmax())
    wanted = (LAUNCH, COPY_CALL, SYNCHRONISING)
    telling = matching(cpu, "category", CALL_CATEGORIES.__contains__)
    telling &= matching(cpu, "name", lambda name: any(one.search(name) for one in wanted))
    telling |= nesting.annotation | matching(cpu, "category", "cpu_op".__eq__)
    telling[syncs.row[syncs.profiler]] = False
    rows = nesting.thread_rows[thread].astype(np.int64)
    around = np.append(_around(nesting, marks), True)  # the last stands for no parent
    rows = rows[around[nesting.parent[rows]]]
    free = rows[telling[rows] & ~around[rows]]
    mark = np.searchsorted(marks.start_ns, nesting.start_ns[free], side="right") - 1
    free, mark = free[mark >= 0], mark[mark >= 0]
    inside = nesting.end_ns[free] <= marks.end_ns[mark]
    edges = np.searchsorted(mark[inside], np.arange(1, len(marks.number)))
    return np.split(free[inside], edges)


def _around(nesting: Nesting, marks: Marks) -> Mask:
    """Which rows are annotations that hold a mark, or are one; bool (rows,)."""
    rows = np.flatnonzero(nesting.annotation)
    first = np.searchsorted(marks.start_ns, nesting.start_ns[rows])
    ends = np.append(marks.end_ns, np.iinfo(np.int64).max)
    found = np.zeros(len(nesting.annotation), bool)
    found[rows[nesting.end_ns[rows] >= ends[first]]] = True
    return found


def _kinds(trace: Trace) -> Rows:
    """Of every row of `trace.cpu` a number for its name, numbers in the name aside."""
    plain = [_DIGITS.sub("#", name) for name in texts_of(trace.lanes.cpu, "name")]
    place = {name: at for at, name in enumerate(dict.fromkeys(plain))}
    kinds = np.array([place[name] for name in plain], np.int64)
    return np.asarray(kinds[codes(trace.lanes.cpu, "name")], np.int64)


def _period(kind: Rows) -> int:
    """Rows of one iteration, where the sequence is iterations and nothing else; 0 where it is not."""
    if len(kind) < _LEAST * _LEAST_ROWS:
        return 0
    dense, _ = numbered(kind)
    counts = np.bincount(dense)
    if counts.min() < _LEAST:
        return 0
    at = np.flatnonzero(dense == counts.argmin())
    periods = {int(at[lag] - at[0]) for lag in range(1, min(_LAGS, len(at) - 1) + 1)}
    for period in sorted(periods):
        whole = len(kind) % period == 0 and len(kind) >= _LEAST * period
        if whole and np.array_equal(kind[period:], kind[:-period]):
            return period if period >= _LEAST_ROWS else 0
    return 0
