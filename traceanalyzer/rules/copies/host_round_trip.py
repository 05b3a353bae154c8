"""Data that is sent to the host, worked on there, and sent back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import grouped, pick
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.peaks import device_peaks, known_devices
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.rule.views.selection import Rows
from traceanalyzer.timeline.host_trips import HostTrips


@dataclass(frozen=True, slots=True)
class Limits:
    reached: float = limit(
        0.75, "of the memory's peak rate by a pointwise kernel on the device; H200, torch 2.11"
    )
    op_ns: int = limit(5_000, "CPU time of that kernel's op; H200 host, torch 2.11")
    min_op_share: float = limit(0.1, "of the time between the copies; a smaller op on the host is not named")
    max_freeing_share: float = limit(
        0.2, "of a trip that the gap after it may take to be its own: freeing 2 x 16 MiB takes 9 %, H200 host"
    )


_LATE = ("synchronisation", "blocking-upload")  # causes of idle time, in the accounting's table
# Ops that bring data into another form on its way, and are not what the host does with it.
_MOVES = (
    r"^aten::(to|_to_copy|copy_|clone|contiguous|empty\w*|detach|lift_fresh|resolve_\w+|set_|view|reshape)$"
)


@rule(since="0.2", claims=Claims.EVENT, limits=Limits)
def host_round_trip(
    trace: Trace, calls: Calls, work: Work, idle: IdleTime, trips: HostTrips, limits: Limits
) -> Iterator[Hits]:
    """Data goes to the host and back.

    What it looks for: a copy to the host that the CPU waits for, and as many elements that the same thread copies
    back within the step; between them an op on the CPU, or numpy, which leaves no events.
    Why it costs: both copies, the work on the host and the launches after it leave the GPU idle; the same work takes
    one pass over the device's memory.
    Bad: `x = torch.from_numpy(np.clip(x.cpu().numpy(), -1, 1)).cuda()`. Good: `x = x.clamp(-1, 1)`.
    How sure: that the data is the same is told from the number of elements; high where an op on the CPU is between
    the copies, medium where only time is. A loop that sends a batch and fetches a result of that size is told apart:
    it has a copy up before its first copy down.
    When it is wrong: offloading on purpose (optimizer states, activations) looks alike and is a choice.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    if len(trips.down) == 0:
        return
    host = _on_host(calls, trips, limits.min_op_share)
    for op, found in Work(work.events, trips.down).by(host):
        which = np.flatnonzero(np.isin(trips.down, found.entries))
        down, up = Work(work.events, trips.down[which]), Work(work.events, trips.up[which])
        start, end = trips.start_ns[which], _until(trips, limits.max_freeing_share)[which]
        lines = up.line.sums(end - start)
        worker = "{by} on the CPU" if op else "code that leaves no events, such as numpy"
        what = op.removeprefix("aten::") if op else "this work"
        yield Hits(
            at=down,
            by=op,
            cause="host-op" if op else "host-code",
            lost=_lost(down, up, work, idle, start, end),
            fix=Replace(start, end, _pass_ns(trace, down, up, limits)[:, None], limits.op_ns),
            message=f"data goes to the host, through {worker}, and back to the GPU {{times_a_step}}, {{moved}} in all: "
            "the GPU loses {total} in all, {copies} of it in the copies" + (", at {lines}" if lines else ""),
            advice=f"Do {what} on the device, with torch on the CUDA tensor: one kernel, no copy and no waiting.",
            confidence=Confidence.HIGH if op else Confidence.MEDIUM,
            evidence={
                "moved_bytes": int(down.bytes.sum() + up.bytes.sum()),
                "copies_ns": down.total_ns + up.total_ns,
                "host_ns": int((trips.sent_ns - trips.fetched_ns)[which].sum()),
                "lines": lines,
            },
            also=(up,),
        )


def _on_host(calls: Calls, trips: HostTrips, min_share: float) -> Texts:
    """The op on which the host spends most in trips of the same sizes, none where that is less than `min_share`."""
    nesting = calls.events.nesting
    ops = calls[calls.is_op & ~calls.parent.op.there & ~calls.name.matches(_MOVES)]
    trip = np.searchsorted(trips.fetched_ns, ops.start_ns, side="right") - 1
    inside = (trip >= 0) & (ops.end_ns <= pick(trips.sent_ns, trip))
    inside &= nesting.thread[ops.rows] == pick(trips.thread, trip)
    ops, trip = ops[inside], trip[inside]
    copied = Work(calls.events, trips.down).bytes, Work(calls.events, trips.up).bytes
    sizes, first = grouped(copied)
    names: list[str | None] = []
    for number in range(len(first)):
        mine = sizes[trip] == number
        spent = ops[mine].name.sums(ops[mine].dur_ns)
        op = next(iter(spent), None)
        total = (trips.sent_ns - trips.fetched_ns)[sizes == number].sum()
        names.append(op if op and spent[op] >= min_share * total else None)
    known = sorted({name for name in names if name})
    code = np.array([known.index(name) if name else -1 for name in names], np.int64)
    return Texts(code[sizes], np.array(known, object))


def _until(trips: HostTrips, max_freeing_share: float) -> Rows:
    """The end of each trip with the gap in which the host's tensors are freed, if there is no more in it."""
    freeing = trips.next_ns - trips.end_ns
    short = freeing <= max_freeing_share * (trips.end_ns - trips.start_ns)
    return np.where(short, trips.next_ns, trips.end_ns)


def _lost(down: Work, up: Work, work: Work, idle: IdleTime, start: Rows, end: Rows) -> Lost:
    """The device's idle time during each trip and charged to its calls, and the copies that no kernel covers."""
    both = Work(work.events, np.concatenate((down.entries, up.entries)))
    copies = Lost.uncovered(both, work.of_kind("compute", "communication"))
    copies = replace(copies, owner=copies.owner % len(down))
    late = idle.charged_to(*_LATE)
    owner = np.searchsorted(start, late.call.start_ns, side="right") - 1
    owner = np.where(late.call.there & (late.call.start_ns < pick(end, owner)), owner, -1)
    waited = Lost.joined(
        [Lost.idle_within(idle, start, end), Lost.all_of(late[owner >= 0], owner[owner >= 0])]
    )
    return Lost.joined([copies, waited[waited.device == down.device[waited.owner]]])


def _pass_ns(trace: Trace, down: Work, up: Work, limits: Limits) -> NDArray[np.float64]:
    """Duration of one pass over the device's memory; a device that is not known is taken for the slowest known."""
    slowest = min(peaks.gbps for peaks in known_devices())
    names = {device.ordinal: device.name for device in trace.meta.devices}
    found = [device_peaks(names.get(device)) for device in down.device.tolist()]
    gbps = np.array([peaks.gbps if peaks else slowest for peaks in found])
    return np.asarray((down.bytes + up.bytes) / (limits.reached * gbps))
