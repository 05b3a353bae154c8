"""Copies between host and device while no kernel runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, median, pick, sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edits import Drop, Edit, MoveToSideStream
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.peaks import host_link, link_reached
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule
from traceanalyzer.tensors.ops.table import is_view, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, signatures_of, tensors
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.host_round_trips import MAX_BYTES, HostRoundTrips
from traceanalyzer.timeline.names import ALLOCATING_OP, DATA_LOADING
from traceanalyzer.timeline.nesting import CalledOps
from traceanalyzer.timeline.synchronisation import SyncCalls

# Of the memory's peak rate, which a kernel that reads the data once reaches; H200, torch 2.11.
_REACHED = 0.75
# CPU time of launching the op in ns; H200 host, torch 2.11.
_OP_NS = 5_000.0
NUMPY = "numpy"
"""Stands for an op: what runs without one right after a tensor has become an array."""
# Tensor.numpy() ends with this op.
_AS_ARRAY = "aten::resolve_neg"
_WORKER_MOVES = (
    r"^aten::(to|_to_copy|copy_|clone|contiguous|cuda|cpu|_?pin_memory|resolve_\w+|"
    r"empty\w*|zeros|lift_fresh)$"
)
_WIDTHS = frozenset(ITEM_BYTES.values())
_MOVES = r"^aten::(to|_to_copy|copy_|cuda|cpu|clone|contiguous)$"
_IN_TORCH = "Do the work on this data with torch on the device, and copy only the result. Else: "
_WAYS = {"copy_h2d": "host to device", "copy_d2h": "device to host", "copy_p2p": "device to device"}
# cause -> (what is wrong, remedy of copies to the device, remedy of others)
_TEXTS = {
    "pageable": (
        "the host memory is not pinned, so the driver copies through a buffer of its own",
        "Pin the source (DataLoader(pin_memory=True), tensor.pin_memory()) and copy one batch ahead with "
        "non_blocking=True on a separate stream.",
        "Copy into a pinned tensor with non_blocking=True, and read it a step later.",
    ),
    "blocking": (
        "the host waits for the copy",
        "Copy one batch ahead with non_blocking=True from pinned memory, on a separate stream.",
        "Copy into a pinned tensor with non_blocking=True, and read it a step later.",
    ),
    "on-compute-stream": (
        "the copy is on the kernels' stream, so the kernels wait",
        "Copy the next batch on a separate stream ({torch.cuda.Stream}) while this one is computed.",
        "Copy on a separate stream, so that the next kernels run meanwhile.",
    ),
    "not-ahead": (
        "the copy is on a separate stream, but not ahead of the kernels that need it",
        "Start the copy earlier: fetch one batch further ahead.",
        "Start the copy as soon as its data is ready, so that the next kernels run meanwhile.",
    ),
}


@dataclass(frozen=True, slots=True)
class Limits:
    min_bare_share: float = limit(
        0.5,
        "a copy is reported only if no kernel runs during at least this share of the copy's time; chosen",
    )
    min_blocked_ns: int = limit(
        100_000,
        "a copy of a few bytes is reported only if its call takes at least this much longer than the copy itself; on "
        "idle devices such calls return within 15 µs (measured on the host of an H200)",
    )
    min_worker_ns: int = limit(
        20_000,
        "an op on CPU tensors is regarded as work on the copied data if it takes at least this time; the "
        "dispatch of an op, without its work, takes up to 10 µs (measured on the host of an H200)",
    )
    min_worker_share: float = limit(
        0.2,
        "the advice names the op on the host if it takes at least this share of the copies' time; chosen",
    )


@rule(since="0.1", claims=Claims.EVENT, min_share=0.01, limits=Limits, causes=tuple(_TEXTS))
def exposed_copy(
    trace: Trace,
    calls: Calls,
    work: Work,
    idle: IdleTime,
    syncs: SyncCalls,
    called: CalledOps,
    trips: HostRoundTrips | None,
    gpus: Gpus,
    limits: Limits,
) -> Iterator[Hits]:
    """A copy between host and device runs while no kernel does.

    What it looks for: copies to the device, to the host or between devices. During most of the copy, no
    kernel runs. There are four causes: the copy uses pageable memory; the host waits for the copy; the copy
    is queued on the kernels' stream; the copy is on another stream, but starts too late.
    Why it costs: the kernels wait for the link, which is far slower than the device's memory. Copy engines
    could move the data while the kernels of another batch run.
    Bad: `x = x.cuda()` of a pageable batch. Good: a pinned batch, `x.cuda(non_blocking=True)` on a side
    stream, one batch ahead.
    How sure: times, bytes and kinds of memory are recorded. The cost includes the GPU's idle time that the
    wait for the copy causes.
    When it is wrong: the GPU has no other work during the copy, for example with a single request. Then only
    a faster copy helps.
    See also: implicit-sync for values that are read back; host-round-trip for data that goes to the host and
    back.
    Saving: predicted as if the copies used pinned memory at the link's peak, and overlapped with kernels.
    Exception: the CPU computes something small from the copied data, and sends it back. The saving is then
    predicted as if the device computed it, without any copy.
    Source: CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device".
    """
    cover = work.of_kind("compute", "communication")
    copies = work.of_kind(*_WAYS)
    if not len(copies) and len(work.of_kind("copy_other")):
        raise Unavailable("the trace has copies, but not their direction")
    tripping = distinct(np.append(trips.down, trips.up)) if trips else np.empty(0, np.int64)
    blocked = copies.launch.end_ns - copies.end_ns >= limits.min_blocked_ns
    blocked &= copies.launch.there & copies.pageable
    copies = copies[((copies.bytes > MAX_BYTES) | blocked) & ~np.isin(copies.entries, tripping)]
    bare = LostTime.uncovered(copies, cover)
    bare_ns = sums_of(bare.owner, bare.end_ns - bare.start_ns, len(copies))
    copies = copies[bare_ns >= limits.min_bare_share * copies.dur_ns]
    waits, charged = syncs.row[~syncs.profiler], idle.waited()
    waiting, late = called.or_self(waits), called.or_self(charged.call.rows)
    for (cause, kind), moves in copies.by(_causes(copies, work, called, waiting), copies.kind):
        copying = called.or_self(moves.launch.rows)
        awaiting = waits[np.isin(waiting, copying[copying >= 0])]
        owner = np.where(late >= 0, find(copying, late), -1)
        what, to_device, else_where = _TEXTS[cause]
        lines = moves.line.sums(moves.dur_ns)
        evidence, waited = _evidence(trace, moves, limits.min_blocked_ns), charged[owner >= 0]
        converting = _converting(moves, called)
        remedy = to_device if kind == "copy_h2d" else else_where
        workers = cpu_op_copies(calls, moves, limits.min_worker_ns)
        purpose, advice, named = _purpose(
            moves, _reading_op(moves, called, converting), remedy, workers, limits
        )
        trip = "worker" in named and kind == "copy_d2h"
        back = copies_sent_back(calls, work, moves, workers[1]) if trip else np.full(len(moves), -1, np.int64)
        there, away = back >= 0, back < 0
        yield Hits(
            occurrences=moves,
            named_by=_WAYS[kind],
            cause=cause,
            lost=LostTime.joined(
                [LostTime.uncovered(moves, cover), LostTime.all_of(waited, owner[owner >= 0])]
            ),
            fix=[
                *([replaced_by_device_pass(calls, moves[there], back[there], gpus)] if there.any() else ()),
                *(_fix(moves[away], awaiting, evidence["link_gbps"], converting[away]) if away.any() else ()),
            ],
            message="a copy of {copy} goes from {by} {times_a_step}"
            + (", and its call takes {call} on average" if evidence["call_ns"] else "")
            + (", at {lines}" if lines else "")
            + "; it reaches {gbps} GB/s (mean of all these copies"
            + ("; {link} gives {link_gbps} GB/s)" if evidence["link"] else ")")
            + f", and no kernel runs meanwhile; {what}{purpose}",
            advice=advice,
            evidence=evidence | named | {"waited_ns": Calls(work.events, awaiting).total_ns, "lines": lines},
        )


def _purpose(
    copies: Work, reader: str, remedy: str, workers: tuple[Texts, Rows], limits: Limits
) -> tuple[str, str, dict[str, str]]:
    """(what the copies are for, as a part of a sentence; the remedy; the op that it names).

    Args:
        reader: the op that copies its inputs, empty where the user copies.
        workers: as from `host_workers`.
    """
    upward = bool(copies.kind.one_of("copy_h2d").all())
    if reader and upward:
        keeps = f"Keep the inputs of {reader} on the device: each call copies them there. Else: {_lower_first(remedy)}"
        return "; {reader} needs the data there", keeps, {"reader": reader}
    names, spent_ns = workers
    worker = next(iter(names.sums(spent_ns)), "")
    if not worker or int(spent_ns.sum()) < limits.min_worker_share * copies.total_ns:
        return "", remedy, {}
    if upward:
        results = f"Create it on the device: {worker} with device='cuda', or on inputs on the device. Else: "
        return "; on the host, {worker} makes the data", results + _lower_first(remedy), {"worker": worker}
    if worker == NUMPY:
        return "; on the host, numpy works on the data", _IN_TORCH + _lower_first(remedy), {"worker": worker}
    done = f"Run {worker} on the device, where the tensor is: then nothing is copied. Else: "
    return "; on the host, {worker} works on the data", done + _lower_first(remedy), {"worker": worker}


def _lower_first(text: str) -> str:
    return text[0].lower() + text[1:]


def _causes(copies: Work, work: Work, called: CalledOps, waiting: Rows) -> Texts:
    """Cause of each copy. `waiting` are the ops or calls in which the CPU waits."""
    kernels = work.of_kind("compute")
    holds = [
        copies.pageable,
        copies.launch.there & np.isin(called.or_self(copies.launch.rows), waiting),
        np.isin(copies.device << 32 | copies.stream, kernels.device << 32 | kernels.stream),
    ]
    return Texts(np.select(holds, range(len(holds)), len(holds)), np.array(list(_TEXTS), object))


def _converting(copies: Work, called: CalledOps) -> Rows:
    """Rows of the conversions inside ops that only need their inputs elsewhere; -1 for copies that the user called.

    `x[index]` copies an index on the host to the device each time: kept there, it is not copied at all.
    """
    ops = Calls(copies.events, called.of(copies.launch.rows))
    inner = copies.launch.op.rows
    nesting = copies.events.nesting
    above = pick(nesting.parent, inner)
    while (moving := Calls(copies.events, above).name.matches(_MOVES) & (above >= 0)).any():
        inner = np.where(moving, above, inner)
        above = np.where(moving, pick(nesting.parent, inner), -1)
    hidden = ops.there & ~ops.name.matches(_MOVES) & Calls(copies.events, inner).name.matches(_MOVES)
    return np.where(hidden, inner, -1)


def _reading_op(copies: Work, called: CalledOps, converting: Rows) -> str:
    """The op that copies its inputs, if such copies take most of the time; else empty."""
    inside = converting >= 0
    if 2 * copies[inside].total_ns < copies.total_ns:
        return ""
    ops = Calls(copies.events, called.of(copies.launch.rows[inside]))
    return next(iter(ops.name.sums(copies.dur_ns[inside])), "")


def _fix(copies: Work, awaiting: Rows, link_gbps: float | None, converting: Rows) -> list[Edit]:
    """The copies aside, from pinned memory as fast as the link; and nothing waits for them.

    Those that another op makes of its inputs go.
    """
    needless = converting[converting >= 0]
    if len(needless):
        return [
            Drop(needless),
            *_fix(copies[converting < 0], awaiting, link_gbps, converting[converting < 0]),
        ]
    dur = copies.dur_ns.astype(np.float64)
    if link_gbps:
        dur = np.where(copies.pageable, np.minimum(dur, copies.bytes / (link_reached() * link_gbps)), dur)
    return [MoveToSideStream(copies.entries, dur), Drop(awaiting[~np.isin(awaiting, copies.launch.rows)])]


def _evidence(trace: Trace, copies: Work, least_ns: int) -> dict[str, Any]:
    names = {device.ordinal: device.name for device in trace.meta.devices}
    link = host_link(names.get(int(copies.device[0])))
    after_ns = copies.launch.end_ns - copies.end_ns
    blocked = copies.launch.there & copies.pageable & (after_ns >= least_ns)
    call_ns = int(copies.launch.dur_ns[blocked].mean()) if 2 * blocked.sum() > len(copies) else 0
    return {
        "moved_bytes": int(copies.bytes.sum()),
        "copy_bytes": int(median(copies.bytes)),
        "call_ns": call_ns,
        "gbps": float(copies.bytes.sum() / max(copies.total_ns, 1)),
        "link": link and link.name,
        "link_gbps": link and link.gbps,
    }


def copies_sent_back(calls: Calls, work: Work, copies: Work, spent_ns: Rows) -> Rows:
    """Row of the op that sends back what the host made of each copy to the host; int64 (copies,), -1 where none does.

    After work on the host it is the next op of the copy's thread that calls the device, and all that it launches are
    uploads of few bytes: the host works on the data to choose or to sum up.

    Args:
        spent_ns: int64 (copies,), work on the host after each copy.
    """
    top = calls[calls.is_top_op]
    owner = calls[calls.is_call].index_of_enclosing(top)
    calling = top[distinct(owner[owner >= 0])]
    uploading = np.isin(calling.rows, _uploading(work))
    moves, launcher = np.full(len(copies), -1, np.int64), copies.outer_op
    for thread in distinct(launcher.thread[launcher.there]).tolist():
        members = np.flatnonzero(launcher.there & (launcher.thread == thread) & (spent_ns > 0))
        of_thread = np.flatnonzero(calling.thread == thread)
        order = of_thread[np.argsort(calling.start_ns[of_thread], kind="stable")]
        after = np.searchsorted(calling.start_ns[order], launcher.end_ns[members])
        following = order[np.minimum(after, len(order) - 1)]
        back = (after < len(order)) & uploading[following]
        moves[members[back]] = calling.rows[following[back]]
    return moves


def _uploading(work: Work) -> Rows:
    """Rows of the outermost ops that launch only uploads of a few bytes."""
    small: Mask = work.kind.one_of("copy_h2d") & (work.bytes <= MAX_BYTES)
    return np.setdiff1d(work[small].outer_op.rows, work[~small].outer_op.rows)


def replaced_by_device_pass(calls: Calls, copies: Work, back: Rows, gpus: Gpus) -> Replace:
    """The host's work in one pass over the data on the device, without the copies there and back.

    Args:
        back: int64 (copies,), as from `sent_back`, for each of them.
    """
    passes_ns = copies.bytes / (_REACHED * gpus.memory_gbps(copies.device))
    ends_ns = Calls(calls.events, back).end_ns
    return Replace(copies.outer_op.start_ns, ends_ns, passes_ns[:, None], _OP_NS)


def cpu_op_copies(calls: Calls, copies: Work, min_ns: int) -> tuple[Texts, Rows]:
    """(the op that works longest on the host right before or after each copy, how long all of them do there).

    Before a copy to the device, after one to the host: on its thread, as far as the next op that calls the device.
    Before a copy only ops count whose result may have its size. What a data loader does is its own, and no op of the
    step. Where no op works on the host, but the copy becomes an array of numpy, the time up to the next op, call or
    annotation is numpy's.

    Args:
        min_ns: of an op; shorter ones are on the way.
    """
    top = calls[calls.is_top_op]
    busy = np.zeros(len(top), bool)
    owner = calls[calls.is_call].index_of_enclosing(top)
    busy[owner[owner >= 0]] = True
    works = ~busy & (top.dur_ns >= min_ns) & ~top.name.matches(_WORKER_MOVES)
    works &= ~top.name.meets(is_view) & ~top.name.meets(ALLOCATING_OP.search)
    works &= ~top.annotation.meets(DATA_LOADING.search)
    longest, spent = np.full(len(copies), -1, np.int64), np.zeros(len(copies), np.int64)
    launcher, upward = copies.outer_op, copies.kind.one_of("copy_h2d")
    for thread in distinct(launcher.thread[launcher.there]).tolist():
        of_thread = np.flatnonzero(top.thread == thread)
        order = of_thread[np.argsort(top.start_ns[of_thread], kind="stable")]
        calling = order[busy[order]]
        members = np.flatnonzero(launcher.there & (launcher.thread == thread))
        low, high = _windows(top, calling, launcher, members, upward)
        hosts = order[works[order]]
        first = np.searchsorted(top.start_ns[hosts], low, side="left")
        last = np.searchsorted(top.start_ns[hosts], high, side="left")
        taken_ns = top.dur_ns[hosts]
        for place, begin, end in zip(members.tolist(), first.tolist(), last.tolist(), strict=True):
            if upward[place] and end > begin:
                taken_ns[begin:end] *= _may_make(top[hosts[begin:end]], copies[place : place + 1])
        sums = np.append(0, np.cumsum(taken_ns))
        spent[members] = np.where(last > first, sums[np.maximum(last, first)] - sums[first], 0)
        array_ns = np.where(upward[members] | (last > first), 0, _numpy_ns(calls, thread, low, high))
        spent[members] = np.where(array_ns >= min_ns, array_ns, spent[members])
        longest[members] = np.where(array_ns >= min_ns, len(top), longest[members])
        for place, begin, end in zip(members.tolist(), first.tolist(), last.tolist(), strict=True):
            if sums[end] > sums[begin]:
                longest[place] = hosts[begin + int(np.argmax(taken_ns[begin:end]))]
    names = top.name
    code = np.append(names.code, (len(names.names), -1))[longest]  # -1, of no op, is the last
    return Texts(code, np.append(names.names, NUMPY)), spent


def _may_make(ops: Calls, copy: Work) -> Mask:
    """Which ops on the host may make what is copied to the device; bool (ops,).

    An op writes as many bytes as are copied. One whose result's size is unknown ends right before the copy.
    """
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    fits = [_fits(op, int(copy.bytes[0])) for op in signatures]
    near = copy.launch.start_ns[0] - ops.end_ns <= ops.dur_ns
    known = np.array([fit is not None for fit in fits], bool)[number]
    return np.where(known, np.array([bool(fit) for fit in fits], bool)[number], near)


def _fits(op: Signature, size: int) -> bool | None:
    """Whether the op's result has so many bytes with numbers of some type; None if its shape is unknown."""
    result = result_shape(op)
    shapes = tensors(op) if op.name.endswith("_") else [] if result is None else [result]
    return any(size in (each * math.prod(shape) for each in _WIDTHS) for shape in shapes) if shapes else None


