"""The device's side of a traced program: pieces of work in the order of their launches, and what each waits for."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import (
    Floats,
    Mask,
    Rows,
    distinct,
    grouped,
    median,
    medians_of_kinds,
    numbered,
    pick,
    places_of,
    previous_equal,
    quantile,
)
from traceanalyzer.model.trace import Trace, codes_at, matching
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import STREAM_WAIT
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import HiddenWaits

LATE_NS = 100_000
"""After its launch on an idle device work starts within 2 to 26 us, cold within 0.1 ms; V100 to MI300."""


def late_starts_ns(
    work: DeviceWork, entry: Rows, step: Rows, stream_waits: Rows, since_ns: int
) -> tuple[Floats, Floats]:
    """How late each entry starts for no known reason: (after its launch, after what it waited for in its queue).

    float64 (entries,) both, 0 for most; arguments as of `SteadyWork.of`. Where all of a device is idle, no stream of it
    waits for another; of several devices one may wait for another. What kept the device until `since_ns` is no part of
    the steps.
    """
    free_ns = work.start_ns.copy()  # what ran before the first work of a device is not recorded
    devices = distinct(work.device).tolist()
    for device in devices:
        on_device = np.flatnonzero(work.device == device)
        ends = np.maximum.accumulate(work.end_ns[on_device])
        free_ns[on_device[1:]] = ends[:-1]
    start, free = work.start_ns[entry], free_ns[entry]
    copy = work.kind[entry] >= KINDS.index("copy_h2d")
    blocking = copy & (work.call_end_ns[entry] > start)
    issued = np.where(blocking, work.call_start_ns[entry], work.call_end_ns[entry])
    late = (start - np.maximum(np.maximum(issued, free), since_ns)).astype(np.float64)
    late[(late < LATE_NS) | work.shared[entry]] = 0.0
    if len(devices) > 1:  # not of the first of its stream after a call that may make it wait for another
        waits = np.searchsorted(stream_waits, work.call_start_ns[entry])
        before = previous_equal(work.device[entry] * (1 << 20) + work.stream[entry])
        late[waits > pick(waits, before, 0)] = 0.0
    whole = np.bincount(step, late)
    usual = median(whole[distinct(step)]) if len(step) else 0.0
    late *= np.minimum(1.0, usual / np.maximum(whole, 1.0))[step]
    return np.where(issued > free, late, 0.0), np.where(issued > free, 0.0, late)


_FREE, _BESIDE = 0.02, 0.9  # share of a kernel's time beside communication: none of it, and all; chosen
_FEW = 3  # executions of a kind that tell its usual time; chosen
_SLOWER = 1.35  # beside a collective where no kind ran both ways; 1.2 to 1.9 by kernel, DDP on 2 H200, NVLink
_MOST = 3.0  # times; more is no matter of sharing the device


def undisturbed_ns(trace: Trace, work: DeviceWork, entry: Rows, waits: CollectiveWaits) -> Floats:
    """What each entry would take if no collective beside it waited for other ranks; float64 (entries,).

    A kernel that ran alone elsewhere in the recording says how long it takes; of others the mean of those is taken.
    """
    took = (work.end_ns - work.start_ns)[entry].astype(np.float64)
    computes = (work.kind == KINDS.index("compute"))[entry]
    communication = np.flatnonzero(work.kind == KINDS.index("communication"))
    waiting, overlapping = np.zeros(len(entry)), np.zeros(len(entry))
    for device in distinct(work.device[entry]).tolist():
        on_device = computes & (work.device[entry] == device)
        there = communication[work.device[communication] == device]
        starts, ends = work.start_ns[entry[on_device]], work.end_ns[entry[on_device]]
        late = waits.entry[work.device[waits.entry] == device]
        until = work.start_ns[late] + np.maximum(waits.of(late)[0], 0)
        waiting[on_device] = _covered(work.start_ns[late], until, starts, ends)
        overlapping[on_device] = _covered(work.start_ns[there], work.end_ns[there], starts, ends)
    if not waiting.any():
        return took
    slower = slowdown_by_kind(trace, work, entry, took, np.where(computes, overlapping, -1.0))
    return took - waiting * (1 - 1 / slower)


def _covered(begins: Rows, finishes: Rows, starts: Rows, ends: Rows) -> Rows:
    return intervals.covered(intervals.union(begins, finishes), starts, ends)


def slowdown_by_kind(trace: Trace, work: DeviceWork, entry: Rows, took: Floats, overlapping: Floats) -> Floats:
    """By how much each entry's kind is slower beside communication than alone; float64 (entries,)."""
    columns = (codes_at(trace.lanes.gpu, name, work.row[entry]) for name in ("name", "grid", "block"))
    kind, first = grouped(list(columns))
    share = overlapping / np.maximum(took, 1.0)
    unblocked = medians_of_kinds(kind, took, (share >= 0) & (share < _FREE), len(first), _FEW)
    shared = medians_of_kinds(kind, took, share > _BESIDE, len(first), _FEW)
    ratio = np.clip(shared / unblocked, 1.0, _MOST)
    measured = ~np.isnan(ratio)
    weight = np.bincount(kind, weights=took * (share > _BESIDE), minlength=len(first))
    usual = float(np.average(ratio[measured], weights=weight[measured])) if weight[measured].sum() else _SLOWER
    return np.where(measured, ratio, usual)[kind]


