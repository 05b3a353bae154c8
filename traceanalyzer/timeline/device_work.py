"""Work of the devices, joined with the calls that launched it by correlation, and when each device was busy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick, starts_of_runs
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import BUSY_CATEGORIES, CALL_CATEGORIES, COUNTER_RANGE, NO_DEVICE_TIME
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import NULL_INT, Trace, codes, ints, matching, texts_of
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.communication import Kernels, communicating
from traceanalyzer.timeline.names import GRAPH_LAUNCH, LAUNCH, copy_kind
from traceanalyzer.timeline.nesting import Nesting

KINDS = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_p2p", "copy_d2d", "copy_other", "memset")
# Accelerators that write categories of their own, by how those begin.
_ACCELERATORS = {"mtia": "MTIA", "xpu": "XPU", "hpu": "HPU", "privateuse1": "PRIVATEUSE1", "ascend": "Ascend NPU"}
_OTHER = KINDS.index("copy_other")


def find(keys: Rows, wanted: Rows) -> Rows:
    """For each wanted id the first position that has it in `keys`, -1 for none; NULL_INT matches nothing."""
    order = np.argsort(keys, kind="stable")
    rows = np.append(order, -1)[np.searchsorted(keys[order], wanted)]
    return np.where((pick(keys, rows) == wanted) & (wanted != NULL_INT), rows, -1)


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels, copies and memsets with the calls and ops that launched them.

    Arrays of shape (work,), ordered by start, device, stream, launch, duration and name.

    Attributes:
        row: int64, row of `trace.gpu`.
        device, stream: int64.
        kind: int64, position in `KINDS`.
        start_ns, end_ns: int64.
        call: int64, row of `trace.cpu` of the launch, -1 where the trace has none (unlinked).
        call_start_ns, call_end_ns: int64, NULL_INT where unlinked.
        delay_ns: int64, work.start - launch.start, NULL_INT where unlinked. Not from the launch's end: work
            often starts before the call returns.
        op: int64, row of `trace.cpu` of the op that launched it, -1 for none.
        shared: bool, its launch started other work too (a CUDA graph).
        outstanding: int64, work of the device launched before but not finished when it was launched, -1 if unlinked.
    """

    row: Rows
    device: Rows
    stream: Rows
    kind: Rows
    start_ns: Rows
    end_ns: Rows
    call: Rows
    call_start_ns: Rows
    call_end_ns: Rows
    delay_ns: Rows
    op: Rows
    shared: Mask
    outstanding: Rows

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        gpu = trace.lanes.gpu
        row = np.flatnonzero(matching(gpu, "category", BUSY_CATEGORIES.__contains__))
        if len(row) == 0:
            raise _nothing_ran(trace)
        calls = np.flatnonzero(matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__))
        correlation = ints(trace.lanes.cpu, "correlation")[calls]
        call = pick(calls, find(correlation, ints(gpu, "correlation")[row]))
        start = ints(gpu, "start_ns")[row]
        device, stream = (ints(gpu, column)[row] for column in ("device", "stream"))
        # A missing one counts as 0, so that the work is not lost.
        device, stream = np.where(device == NULL_INT, 0, device), np.where(stream == NULL_INT, 0, stream)
        launched = pick(nesting.start_ns, call, NULL_INT)
        dur = ints(gpu, "dur_ns")[row]
        order = np.argsort(start, kind="stable")
        fresh = starts_of_runs(start[order])
        repeats = ~fresh | np.append(~fresh[1:], False)
        tied = order[repeats]  # few, and sorting texts is slow
        ranks = (Texts.column(gpu, "grid", row[tied]).ranks(), Texts.column(gpu, "name", row[tied]).ranks())
        keys = (column[tied] for column in (dur, launched, stream, device, start))
        order[repeats] = tied[np.lexsort((*ranks, *keys))]
        row, call, start, launched = row[order], call[order], start[order], launched[order]
        device, stream = device[order], stream[order]
        end = start + dur[order]
        linked, op = call >= 0, _ops(trace, nesting, row, call)
        kind = _kinds(Kernels(trace, row, device, stream, op))
        returned = pick(nesting.end_ns, call, NULL_INT)
        delay = np.where(linked, start - launched, NULL_INT)
        shared = linked & (np.bincount(call[linked], minlength=1)[np.where(linked, call, 0)] > 1)
        outstanding = _outstanding(device, launched, start, end, linked)
        return cls(row, device, stream, kind, start, end, call, launched, returned, delay, op, shared, outstanding)


_NO = np.empty(0, np.int64)
NO_WORK = DeviceWork(_NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO < 0, _NO)

EXPORT_FIRST = (
    "record again and export each profile before the next profiler starts in the same process; of this trace, "
    "`traceanalyzer table` shows the ops on the CPU"
)
"""Remedy for records of the device without times: a later profiler sets the clock anew; torch 2.11, H200."""


