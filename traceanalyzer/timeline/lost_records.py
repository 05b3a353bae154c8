"""Launches whose work is not in the trace, and work whose launch is not."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import GRAPH_LAUNCH
from traceanalyzer.timeline.nesting import Nesting

_LAUNCH = regex(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")

# Fewer lost launches say nothing: at the start and end of a recording a few launches lose their work.
MIN_LOST = 10


@dataclass(frozen=True, slots=True)
class LostRecords:
    """What does not find its other half.

    Attributes:
        launches: how many calls launch a kernel; those in the capture of a graph start nothing and do not count.
        launch: int64 (rows,), rows of `trace.cpu` of those without work.
        entry: int64 (entries,), of `DeviceWork`, work without launch that ran after some with one on its stream:
            what ran before was queued before the recording began.
        tail_ns: from the end of the last work to the end of the last launch, 0 where work ends later.
    """

    launches: int
    launch: Rows
    entry: Rows
    tail_ns: int

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork | None) -> Self:
        rows = np.flatnonzero(matching(trace.lanes.cpu, "name", _LAUNCH.match))
        starts_ns = nesting.start_ns[rows]
        captured = intervals.covered(captures(trace, nesting).spans, starts_ns, starts_ns + 1)
        rows = rows[captured == 0]
        if work is None:
            return cls(len(rows), rows, np.empty(0, np.int64), 0)
        tail = int(nesting.end_ns[rows].max(initial=-(2**62))) - int(work.end_ns.max())
        lost, linked = rows[~np.isin(rows, work.call)], work.call >= 0
        stream, first = grouped([work.device, work.stream])
        never = np.iinfo(np.int64).max
        begins = np.full(len(first), never)
        np.minimum.at(begins, stream[linked], work.start_ns[linked])
        if linked.any():
            begins[begins == never] = begins[begins < never].max()
        entry = np.flatnonzero(~linked & (work.start_ns > begins[stream]))
        return cls(len(rows), lost, entry, max(tail, 0) if len(rows) else 0)


def unrecorded_graphs(trace: Trace, nesting: Nesting, work: DeviceWork) -> Rows:
    """Rows of `trace.cpu`, in order: launches of CUDA graphs, none of whose kernels the trace has."""
    rows = np.flatnonzero(matching(trace.lanes.cpu, "name", GRAPH_LAUNCH.match) & (nesting.thread >= 0))
    rows = rows[~np.isin(rows, work.call)]
    return np.asarray(rows[np.argsort(nesting.start_ns[rows], kind="stable")], np.int64)