_QUEUED_NS = 8_000  # work that begins so long after its call returned was waiting in the queue, H200
_TYPICAL_GAP_NS = 1_000.0  # between queued kernels where the trace has none; H200, torch 2.11
_LATENCY_NS = (2_000.0, 20_000.0)  # call to start on an idle stream lies within; V100 to B200
_LATENCY_QUANTILE = 0.2  # the quickest fifth: the rest waited for something else too
_EDGE_SLACK_NS = 1_000  # of the end of work that another may have waited for: clock rounding
_MOST_SOURCES = 32  # streams that others may wait for, those with most work; recorded traces have up to 9
_WOKEN_NS = 20_000  # after the end of a collective what waited for it has begun: 1 to 12 us; DDP on 2 H200


@dataclass(frozen=True)
class SteadyWork:
    """Arrays of shape (work,), in order of launch.

    Attributes:
        entry: int64, entry of `DeviceWork`.
        stream: int64, dense number of (device, stream).
        dur_ns: float64, as traced.
        gap_ns: float64, least time from the end of the work before it on its stream to its start.
        communication: bool, collectives and the like.
        meet: int64, number of the collective in the job, at which ranks meet; -1 for other work.
        edge_to, edge_from: int64 of shape (edges,), positions: the first starts when the second has ended.
        edge_call_ns: int64 (edges,), start of the call that makes it wait, the last that may be.
        before: int64, position of the work before it on its stream, -1 where that is not among them.
        category: int64, kernel, copy or memset, as numbers below `len(pair_gap_ns)`.
        pair_gap_ns: float64 (categories, categories), gap from work of the first to queued work of the second.
        latency_ns: float64, from the call's start to the work's on an idle stream.
        held_ns: float64, least time from the end of what it waits for on another stream.
        end_ns: when the last of it ended, as traced.
    """

    entry: Rows
    stream: Rows
    dur_ns: Floats
    gap_ns: Floats
    communication: Mask
    meet: Rows
    edge_to: Rows
    edge_from: Rows
    edge_call_ns: Rows
    before: Rows
    category: Rows
    pair_gap_ns: Floats
    latency_ns: Floats
    held_ns: Floats
    end_ns: int

    @cached_property
    def by_entry(self) -> tuple[Rows, Rows]:
        """The entries sorted, and the position of each; int64 of shape (work,) both."""
        order = np.argsort(self.entry, kind="stable")
        return self.entry[order], order

    @property
    def streams(self) -> int:
        return int(self.stream.max(initial=-1)) + 1

    @property
    def late_ns(self) -> float:
        """How late work starts after its launch or in its queue, for no reason that the trace shows; of all of it."""
        return float(self.latency_ns[self.latency_ns > LATE_NS].sum() + self.held_ns.sum())

    @classmethod
    def of(
        cls, trace: Trace, nesting: Nesting, work: DeviceWork, step: Rows, since_ns: int, waits: CollectiveWaits | None
    ) -> Self:
        """The entries that a sampled step launches, by its position `step`, else -1; `since_ns` is when steps begin.

        Of collectives whose `waits` for other ranks are known, the time is without them; what ran beside, as if alone.
        """
        stream_waits = np.sort(nesting.start_ns[matching(trace.lanes.cpu, "name", STREAM_WAIT.search)])
        entry = np.flatnonzero(step >= 0)
        entry = entry[np.lexsort((work.start_ns[entry], work.call_start_ns[entry]))]
        none = np.full(len(entry), -1, np.int64)
        waited, meet = (none, none) if waits is None else (waits.of(entry)[0], waits.numbers(entry))
        key, _ = numbered(work.device * (1 << 20) + work.stream)
        stream, _ = numbered(key[entry])
        before = previous_on_stream(work, key, entry)
        traced = work.start_ns[entry] - pick(work.end_ns, before, 0)
        code, _ = numbered(codes_at(trace.lanes.gpu, "category", work.row))
        gap, pair_gap = work_gaps(work, code, entry, before, traced)
        idle = (before >= 0) & (pick(work.end_ns, before, 0) <= work.call_start_ns[entry])
        late, held = late_starts_ns(work, entry, step[entry], stream_waits, since_ns)
        latency = latencies_ns(work, entry, idle) + late
        waits_for, recorded = recorded_edges(work, entry, stream, stream_waits, waited >= 0)
        hidden = HiddenWaits.build(trace, nesting, work)
        without_call = _hidden_edges(work, entry, hidden)
        edges = np.append(recorded, without_call, axis=1)
        waits_for = np.append(waits_for, without_call[0])
        gap[waits_for] = np.maximum(np.minimum(gap[waits_for], _TYPICAL_GAP_NS), held[waits_for])
        dur = (work.end_ns - work.start_ns)[entry].astype(np.float64)
        if waits is not None:
            dur = undisturbed_ns(trace, work, entry, waits) - np.maximum(waited, 0)
        place = places_of(entry, len(work.call))
        end = int(work.end_ns[entry].max(initial=0))
        communication = work.kind[entry] == KINDS.index("communication")
        joins, neighbours = (edges[0], edges[1], edges[2]), (place[before], code[entry], pair_gap)
        return cls(entry, stream, dur, gap, communication, meet, *joins, *neighbours, latency, held, end)