def _nothing_ran(trace: Trace) -> Unavailable:
    """Why there is no work: nothing was launched, or what was launched could not be recorded."""
    if untimed := trace.meta.counted.get(NO_DEVICE_TIME, 0):
        return Unavailable(f"all {untimed:,} GPU records lost their times", EXPORT_FIRST)
    calls = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
    launches = int((calls & matching(trace.lanes.cpu, "name", LAUNCH.search)).sum())
    rows = {**trace.meta.rows.get("gpu", {}), "hpu_op": trace.meta.rows.get("cpu", {}).get("hpu_op", 0)}
    kinds = [
        f"{count:,} row{'s' * (count > 1)} of {name} ({category})"
        for category, count in sorted(rows.items())
        for prefix, name in _ACCELERATORS.items()
        if category.startswith(f"{prefix}_") and count and category not in BUSY_CATEGORIES
    ]
    if kinds:
        what = f"the trace has {' and '.join(kinds)}, but no kernel, copy or memset with its launch"
        return Unavailable(what, "only the CPU's ops can be shown: `traceanalyzer ops`")
    if launches == 0:
        what = "no kernels, copies or memsets in the trace"
        return Unavailable(what, "record with ProfilerActivity.CUDA on a GPU")
    if counters := trace.meta.rows.get("gpu", {}).get(COUNTER_RANGE, 0):
        what = f"{counters:,} kernels have counters of the GPU ({COUNTER_RANGE}), which replace their times"
        remedy = "`traceanalyzer facts` prints the counters; record without them to get times"
    else:
        what = f"{launches:,} launches, but no device records: the profiler could not record the device"
        remedy = "check permissions, other profilers that hold the device, and the driver's version"
    return Unavailable(what, remedy)


def _ops(trace: Trace, nesting: Nesting, row: Rows, call: Rows) -> Rows:
    """The op around the launch; where the launch is missing, the op of that External id."""
    around = pick(nesting.op, call)
    missing = np.flatnonzero(around < 0)
    ops = np.flatnonzero(matching(trace.lanes.cpu, "category", "cpu_op".__eq__))
    if len(missing) and len(ops):
        known = ints(trace.lanes.cpu, "external_id")[ops]
        around[missing] = pick(ops, find(known, ints(trace.lanes.gpu, "external_id")[row[missing]]))
    return around


def _outstanding(device: Rows, launched: Rows, start: Rows, end: Rows, linked: Mask) -> Rows:
    """Work launched before each, less what had finished by then, per device."""
    result = np.full(len(device), -1, np.int64)
    for ordinal in distinct(device):
        of_device = np.flatnonzero((device == ordinal) & linked)
        if len(of_device) == 0:
            continue
        # What ran before any linked work was launched before the recording: it fills the queue as well.
        earlier = (device == ordinal) & ~linked & (start < start[of_device[0]])
        instants = launched[of_device]
        before = np.searchsorted(np.sort(instants), instants, side="left") + int(earlier.sum())
        ends = np.sort(np.concatenate((end[of_device], end[earlier])))
        finished = np.searchsorted(ends, instants, side="right")
        result[of_device] = np.maximum(before - finished, 0)
    return result


def _kinds(work: Kernels) -> Rows:
    """Position in `KINDS` of each; newer profilers call every copy Memcpy and tell its way beside it."""
    gpu, row = work.trace.lanes.gpu, work.row
    copying, recorded = (
        np.array([*(KINDS.index(f"copy_{copy_kind(name)}") for name in texts_of(gpu, column)), _OTHER])
        for column in ("name", "copy_kind")
    )
    kinds = np.where(communicating(work), KINDS.index("communication"), 0)
    copy = matching(gpu, "category", "gpu_memcpy".__eq__)[row]
    named = copying[codes(gpu, "name")[row]]
    kinds[copy] = np.where(named == _OTHER, recorded[codes(gpu, "copy_kind")[row]], named)[copy]
    kinds[matching(gpu, "category", "gpu_memset".__eq__)[row]] = KINDS.index("memset")
    # ROCm calls copies of `.item()` to the host copies on the device.
    reads = pick(matching(work.trace.lanes.cpu, "name", "aten::_local_scalar_dense".__eq__), work.op, False)
    kinds[reads & (kinds == KINDS.index("copy_d2d"))] = KINDS.index("copy_d2h")
    return kinds


@dataclass(frozen=True, slots=True)
class Busy:
    """When anything ran on each device, whatever the stream: idle time is the device's, not the sum of its streams.

    Attributes:
        devices: device -> interval set in ns, a pair of int64 arrays of shape (intervals,), see `model.intervals`.
        devices: device -> interval set, see `model.intervals`.
    """

    devices: Mapping[int, intervals.Set]

    @classmethod
    def build(cls, work: DeviceWork) -> Self:
        devices = {}
        for device in distinct(work.device).tolist():
            of_device = work.device == device
            devices[device] = intervals.union(work.start_ns[of_device], work.end_ns[of_device])
        return cls(devices)


def pageable(trace: Trace) -> Mask:
    """Rows of `trace.gpu` that copy from or to pageable memory, by name or by the kinds of memory beside it."""
    named = matching(trace.lanes.gpu, "name", lambda name: "Pageable" in name)
    recorded = [matching(trace.lanes.gpu, column, "pageable".__eq__) for column in ("src_kind", "dst_kind")]
    return np.asarray(named | recorded[0] | recorded[1])


_LAUNCH = regex(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")

MIN_LOST = 10  # fewer lost launches say nothing: at the start and end of a recording a few launches lose their work


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
        rows = rows[intervals.covered(captures(trace, nesting).spans, starts_ns, starts_ns + 1) == 0]
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
