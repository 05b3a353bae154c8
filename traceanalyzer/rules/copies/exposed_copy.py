"""Copies between host and device while no kernel runs."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, median, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.regions.regions import DropRegion
from traceanalyzer.replay.edits import Drop, DropSpans, Edit, MoveToSideStream
from traceanalyzer.roofline.gpus import host_link, tables
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Unavailable, Work, rule
from traceanalyzer.rule.idioms import idiom_of
from traceanalyzer.tensors.ops.table import is_view, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, signatures_of, tensors
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.host_round_trips import MAX_BYTES, HostRoundTrips
from traceanalyzer.timeline.names import ALLOCATING_OP, DATA_LOADING
from traceanalyzer.timeline.nesting import CalledOps
from traceanalyzer.timeline.synchronisation import SyncCalls

_WORKER_MOVES = (
    r"^aten::(to|_to_copy|copy_|clone|contiguous|cuda|cpu|_?pin_memory|resolve_\w+|"
    r"empty\w*|zeros|lift_fresh)$"
)
_OFFLOADED = "offloaded weights"  # a name of idioms.toml
_IF_TOO_LARGE = "Else copy the weights of the next layer from pinned memory, on a separate stream."
_WIDTHS = frozenset(ITEM_BYTES.values())
_MOVES = r"^aten::(to|_to_copy|copy_|cuda|cpu|clone|contiguous)$"
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


class Limits:
    min_bare_share: float = 0.5
    """a copy is reported only if no kernel runs during at least this share of the copy's time; chosen"""
    min_blocked_ns: int = 100_000
    """a copy of a few bytes is reported only if its call takes at least this much longer than the copy
    itself; on idle devices such calls return within 15 µs (measured on the host of an H200)"""
    min_worker_ns: int = 20_000
    """an op on CPU tensors is regarded as work on the copied data if it takes at least this time; the
    dispatch of an op, without its work, takes up to 10 µs (measured on the host of an H200)"""
    min_worker_share: float = 0.2
    """the advice names the op on the host if it takes at least this share of the copies' time; chosen"""


