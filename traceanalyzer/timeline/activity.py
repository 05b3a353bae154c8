"""What the CPU was doing, as interval sets over the threads that launch work."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline import names
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting, edges_around

_MIN_STALLED = 0.5  # share of the row during which the thread stands still; below it the row ran beside the thread


@dataclass(frozen=True, slots=True)
class ProfilerRows:
    """The profiler's own rows, and which calls they stalled; not loading of kernels or full command buffers.

    Arrays of shape (rows,), ordered by start.

    Attributes:
        row: int64, row of `trace.cpu`.
        buffer: bool, an Activity Buffer Request or a Buffer Flush.
        stalled: int64, row of `trace.cpu` of the innermost op or call that it stalled, -1 for none.
        stall_start_ns, stall_end_ns: int64, when it did; empty where `stalled` is -1.
    """

    row: Rows
    buffer: Mask
    stalled: Rows
    stall_start_ns: Rows
    stall_end_ns: Rows

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        cpu = trace.lanes.cpu
        overhead = matching(cpu, "category", "overhead".__eq__)
        row = np.flatnonzero(overhead & matching(cpu, "name", names.PROFILER_OVERHEAD.match))
        name = Texts.column(cpu, "name", row).ranks()
        row = row[np.lexsort((name, ints(cpu, "dur_ns")[row], nesting.start_ns[row]))]
        buffer = matching(cpu, "name", names.BUFFER_OVERHEAD.match)[row]
        start, end = nesting.start_ns[row], nesting.end_ns[row]
        waits = matching(cpu, "name", names.SYNCHRONISING.search)
        may_stall = matching(cpu, "category", ("cpu_op", *CALL_CATEGORIES).__contains__)
        may_stall &= ~waits & ~nesting.annotation
        stalled = np.full(len(row), -1, np.int64)
        stall_start, stall_end = start.copy(), start.copy()
        for thread in range(len(nesting.thread_rows) if len(row) else 0):
            # Without events around the middle of the row: what is at least half of it contains the middle.
            before, after = edges_around(*nesting.edges(thread), (start + end + 1) // 2, side="left")
            low, high = np.maximum(before, start), np.minimum(after, end)
            around = nesting.around(thread, low, high)
            held = (high - low >= _MIN_STALLED * (end - start)) & (high - low > stall_end - stall_start)
            held &= (around >= 0) & may_stall[around]
            stalled[held], stall_start[held], stall_end[held] = around[held], low[held], high[held]
        return cls(row, buffer, stalled, stall_start, stall_end)


@dataclass(frozen=True, slots=True)
class Activity:
    """What launching threads did, by activity; activities overlap: an allocator call is inside an op.

    Activities: data_loading, compilation, module_loading, library_start (what a library does before it loads a
    kernel, see `_before_loading`), allocator, capture (of a graph), dispatching (any op or call that lies in no other
    op), profiler, host_collective (while no other thread runs ops). The sets of capture and profiler reach further
    than their rows: over all that captures, see `Captures`, and over what prof.step() takes and has no row for.
    Threads that never launch anything (a loader's workers, pinning) are left out but for host_collective, since their
    work is not what the device waits for.

    Attributes:
        rows: activity -> int64 of shape (rows,), rows of `trace.cpu`.
        sets: activity -> interval set in ns, a pair of int64 arrays of shape (intervals,).
        launching: bool of shape (threads + 1,), threads that launch work or carry the step marks; last for no thread.
    """

    rows: Mapping[str, Rows]
    sets: Mapping[str, intervals.Set]
    launching: Mask

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork, profiler: ProfilerRows) -> Self:
        cpu, named = trace.lanes.cpu, partial(matching, trace.lanes.cpu, "name")
        marks = named(names.STEP_MARK.match) & (nesting.thread >= 0)
        launching = np.zeros(int(nesting.thread.max(initial=-1)) + 2, bool)
        launching[nesting.thread[work.call[work.call >= 0]]] = launching[nesting.thread[marks]] = True
        on_thread = launching[nesting.thread] & (nesting.thread >= 0)
        call = matching(cpu, "category", CALL_CATEGORIES.__contains__)
        overhead, is_op = matching(cpu, "category", "overhead".__eq__), nesting.op == np.arange(len(cpu))
        chosen = {
            "data_loading": on_thread & named(names.DATA_LOADING.search),
            "compilation": on_thread & ~call & named(names.is_compilation),
            "module_loading": ((on_thread & call) | overhead) & named(names.MODULE_LOADING.search),
            "allocator": on_thread & call & named(names.ALLOCATOR.search),
            "host_collective": (nesting.thread >= 0) & ~call & named(names.HOST_COLLECTIVE.search),
            "dispatching": on_thread & (is_op | call) & (pick(nesting.op, nesting.parent) < 0),
        }
        rows = {activity: np.flatnonzero(mask) for activity, mask in chosen.items()}
        sets = {activity: _covered_by(nesting, members) for activity, members in rows.items()}
        if len(collectives := rows["host_collective"]):  # other threads may run ops meanwhile: work goes on
            ops = rows["dispatching"]
            elsewhere = ops[~np.isin(nesting.thread[ops], nesting.thread[collectives])]
            beside = _covered_by(nesting, elsewhere)
            sets["host_collective"] = intervals.difference(sets["host_collective"], beside)
        reached = _before_loading(nesting, launching, rows["module_loading"], call, ~(call & named(names.QUERY.search)))
        rows["library_start"] = np.empty(0, np.int64)
        sets["library_start"] = intervals.difference(reached, sets["module_loading"])
        graphs = captures(trace, nesting)
        rows["capture"], sets["capture"] = graphs.rows, graphs.around
        rows["profiler"] = profiler.row[profiler.stalled >= 0]
        # From each ProfilerStep mark's end to the next one's start: both are set in prof.step(), so it is all its own.
        starts = np.append(profiler.stall_start_ns, np.sort(nesting.end_ns[marks])[:-1])
        ends = np.append(profiler.stall_end_ns, np.sort(nesting.start_ns[marks])[1:])
        sets["profiler"] = intervals.union(starts, ends)
        return cls(rows, sets, launching)


def _covered_by(nesting: Nesting, rows: Rows) -> intervals.Set:
    return intervals.union(nesting.start_ns[rows], nesting.end_ns[rows])


def _before_loading(nesting: Nesting, launching: Mask, rows: Rows, call: Mask, telling: Mask) -> intervals.Set:
    """When kernels were loaded: the rows, and of overhead rows the stretch before them, to the last telling event."""
    # Such a row names no thread and covers the end of the work only: the library looks for the kernel first.
    start, end = nesting.start_ns[rows], nesting.end_ns[rows]
    never = np.iinfo(np.int64).max
    low, shortest = start.copy(), np.full(len(rows), never)
    for thread in np.flatnonzero(launching).tolist() if len(rows) else ():
        around = nesting.around(thread, start, end)
        on_thread = telling & (nesting.thread == thread)
        edges = np.sort(np.concatenate((nesting.start_ns[on_thread], nesting.end_ns[on_thread], [never])))
        begin = np.where(call[around], nesting.start_ns[around], start)
        op = nesting.op[around]
        last = edges[np.searchsorted(edges, begin, side="left") - 1]
        reached = np.where(op >= 0, np.maximum(np.minimum(last, begin), nesting.start_ns[op]), begin)
        length = nesting.end_ns[around] - nesting.start_ns[around]
        nearer = (nesting.thread[rows] < 0) & (around >= 0) & (length < shortest)
        low[nearer], shortest[nearer] = reached[nearer], length[nearer]
    return intervals.union(low, end)
