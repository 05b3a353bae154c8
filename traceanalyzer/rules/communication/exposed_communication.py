"""Communication that no computation runs beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import sums_of
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Resize
from traceanalyzer.rule import Claims, Hits, Lost, Work, limit, rule
from traceanalyzer.rule.collective_names import collective_names, collectives_of
from traceanalyzer.rule.transfers import transfer_ns
from traceanalyzer.rule.views.selection import Rows


@dataclass(frozen=True, slots=True)
class Limits:
    gain_share: float = limit(
        0.3, "of what is hidden is won: compute beside NCCL slows by the rest; DDP on 2 H200, NVLink"
    )
    waiting_times: float = limit(
        1.75,
        "the transfer: then the ranks do not arrive together; 1.0 to 1.7 where they do, 2 H200, NVLink",
    )


_ADVICE = {
    "allreduce": "Let it run beside the backward pass: DistributedDataParallel with buckets small enough "
    "(bucket_cap_mb), or async_op=True and a late wait().",
    "allgather": "Prefetch the next layer's parameters (FSDP: forward and backward prefetch), or keep a second copy "
    "in flight.",
    "reducescatter": "Let it run beside the next layer's backward pass, with smaller units of sharding.",
    "alltoall": "Split the batch in two, so that one half computes while the other is exchanged.",
    "barrier": "Remove the barrier from the loop: collectives order the ranks as far as they need it.",
    "sendrecv": "Split the batch in two, so that one half computes while the other is exchanged.",
}
_NEEDED = "Gradients summed after the backward pass belong beside it (DistributedDataParallel); what is needed at once "
_NEEDED += "takes fewer or smaller collectives (one for several layers, a smaller dtype), or a split batch."
_PARTS = "See whether the next op can work on the part that this rank has, which makes it needless; else fewer and "
_PARTS += "larger ones, or a split batch, so that one half computes meanwhile."
_ELSE = "Start it earlier, with async_op=True, and wait where the result is needed."
_ALL_WAITING = ("barrier", "recv")  # what they take is the way of the others to get there
_HINT = 0.029  # of the step: severity low, since one rank cannot show who is late, or that anyone need be
_WHOLE = 0.995  # rounds to all of it
_PIPELINE = "Look at the rank that sends: what it does before that is what this one waits for. In a pipeline more and "
_PIPELINE += "smaller micro-batches leave less of it."
_PEERS = "The rank that waits least is the late one: compare its compute and host time with the others' (diagnose all "
_PEERS += (
    "ranks at once). What it does before is what this one waits for, and overlap does not take that away."
)


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.01, limits=Limits, causes=("waiting", "transfer"))
def exposed_communication(work: Work, limits: Limits) -> Iterator[Hits]:
    """Collectives run while the GPU computes nothing.

    What it looks for: time of NCCL and RCCL kernels beside which no other kernel runs, by collective and process
    group. The quickest execution with as many elements is taken for the transfer, and less where larger ones move
    more in that time; what others take beyond it is waiting.
    Why it costs: the GPU does nothing else meanwhile.
    Bad: all gradients reduced after the backward pass. Good: bucket by bucket, beside it.
    How sure: that nothing runs beside it is measured. Within one rank waiting for a peer cannot be told from slow
    transfer for sure, hence medium, and low for waiting. The saving counts a part of the transfer, because compute
    slows down beside NCCL.
    When it is wrong: tensor parallelism needs the result at once; only fewer or smaller collectives help there.
    Source: PyTorch's DDP notes; measured on two H200 over NVLink with torch 2.11.
    """
    every = collectives_of(work)
    lost = Lost.uncovered(every, work.of_kind("compute"))
    exposed = sums_of(lost.owner, lost.end_ns - lost.start_ns, len(every))
    transfer = transfer_ns(every)
    what = collective_names(every)
    for name, _ in every.by(what):
        own = np.flatnonzero(what.one_of(name))
        mine = lost[np.isin(lost.owner, own)]
        mine = replace(mine, owner=np.searchsorted(own, mine.owner))
        yield _hits(every[own], name, mine, exposed[own], transfer[own], limits)


def _who_is_late(name: str, *, waiting: int, peers: bool) -> str:
    if name.split(" ")[0] in _ALL_WAITING:
        return ", waiting for another rank"
    if not waiting:
        return ""
    return "; {waiting} of it is probably waiting for " + (
        "a rank that comes later" if peers else "other ranks"
    )


def _remedy(name: str, found: Work, *, peers: bool) -> str:
    if name.startswith("recv"):
        return _PIPELINE
    if peers and not name.startswith("barrier"):
        return _PEERS
    return _advice(name, found)


def _advice(name: str, found: Work) -> str:
    """By what it is; outside of the backward pass the next op usually needs the result."""
    kind = name.split(" ")[0]
    backward = found.outer_op.name.matches(r"^autograd::|Backward").any()
    sharded = (
        found.outer_op.name.matches(r"(?i)fsdp").any() or found.launch.annotation.matches(r"(?i)fsdp").any()
    )
    if kind == "allgather" and not sharded:
        return _PARTS
    return _NEEDED if kind == "allreduce" and not backward else _ADVICE.get(kind, _ELSE)


def _hits(found: Work, name: str, lost: Lost, exposed: Rows, transfer: Rows, limits: Limits) -> Hits:
    moved = np.minimum(exposed, transfer)
    waiting = int((exposed - moved).sum())
    peers = name.split(" ")[0] in _ALL_WAITING or found.total_ns > limits.waiting_times * int(transfer.sum())
    whole = int(exposed.sum()) >= _WHOLE * found.total_ns
    fix = Resize(found.entries, found.dur_ns - limits.gain_share * moved)
    return Hits(
        at=found,
        by=name,
        cause="waiting" if peers else "transfer",
        lost=lost,
        fix=() if peers else fix,
        confidence=Confidence.LOW if peers else Confidence.MEDIUM,
        message="{by} {times_a_step}: "
        + ("all of it ({all}) runs" if whole else "{exposed} of {all} run")
        + " while the GPU computes nothing"
        + _who_is_late(name, waiting=waiting, peers=peers),
        advice=_remedy(name, found, peers=peers),
        most=_HINT if peers else 1.0,
        evidence={
            "all_ns": found.total_ns,
            "exposed_ns": int(exposed.sum()),
            "transfer_ns": int(moved.sum()),
            "waiting_ns": waiting,
            "ops": found.outer_op.name.sums(exposed),
        },
    )
