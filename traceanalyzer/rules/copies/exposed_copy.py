"""Copies between host and device while no kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Rows, sums_of
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edits import Aside, Drop, Edit
from traceanalyzer.roofline.links import REACHED, host_link
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.called_ops import CalledOps
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.host_trips import HostTrips
from traceanalyzer.timeline.synchronisation import SyncCalls


@dataclass(frozen=True, slots=True)
class Limits:
    min_bytes: int = limit(65_537, "less is a value or a size that is read back: implicit-sync's")
    min_bare_share: float = limit(0.5, "of a copy's time that no kernel covers; by definition most")


_LATE = ("synchronisation",)  # causes of idle time, in the accounting's table
_WAYS = {"copy_h2d": "host to device", "copy_d2h": "device to host", "copy_p2p": "device to device"}

# cause -> (what is wrong, remedy to the device, remedy to the host or to another device)
_TEXTS = {
    "pageable": (
        "from or to memory that is not pinned, in pieces through the driver's buffer",
        "Pin the source (DataLoader(pin_memory=True) or tensor.pin_memory()) and copy with non_blocking=True on a stream "
        "of its own, one batch ahead.",
        "Copy with non_blocking=True into a pinned tensor, and read it a step later.",
    ),
    "blocking": (
        "while the host waits for each",
        "Copy with non_blocking=True from pinned memory, on a stream of its own, one batch ahead.",
        "Copy with non_blocking=True into pinned memory, and read it a step later.",
    ),
    "on-compute-stream": (
        "from pinned memory, but on the stream of the kernels, which wait for it",
        "Copy the next batch on a stream of its own (torch.cuda.Stream) while this one is computed.",
        "Copy on a stream of its own, so that the kernels of the next step run beside it.",
    ),
    "not-ahead": (
        "on a stream of its own, but not ahead of the kernels that need it",
        "Start it earlier: fetch one batch further ahead.",
        "Start it as soon as its data is there, and let the kernels of the next step run beside it.",
    ),
}
_CAUSES = np.array(list(_TEXTS), object)


@rule(since="0.2", claims=Claims.EVENT, min_share=0.01, limits=Limits)
def exposed_copy(
    trace: Trace,
    work: Work,
    idle: IdleTime,
    syncs: SyncCalls,
    called: CalledOps,
    trips: HostTrips,
    limits: Limits,
) -> Iterator[Hits]:
    """A copy between host and device runs while no kernel does.

    What it looks for: copies to the device, to the host and between devices that no kernel covers for most of their
    time: pageable, waited for by the host, or queued on the stream of the kernels.
    Why it costs: the kernels wait for the link, which is 50 to 90 times slower than the device's memory; copies have
    engines of their own and could run beside the kernels of another batch.
    Bad: `x = x.cuda()` of a pageable batch. Good: a pinned batch, `x.cuda(non_blocking=True)` on a side stream, one
    batch ahead.
    How sure: times, bytes and kinds of memory are measured; the link's peak is that of the maker's data sheet. The
    cost is the copy without kernels beside it, and the idle time that the accounting charges to waiting for it.
    When it is wrong: where a step has nothing to run beside the copy, as in a single request, only a quicker copy
    helps. Values that are read back are implicit-sync's, trips to the host and back host-round-trip's.
    Source: CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device".
    """
    copies = work.of_kind(*_WAYS)
    copies = copies[(copies.bytes >= limits.min_bytes) & ~np.isin(copies.entries, [*trips.down, *trips.up])]
    bare = Lost.uncovered(copies, work.of_kind("compute", "communication"))
    bare_ns = sums_of(bare.owner, bare.end_ns - bare.start_ns, len(copies))
    copies = copies[bare_ns >= limits.min_bare_share * copies.dur_ns]
    waits = syncs.row[~syncs.profiler]
    for (cause, kind), found in copies.by(
        _causes(copies, work, _op_or_call(called, waits), called), copies.kind
    ):
        own = _op_or_call(called, found.launch.rows)
        waiting = waits[np.isin(_op_or_call(called, waits), own[own >= 0])]
        charged = idle.charged_to(*_LATE)
        owner = find(own, np.where(charged.call.there, _op_or_call(called, charged.call.rows), -2))
        alone = Lost.uncovered(found, work.of_kind("compute", "communication"))
        what, upwards, elsewhere = _TEXTS[cause]
        lines = found.line.sums(found.dur_ns)
        evidence = _evidence(trace, found)
        yield Hits(
            at=found,
            by=_WAYS[kind],
            cause=cause,
            lost=Lost.joined([alone, Lost.all_of(charged[owner >= 0], owner[owner >= 0])]),
            fix=_fix(found, waiting, cause, evidence["link_gbps"]),
            message=f"{{moved}} are copied {{by}} {{times_a_step}}, {what}, at {{gbps}} GB/s"
            + (" of the {link_gbps} GB/s of {link}" if evidence["link"] else "")
            + ": the kernels wait {total} in all"
            + (", at {lines}" if lines else ""),
            advice=upwards if kind == "copy_h2d" else elsewhere,
            evidence=evidence | {"waited_ns": Calls(work.events, waiting).total_ns, "lines": lines},
        )


def _op_or_call(called: CalledOps, rows: Rows) -> Rows:
    op = called.of(rows)
    return np.where(op >= 0, op, rows)


def _causes(copies: Work, work: Work, waiting: Rows, called: CalledOps) -> Texts:
    """Cause of each copy, the first that holds."""
    kernels = work.of_kind("compute")
    streams = np.unique(kernels.device << 32 | kernels.stream)
    holds = [
        copies.name.matches("Pageable"),
        copies.launch.there & np.isin(_op_or_call(called, copies.launch.rows), waiting),
        np.isin(copies.device << 32 | copies.stream, streams),
    ]
    return Texts(np.select(holds, range(3), 3), _CAUSES)


def _fix(copies: Work, waiting: Rows, cause: str, link_gbps: float | None) -> list[Edit]:
    """The copies aside, from pinned memory as fast as the link; and nothing waits for them."""
    dur = copies.dur_ns.astype(np.float64)
    if cause == "pageable" and link_gbps:
        dur = np.minimum(dur, copies.bytes / (REACHED * link_gbps))
    return [Aside(copies.entries, dur), Drop(waiting[~np.isin(waiting, copies.launch.rows)])]


def _evidence(trace: Trace, copies: Work) -> dict[str, Any]:
    names = {device.ordinal: device.name for device in trace.meta.devices}
    link = host_link(names.get(int(copies.device[0])))
    return {
        "moved_bytes": int(copies.bytes.sum()),
        "gbps": float(copies.bytes.sum() / max(copies.total_ns, 1)),
        "link": link and link.name,
        "link_gbps": link and link.gbps,
        "ops": copies.op.name.sums(copies.dur_ns),
    }