def _numpy_ns(calls: Calls, thread: int, low: Rows, high: Rows) -> Rows:
    """Time in ns without a recorded event on the thread after a tensor became an array; 0 without an array."""
    members = calls[calls.thread == thread]
    results = members[members.name.one_of(_AS_ARRAY)]
    results = results[np.argsort(results.start_ns, kind="stable")]
    following = np.append(np.sort(members.start_ns), np.iinfo(np.int64).max)
    next_ns = following[np.searchsorted(following, results.end_ns, side="left")]
    which = np.searchsorted(results.start_ns, low, side="left")
    begins, ends, nexts = (
        np.append(ns, high.max(initial=0)) for ns in (results.start_ns, results.end_ns, next_ns)
    )
    there = (begins[which] < high) & (which < len(results))
    return np.where(there, np.minimum(nexts[which], high) - ends[which], 0)


def _windows(
    top: Calls, calling: Rows, launcher: Calls, members: Rows, upward: np.ndarray
) -> tuple[Rows, Rows]:
    """(start, end) of the host's work for each copy: from the call before it, or to the call after it."""
    starts, ends = top.start_ns[calling], top.end_ns[calling]
    begun, done = launcher.start_ns[members], launcher.end_ns[members]
    before = np.searchsorted(starts, begun, side="left") - 1
    after = np.searchsorted(starts, done, side="left")
    previous = pick(ends, before, 0)
    following = np.where(after < len(starts), np.append(starts, 0)[after], done)
    up = upward[members]
    return np.where(up, previous, done), np.where(up, begun, following)
