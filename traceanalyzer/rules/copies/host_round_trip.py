"""Data that goes to the host for an op there, and back."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.timeline.host_round_trips import HostRoundTrips

# Ops that bring data into another form on its way, and are not what the host does with it.
_MOVES = r"^aten::(to|_to_copy|copy_|clone|contiguous|empty\w*|detach|lift_fresh|resolve_\w+|set_|view|reshape)$"


class Limits:
    reached_share: float = 0.75
    """used for the predicted saving: the pointwise kernel that replaces the round trip reaches this share of
    the memory's peak rate; measured on an H200 with torch 2.11"""
    op_ns: int = 5_000
    """used for the predicted saving: launching the pointwise op that replaces the round trip takes this CPU
    time; measured on the host of an H200 with torch 2.11"""
    min_op_share: float = 0.1
    """the finding names an op on the host if the op takes at least this share of the time between the copies"""
    max_freeing_share: float = 0.2
    """after the copy back, the host frees its temporary arrays; the pause for this is part of the cost if it
    takes at most this share of the round trip's time; a longer pause has another cause; freeing two arrays of
    16 MiB took 9 % (measured on the host of an H200)"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=("host-op", "host-code"))
def host_round_trip(
    gpus: Gpus, calls: Calls, work: Work, idle: IdleTime, trips: HostRoundTrips, limits: Limits
) -> Iterator[Hits]:
    """Data goes to the host and back.

    What it looks for: the CPU waits for a copy to the host. Then the same thread copies the same number of
    elements to the device. Between the copies, an op runs on the CPU, or nothing is recorded, as with numpy.
    Why it costs: the GPU is idle during both copies and the work on the host. On the device, this work needs
    only one pass over memory.
    Bad: `x = torch.from_numpy(np.clip(x.cpu().numpy(), -1, 1)).cuda()`. Good: `x = x.clamp(-1, 1)`.
    How sure: an equal number of elements suggests equal data. Confidence is high if an op on the CPU is
    between the copies, and medium otherwise.
    When it is wrong: optimizer states or activations are offloaded on purpose.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    if len(trips.down) == 0:
        return
    host = op_on_host(calls, trips, limits.min_op_share)
    for op, copies in Work(work.events, trips.down).by(host):
        which = np.flatnonzero(np.isin(trips.down, copies.entries))
        down, up = Work(work.events, trips.down[which]), Work(work.events, trips.up[which])
        start, end = trips.start_ns[which], trips.freed_ns(limits.max_freeing_share)[which]
        passes_ns = (down.bytes + up.bytes) / (limits.reached_share * gpus.memory_gbps(down.device))
        worker = "{by} on the CPU" if op else "code without recorded events, such as numpy"
        what = op.removeprefix("aten::") if op else "this work"
        yield Hits(
            occurrences=down,
            named_by=op,
            cause="host-op" if op else "host-code",
            lost=_lost(down, up, work, idle, start, end),
            fix=Replace(start, end, passes_ns[:, None], limits.op_ns),
            message=f"{{times_a_step}}, data goes to the host, through {worker}, and back to the GPU "
            "({moved_a_step}); meanwhile the GPU computes nothing: {total_a_step} as recorded, {copies_of_step} of it "
            "during the copies{at_lines}",
            advice=f"Do {what} on the device, with torch ops on the CUDA tensor: one kernel, no copy, no wait.",
            confidence=Confidence.HIGH if op else Confidence.MEDIUM,
            evidence={
                "moved_bytes": int(down.bytes.sum() + up.bytes.sum()),
                "copies_ns": down.total_ns + up.total_ns,
                "host_ns": int((trips.sent_ns - trips.fetched_ns)[which].sum()),
                "lines": up.line.sums(end - start),
            },
            related=(up,),
        )


def _lost(down: Work, up: Work, work: Work, idle: IdleTime, start: Rows, end: Rows) -> LostTime:
    """Idle time during each trip, idle time charged to its calls, and copies that overlap no kernel."""
    both = Work(work.events, np.concatenate((down.entries, up.entries)))
    copies = LostTime.uncovered(both, work.of_kind("compute", "communication"))
    copies = replace(copies, owner=copies.owner % len(down), spans=None)
    late = idle.waited()
    owner = np.searchsorted(start, late.call.start_ns, side="right") - 1
    owner = np.where(late.call.there & (late.call.start_ns < pick(end, owner)), owner, -1)
    waited = LostTime.joined(
        [LostTime.idle_within(idle, start, end), LostTime.all_of(late[owner >= 0], owner[owner >= 0])]
    )
    return LostTime.joined([copies, waited[waited.device == down.device[waited.owner]]])


def op_on_host(calls: Calls, trips: HostRoundTrips, min_share: float) -> Texts:
    """The op that takes most host time in trips of equal sizes, None if it takes less than `min_share`."""
    nesting = calls.events.nesting
    ops = calls[calls.is_top_op & ~calls.name.matches(_MOVES)]
    trip = np.searchsorted(trips.fetched_ns, ops.start_ns, side="right") - 1
    inside = (trip >= 0) & (ops.end_ns <= pick(trips.sent_ns, trip))
    inside &= nesting.thread[ops.rows] == pick(trips.thread, trip)
    ops, trip = ops[inside], trip[inside]
    copied = Work(calls.events, trips.down).bytes, Work(calls.events, trips.up).bytes
    sizes, first = grouped(copied)
    names: list[str | None] = []
    for number in range(len(first)):
        members = sizes[trip] == number
        spent = ops[members].name.sums(ops[members].dur_ns)
        op = next(iter(spent), None)
        total = (trips.sent_ns - trips.fetched_ns)[sizes == number].sum()
        names.append(op if op and spent[op] >= min_share * total else None)
    valid = sorted({name for name in names if name})
    code = np.array([valid.index(name) if name else -1 for name in names], np.int64)
    return Texts(code[sizes], np.array(valid, object))