def previous_on_stream(work: DeviceWork, key: Rows, entry: Rows) -> Rows:
    """Entry of the work before on the same stream, of those near; -1 for none."""
    if len(entry) == 0:
        return entry
    near = np.arange(max(int(entry.min()) - 1000, 0), int(entry.max()) + 1)
    return pick(near, previous_equal(key[near])[entry - near[0]])


def work_gaps(work: DeviceWork, category: Rows, entry: Rows, before: Rows, traced: Rows) -> tuple[Floats, Floats]:
    """(gaps as traced where the work was queued, else the median of its pair of categories; those medians)."""
    graph = work.shared[entry] & (pick(work.call, before) == work.call[entry])
    ended = pick(work.end_ns, before, 0)
    queued = (before >= 0) & (work.call_end_ns[entry] + _QUEUED_NS < work.start_ns[entry])
    queued &= work.call_end_ns[entry] <= ended
    plain = queued & ~graph
    queued |= graph
    kinds = int(category.max(initial=-1)) + 1
    pair = pick(category, before, 0) * kinds + category[entry]
    gap = traced.astype(np.float64)
    overall = median(gap[queued]) if queued.any() else _TYPICAL_GAP_NS
    medians = np.full(kinds * kinds, _TYPICAL_GAP_NS)
    for code in distinct(np.where(before >= 0, pair, -1)).tolist():
        mine = (pair == code) & (before >= 0) if code >= 0 else before < 0
        known = gap[mine & queued]
        gap[mine & ~queued] = median(known) if len(known) else overall
        if code >= 0 and (mine & plain).any():
            medians[code] = median(traced[mine & plain])
    return gap, medians.reshape(kinds, kinds)


