"""When CUDA graphs were captured: once per graph, whatever the CPU does meanwhile."""

from functools import partial
from typing import NamedTuple

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline import names
from traceanalyzer.timeline.nesting import Nesting


class Captures(NamedTuple):
    """Captures of graphs.

    Attributes:
        rows: int64, rows of `trace.cpu`: the calls that begin a capture or make a graph of it, and rows that are named
            after one.
        begin_ns: int64, sorted: when captures begin.
        spans: from a capture's begin to its end.
        around: the same with what is done for it: the op that captures, whole, and where there is none the
            synchronisation before it, with which `torch.cuda.graph` begins; and while a graph is made of it.
    """

    rows: Rows
    begin_ns: Rows
    spans: intervals.Set
    around: intervals.Set


def captures(trace: Trace, nesting: Nesting) -> Captures:
    """All captures that end within the recording."""
    called = partial(matching, trace.lanes.cpu, "name")
    call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__) & (nesting.thread >= 0)
    begins_ends_makes = (names.CAPTURE_BEGIN, names.CAPTURE_END, names.INSTANTIATION)
    begin, end, making = (np.flatnonzero(call & called(wanted.search)) for wanted in begins_ends_makes)
    named = np.flatnonzero(called(names.CAPTURING.search) & (nesting.thread >= 0))
    if len(begin) + len(making) + len(named) == 0:
        return Captures(begin, begin, intervals.EMPTY, intervals.EMPTY)
    begin, closed = _closed(nesting, begin, end)
    spans = intervals.union(nesting.start_ns[begin], closed)
    top = nesting.top_op(begin)
    starts = np.where(top >= 0, nesting.start_ns[top], _prepared(trace, nesting, call, begin))
    ends = np.where(top >= 0, nesting.end_ns[top], closed)
    rows, ends = np.append(making, named), np.maximum(ends, closed)
    around = intervals.union(np.append(nesting.start_ns[rows], starts), np.append(nesting.end_ns[rows], ends))
    return Captures(distinct(np.append(begin, rows)), np.sort(nesting.start_ns[begin]), spans, around)


def _closed(nesting: Nesting, begin: Rows, end: Rows) -> tuple[Rows, Rows]:
    """(the begins that have an end, and when each ends): from each to the next end on its thread."""
    closed = np.full(len(begin), -1, np.int64)
    for thread in distinct(nesting.thread[begin]).tolist():
        on_thread = nesting.thread[begin] == thread
        ends = np.sort(nesting.end_ns[end[nesting.thread[end] == thread]])
        following = np.searchsorted(ends, nesting.start_ns[begin[on_thread]])
        closed[on_thread] = np.append(ends, -1)[following]
    return begin[closed >= 0], closed[closed >= 0]


def _prepared(trace: Trace, nesting: Nesting, call: Mask, begin: Rows) -> Rows:
    """When the device was synchronised for each capture: nothing is launched between that and the capture's begin."""
    called = partial(matching, trace.lanes.cpu, "name")
    launched = np.sort(nesting.start_ns[call & (called(names.LAUNCH.search) | called(names.COPY_CALL.search))])
    synced = np.sort(nesting.start_ns[call & called(names.DEVICE_SYNC.search)])
    starts = nesting.start_ns[begin]
    last = np.searchsorted(synced, starts) - 1
    synced_ns = np.append(synced, 0)[last]
    near = (last >= 0) & (np.searchsorted(launched, synced_ns) == np.searchsorted(launched, starts))
    return np.where(near, synced_ns, starts)