@rule(since="0.1", claims=Claims.EVENT, min_share=0.01, limits=Limits, causes=tuple(_TEXTS))
def exposed_copy(
    trace: Trace,
    calls: Calls,
    work: Work,
    idle: IdleTime,
    syncs: SyncCalls,
    called: CalledOps,
    trips: HostRoundTrips | None,
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
    See also: implicit-sync for values that are read back; host-round-trip for data that goes to the host and back.
    Saving: predicted as if the copies used pinned memory at the link's peak, and overlapped with kernels.
    If the CPU computes something small from the copied data, and sends it back, all of this is left out.
    Source: CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device".
    """
    cover = work.of_kind("compute", "communication")
    copies = work.of_kind(*_WAYS)
    if not len(copies) and len(work.of_kind("copy_other")):
        raise Unavailable("the trace has copies, but not their direction")
    tripping = distinct(np.append(trips.down, trips.up)) if trips else np.empty(0, np.int64)
    blocked = _blocked(copies, limits.min_blocked_ns)
    copies = copies[((copies.bytes > MAX_BYTES) | blocked) & ~np.isin(copies.entries, tripping)]
    bare_ns = LostTime.uncovered(copies, cover).sums(len(copies))
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
        offloaded = kind == "copy_h2d" and _offloaded(lines)
        ops, sent_ns = _ops_on_host(calls, work, moves, limits)
        purpose, advice, named = _purpose(moves, called, converting, remedy, ops)
        if offloaded:
            purpose, advice, named = "", _IF_TOO_LARGE, {"copied": _OFFLOADED}
        back = sent_ns > 0
        yield Hits(
            occurrences=moves,
            named_by=_WAYS[kind],
            cause=cause,
            lost=LostTime.joined([LostTime.uncovered(moves, cover), LostTime.all_of(waited, owner[owner >= 0])]),
            fix=_kept(calls, moves)
            if offloaded
            else [
                *_fix(moves[(converting < 0) & ~back], awaiting, evidence["link_gbps"]),
                Drop(converting[converting >= 0]),
                DropSpans(moves.outer_op.start_ns[back], sent_ns[back]),
            ],
            message="a copy of {copy} goes from {by} {times_a_step}"
            + (", and its call takes {call} on average" if evidence["call_ns"] else "")
            + "{at_lines}; it reaches {gbps} GB/s (mean of all these copies"
            + ("; {link} gives {link_gbps} GB/s)" if evidence["link"] else ")")
            + f", and no kernel runs meanwhile; {what}{purpose}",
            advice=advice,
            evidence=evidence | named | {"waited_ns": Calls(work.events, awaiting).total_ns, "lines": lines},
        )


def _purpose(
    copies: Work, called: CalledOps, converting: Rows, remedy: str, ops: Calls
) -> tuple[str, str, dict[str, str]]:
    """(what the copies are for, as a part of a sentence; the remedy; the op that it names)."""
    upward = bool(copies.kind.one_of("copy_h2d").all())
    otherwise = f"Else: {remedy[0].lower()}{remedy[1:]}"
    inputs = copies[converting >= 0]
    readers = Calls(copies.events, called.of(inputs.launch.rows)).name.sums(inputs.dur_ns)
    if readers and upward and 2 * inputs.total_ns >= copies.total_ns:
        reader = next(iter(readers))
        keeps = f"Keep the inputs of {reader} on the device: each call copies them there. "
        return "; {reader} needs the data there", keeps + otherwise, {"reader": reader}
    worker = next(iter(ops.name.sums(ops.dur_ns)), "")
    if not worker:
        return "", remedy, {}
    if upward:
        results = f"Create it on the device: {worker} with device='cuda', or on inputs on the device. "
        return "; on the host, {worker} makes the data", results + otherwise, {"worker": worker}
    done = f"Run {worker} on the device, where the tensor is: then nothing is copied. "
    return "; on the host, {worker} works on the data", done + otherwise, {"worker": worker}


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
    """Rows of the conversions inside ops whose inputs are elsewhere, as of `x[index]`; -1 for copies of the user's."""
    ops = Calls(copies.events, called.of(copies.launch.rows))
    inner = copies.launch.op.rows
    nesting = copies.events.nesting
    above = pick(nesting.parent, inner)
    while (moving := Calls(copies.events, above).name.matches(_MOVES) & (above >= 0)).any():
        inner = np.where(moving, above, inner)
        above = np.where(moving, pick(nesting.parent, inner), -1)
    hidden = ops.there & ~ops.name.matches(_MOVES) & Calls(copies.events, inner).name.matches(_MOVES)
    return np.where(hidden, inner, -1)


def _fix(copies: Work, awaiting: Rows, link_gbps: float | None) -> list[Edit]:
    """The copies aside, from pinned memory as fast as the link; and nothing waits for them."""
    dur = copies.dur_ns.astype(np.float64)
    if link_gbps:
        reached_gbps = tables()["link_reached"] * link_gbps
        dur = np.where(copies.pageable, np.minimum(dur, copies.bytes / reached_gbps), dur)
    return [MoveToSideStream(copies.entries, dur), Drop(awaiting[~np.isin(awaiting, copies.launch.rows)])]


def _offloaded(lines: Mapping[str, int]) -> bool:
    """Whether a library that keeps weights on the host makes most of the copies."""
    if 2 * max(lines.values(), default=0) < sum(lines.values()):
        return False
    idiom = idiom_of("calls", [*lines][:1])
    return idiom is not None and idiom.name == _OFFLOADED


def _kept(calls: Calls, copies: Work) -> list[Edit]:
    """Without the copies, and without the functions that do nothing else."""
    ops = copies.outer_op.distinct()
    top = calls[calls.is_top_op]
    copying = top.inside(ops)
    # Views make nothing, but aten::to is one that copies here.
    counts = copying | ~top.name.meets(is_view)
    thread = np.full(int(counts.sum()), ops.thread[0])
    functions = calls.events.user_code.whole(top.start_ns[counts], thread, copying[counts])
    return [Drop(ops.rows), DropRegion(*functions)]


def _blocked(copies: Work, least_ns: int) -> Mask:
    """Copies from pageable memory whose call returns so long after the copy has ended."""
    after_ns = copies.launch.end_ns - copies.end_ns
    return copies.launch.there & copies.pageable & (after_ns >= least_ns)


def _evidence(trace: Trace, copies: Work, least_ns: int) -> dict[str, Any]:
    names = {device.ordinal: device.name for device in trace.meta.devices}
    link = host_link(names.get(int(copies.device[0])))
    blocked = _blocked(copies, least_ns)
    call_ns = int(copies.launch.dur_ns[blocked].mean()) if 2 * blocked.sum() > len(copies) else 0
    return {
        "moved_bytes": int(copies.bytes.sum()),
        "copy_bytes": int(median(copies.bytes)),
        "call_ns": call_ns,
        "gbps": float(copies.bytes.sum() / max(copies.total_ns, 1)),
        "link": link and link.name,
        "link_gbps": link and link.gbps,
    }


def _ops_on_host(calls: Calls, work: Work, copies: Work, limits: Limits) -> tuple[Calls, Rows]:
    """(the op that works longest on the host next to each copy, when its result was sent back or 0: int64 (copies,)).

    Before a copy to the device, after one to the host; no other op of the thread calls the device in between. Before a
    copy only ops count whose result may have its size. Ops of a data loader do not count. None are returned if they
    take a small share of the copies' time. A result is sent back if the next op launches only uploads of few bytes.
    """
    top = calls[calls.is_top_op].in_order()
    calling = np.isin(np.arange(len(top)), calls[calls.is_call].index_of_enclosing(top))
    works = ~calling & (top.dur_ns >= limits.min_worker_ns) & ~top.name.matches(_WORKER_MOVES)
    works &= ~top.name.meets(is_view) & ~top.name.meets(ALLOCATING_OP.search)
    works &= ~top.annotation.meets(DATA_LOADING.search)
    launched, launcher = np.cumsum(calling), copies.outer_op
    workers, since, callers = top[works], launched[works], top[calling]
    upward = copies.kind.one_of("copy_h2d")
    wanted = np.where(launcher.there, pick(launched, find(top.rows, launcher.rows)) - upward, -1)
    small = work.kind.one_of("copy_h2d") & (work.bytes <= MAX_BYTES)
    uploads = np.isin(callers.rows, np.setdiff1d(work[small].outer_op.rows, work[~small].outer_op.rows))
    longest, sent_ns = [], np.zeros(len(copies), np.int64)
    for copy in np.flatnonzero(wanted >= 0).tolist():
        near = workers[slice(*np.searchsorted(since, (wanted[copy], wanted[copy] + 1)).tolist())]
        near = near[near.thread == launcher.thread[copy]]
        if upward[copy] and len(near):
            near = near[_may_make(near, copies[copy : copy + 1])]
        if not len(near):
            continue
        longest.append(int(near.rows[np.argmax(near.dur_ns)]))
        following = callers[wanted[copy] : wanted[copy] + 1]
        if not upward[copy] and uploads[wanted[copy] : wanted[copy] + 1].any():
            sent_ns[copy] = following.end_ns[0] if following.thread[0] == launcher.thread[copy] else 0
    found = Calls(calls.events, distinct(np.array(longest, np.int64)))
    if found.total_ns < limits.min_worker_share * copies.total_ns:
        return found[:0], np.zeros(len(copies), np.int64)
    return found, sent_ns


def _may_make(ops: Calls, copy: Work) -> Mask:
    """Which ops may make what is copied to the device: of its size; if unknown, they end right before; bool (ops,)."""
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