def latencies_ns(work: DeviceWork, entry: Rows, idle: Mask) -> Floats:
    """The trace's usual latency; of a CUDA graph's first work its own, which grows with the graph."""
    usual = usual_latency_ns(work.delay_ns[entry][idle & ~work.shared[entry]])
    latency = np.full(len(entry), usual)
    first = idle & work.shared[entry] & (np.diff(work.call[entry], prepend=-1) != 0)
    latency[first] = np.maximum(work.delay_ns[entry][first], usual)
    return latency


def usual_latency_ns(delays: Rows) -> float:
    if len(delays) == 0:
        return float(np.mean(_LATENCY_NS)) / 2
    return float(np.clip(quantile(delays, _LATENCY_QUANTILE), *_LATENCY_NS))


def recorded_edges(
    work: DeviceWork, entry: Rows, stream: Rows, stream_waits: Rows, measured: Mask
) -> tuple[Rows, Rows]:
    """What may wait for what, and by which call: one that makes a stream wait names neither event nor stream.

    The next work of each stream may wait for the newest of each other; it did not where that ended after its start.
    Then it did wait for an older collective if it began when that ended: gradients are unpacked bucket by bucket. That
    is asked of those alone whose waiting was measured and taken off: else the gap after it would stay.

    Returns:
        Positions that wait; edges, calls included, without those that follow from others by stream order, (3, edges).
    """
    every = np.searchsorted(work.call_start_ns[entry], stream_waits)
    at, calls_ns = distinct(every), stream_waits[np.append(every[1:] != every[:-1], True)[: len(every)]]
    starts, ends = work.start_ns[entry], work.end_ns[entry]
    waits = np.searchsorted(at, np.arange(len(entry)), side="right")
    begin = pick(waits, previous_equal(stream), 0)
    to = np.flatnonzero(waits > begin)
    begin, end = begin[to], waits[to]  # the waits since the work before on its stream
    edges = [np.empty((3, 0), np.int64)]
    for source in np.argsort(-np.bincount(stream), kind="stable")[:_MOST_SOURCES].tolist():
        among = np.flatnonzero(stream == source)
        launched = np.searchsorted(among, at[end - 1])
        ended = np.searchsorted(np.maximum.accumulate(ends[among]), starts[to] + _EDGE_SLACK_NS, side="right")
        last = np.minimum(np.append(waits[among], len(at))[np.minimum(launched, ended)], end) - 1
        newest = np.where(last >= begin, np.searchsorted(among, at[last]) - 1, -1)
        known = among[measured[among]]
        done = np.searchsorted(np.maximum.accumulate(ends[known]), starts[to] + _EDGE_SLACK_NS, side="right")
        older = pick(known, done - 1)
        woken = (launched > ended) & (older >= 0) & (starts[to] - ends[older] <= _WOKEN_NS)
        there, woken = (newest >= 0) & (stream[to] != source), woken & (stream[to] != source)
        found = np.stack((to[there], among[newest[there]], calls_ns[last[there]]))
        edges.append(np.append(found, np.stack((to, older, calls_ns[end - 1]))[:, woken], axis=1))
    waiting = distinct(np.concatenate(edges, axis=1)[0])
    edges_of_all = np.concatenate([_unimplied(found, stream) for found in edges], axis=1)
    return waiting, edges_of_all[:, np.lexsort((edges_of_all[1], edges_of_all[0]))]


def _unimplied(edges: Rows, stream: Rows) -> Rows:
    """The edges from one stream of which no earlier work of the waiting stream has one that is as late."""
    edges = edges[:, np.lexsort((-edges[2], edges[1], edges[0], stream[edges[0]]))]
    reached = np.maximum.accumulate(stream[edges[0]] * (len(stream) + 1) + edges[1])
    return edges[:, np.diff(reached, prepend=-1) > 0]


def _hidden_edges(work: DeviceWork, entry: Rows, hidden: HiddenWaits) -> Rows:
    """Edges that no call makes, as (3, edges); the launch of what waits stands for its call."""
    place = places_of(entry, len(work.call))
    source = place[hidden.after[entry]]
    to = np.flatnonzero((source >= 0) & (source < np.arange(len(entry))))
    return np.stack((to, source[to], work.call_start_ns[entry[to]]))
