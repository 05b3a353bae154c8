"""Communication that overlaps no compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import texts_of
from traceanalyzer.replay.edits import Drop, DropWork, MoveToSideStream, Resize, Scale
from traceanalyzer.rule import Claims, Hits, LostTime, Work, limit, rule
from traceanalyzer.rule.lost_time import split_waiting
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.collective_work import Arrivals, collective_names, collectives_of
from traceanalyzer.timeline.hidden_waits import HiddenWaits

_SPLIT = "Split the batch in two, so that one half computes while the other communicates."
_MOSTLY_HIDDEN = (
    "Most of it already overlaps with compute: start the rest earlier, or put more compute beside it."
)
_IN_PHASES = (
    "Let compute run between the sending and the receiving kernel (return_recv_hook=True and two micro-batches). If "
    "your code already does this, nothing is left to gain."
)
_ADVICE = {
    "allreduce": "Overlap it with the backward pass: DistributedDataParallel with small enough buckets "
    "(bucket_cap_mb), or async_op=True and a late wait().",
    "allgather": "Prefetch the next layer's parameters (FSDP: forward and backward prefetch).",
    "reducescatter": "Overlap it with the next layer's backward pass: use smaller FSDP units.",
    "alltoall": _SPLIT,
    "barrier": "Remove the barrier from the loop: collectives already synchronise the ranks.",
    "sendrecv": _SPLIT,
}
_AFTER_BACKWARD = "Reduce gradients during the backward pass, not after it (DistributedDataParallel). "
_LAST_BUCKET = (
    "Try another size of DistributedDataParallel's buckets (bucket_cap_mb): smaller ones start earlier, so that more "
    "of the transfer overlaps with the backward pass; larger ones need fewer launches."
)
_NEEDED = (
    "If the result is needed at once, use fewer or smaller collectives (one for several layers, a smaller "
)
# All-reduces a step. 64 of 25 MB, DistributedDataParallel's default, are 1.6 GB of gradients.
_MANY = 64
_JOIN = (
    "Merge many collectives into one: larger DistributedDataParallel buckets (bucket_cap_mb), or one flat tensor "
    "where you call them yourself. "
)
_JOIN_SOME = "Merge collectives whose inputs are ready at the same time; those of consecutive layers cannot be merged. "
_PARTS = (
    "If possible, let the next op work only on this rank's part of the tensor. Then no collective is needed. "
    "Else use fewer and larger collectives, or split the batch, so that one half computes while the other communicates."
)
_SHARED_QUEUE = (
    "The streams probably share a hardware queue: unset CUDA_DEVICE_MAX_CONNECTIONS=1. If tensor parallelism needs it, "
    "launch the collective after the kernels that may run beside it."
)
_ELSE = "Start it earlier, with async_op=True, and wait where the result is needed."
_PIPELINE = (
    "This rank waits for the sending rank: look at what that rank does before it sends. In a pipeline, use more and "
    "smaller micro-batches."
)
_PEERS = (
    "The rank that waits least is the late one: compare its compute and host time with those of the others."
)
_ALONE = (
    "Other ranks decide how long this one waits, so the severity is at most low: diagnose the traces of all ranks "
    "together, and the report names the late rank."
)
_LATE = "{late} comes last: look at what it does before the collective, on CPU and GPU."
_IN_TURN = "The last rank changes from call to call, so no single rank is slow."
# Share of the waiting from which one rank causes it, as in the verdict on a job; chosen.
_ONE_RANKS = 0.6
ALL_WAITING = ("barrier", "recv")
"""What these take is the way of the others to get there."""
_BACKWARD = r"^autograd::|Backward"
_DDP = regex(r"^DistributedDataParallel\.forward|^torch\.distributed\.ddp\.reducer::")
# DeepEP: one kernel sends and another receives, if asked to.
_PHASES = r"internode_ll::(dispatch|combine)"
# Highest severity: waiting of this rank is no fault of its own.
_HINT = Severity.LOW
# Share that rounds to 100 %.
_WHOLE = 0.995
# Share of a collective's time with overlapping compute from which it counts as overlapped; chosen.
_HIDDEN = 0.5
_PART_TEXTS = {True: "slow", False: "quick"}


@dataclass(frozen=True, slots=True)
class Limits:
    gain_share: float = limit(
        0.3,
        "used for the predicted saving: of the transfer time that runs beside compute after the fix, only "
        "this share is saved, because compute slows down while NCCL runs; measured with DDP on 2 H200, "
        "NVLink",
    )
    waiting_times: float = limit(
        1.75,
        "with one rank's trace: a rank is regarded as waiting if a collective takes at least this many "
        "times its estimated transfer time; if ranks arrive together, a collective takes 1.0 to 1.7 times "
        "that time (measured on 2 H200, NVLink)",
    )
    min_measured_share: float = limit(
        0.5,
        "waiting is measured if the other ranks' traces cover at least this share of a collective's time; "
        "otherwise waiting is estimated from this rank's trace",
    )
    min_waiting_ns: int = limit(
        20_000,
        "with the traces of all ranks: shorter waits in a collective are ignored; the ends that two ranks "
        "record for one collective differ by up to 10 µs (measured on 2 H200)",
    )
    min_late_ns: int = limit(
        100_000,
        "with one rank's trace: a rank is regarded as waiting only if the collective also takes at least "
        "this much longer than its estimated transfer time; the latency between hosts is tens of µs",
    )


@rule(
    since="0.1",
    claims=Claims.PATTERN,
    min_share=0.01,
    limits=Limits,
    causes=("serialised", "waiting", "transfer"),
)
def exposed_communication(
    work: Work, waits: CollectiveWaits | None, hidden: HiddenWaits, limits: Limits
) -> Iterator[Hits]:
    """Collectives run while the GPU computes nothing.

    What it looks for: time of NCCL and RCCL kernels during which no other kernel runs. The rule divides this
    time into transfer and waiting for other ranks.
    Serialised: kernels that were queued on another stream start only after the collective, and no recorded
    call makes them wait. Then streams share a hardware queue.
    With the traces of all ranks: waiting is measured. In each collective, the rank that arrives last does not
    wait. The other ranks' kernels take longer, and this extra time is waiting.
    With the trace of one rank: waiting is estimated. The rule assumes that the fastest collective of each
    size did not wait.
    Why it costs: the GPU computes nothing during this time.
    Bad: all gradients are reduced after the backward pass. Good: they are reduced bucket by bucket during the
    backward pass.
    How sure: exposed time is measured. One trace does not show whether a long collective waited or was slow.
    So confidence in waiting is then low. Only a part of the transfer's time can be saved, because compute
    slows down while NCCL runs.
    When it is wrong: tensor parallelism needs the result at once, so overlap does not help. Then use fewer or
    smaller collectives. Or split the batch in two: one half computes while the other communicates.
    Source: PyTorch's DDP notes; measured on two H200 over NVLink with torch 2.11.
    """
    every = collectives_of(work)
    lost = LostTime.uncovered(every, work.of_kind("compute"))
    arrivals, what = Arrivals.of(every, waits), collective_names(every)
    for name, collectives in every.by(what):
        members = np.flatnonzero(what.one_of(name))
        exposed_part = lost[np.isin(lost.owner, members)]
        owner = np.searchsorted(members, exposed_part.owner)
        exposed_part, on_device = replace(exposed_part, owner=owner, spans=None), arrivals[members]
        serial = _serialised(every[members], exposed_part, hidden)
        if 2 * collectives.dur_ns[serial].sum() >= collectives.total_ns:
            yield _serialised_hits(every[members][serial], name, exposed_part, serial)
        elif collectives.dur_ns[on_device.measured].sum() >= limits.min_measured_share * collectives.total_ns:
            yield from measured_hits(every[members], name, exposed_part, on_device, limits)
        else:
            yield from waiting_hits(
                every[members], name, exposed_part, on_device, limits, single=waits is None
            )


def _serialised(collectives: Work, lost: LostTime, hidden: HiddenWaits) -> Rows:
    """Positions of collectives beside which nothing computes, while queued kernels of another stream wait for them."""
    awaited = np.isin(collectives.entries, hidden.after)
    exposed = lost.sums(len(collectives)) >= _WHOLE * collectives.dur_ns
    return np.flatnonzero(awaited & exposed)


def _serialised_hits(collectives: Work, name: str, lost: LostTime, serial: Rows) -> Hits:
    """Hits for collectives that the order of the launches keeps from overlapping."""
    exposed = lost[np.isin(lost.owner, serial)]
    return Hits(
        occurrences=collectives,
        named_by=name,
        cause="serialised",
        lost=replace(exposed, owner=np.searchsorted(serial, exposed.owner), spans=None),
        fix=MoveToSideStream(collectives.entries),
        confidence=Confidence.MEDIUM,
        message="{by} runs {times_a_step} for {all_a_step}, never beside compute; queued kernels of another stream "
        "wait for it, though no recorded call makes them wait",
        advice=_SHARED_QUEUE,
        evidence={"all_ns": collectives.total_ns, "ops": collectives.outer_op.name.sums(collectives.dur_ns)},
    )


def measured_hits(
    collectives: Work, name: str, lost: LostTime, arrivals: Arrivals, limits: Limits
) -> Iterator[Hits]:
    """Hits for measured waiting and for transfer. Each is a part of the lost time."""
    waiting, moving = split_waiting(collectives, lost, arrivals.transfer_ns)
    late_ns, moved_ns = waiting.sums(len(collectives)), moving.sums(len(collectives))
    late = np.flatnonzero((late_ns >= limits.min_waiting_ns) & arrivals.measured)
    waiting = waiting[np.isin(waiting.owner, late)]
    if len(late):
        yield Hits(
            occurrences=collectives[late],
            named_by=name,
            cause="waiting",
            lost=replace(waiting, owner=np.searchsorted(late, waiting.owner), spans=None),
            message="{by} runs {times_a_step}; this rank computes nothing for {per_step} a step, while it waits for "
            "{late:of these waits}",
            advice=late_ranks_text(name.split(" ")[0], arrivals.last[late], late_ns[late]),
            max_severity=_HINT,
            evidence={
                "waiting_ns": int(late_ns[late].sum()),
                "took_ns": collectives[late].total_ns,
                "late": waited_by_rank(arrivals.last[late], late_ns[late]),
            },
        )
    kind, transfer_ns = name.split(" ")[0], int(arrivals.transfer_ns.sum())
    rest = (
        np.where(arrivals.measured, arrivals.transfer_ns, collectives.dur_ns) - limits.gain_share * moved_ns
    )
    whole = int(moved_ns.sum()) >= _WHOLE * transfer_ns
    hidden = int(moved_ns.sum()) < (1 - _HIDDEN) * transfer_ns
    moves = "sending and receiving" if is_exchange_only(collectives) else "transfer"
    yield Hits(
        occurrences=collectives,
        named_by=name,
        cause="transfer",
        lost=moving,
        fix=_dropped(collectives)
        if may_be_needless(kind, collectives)
        else Resize(collectives.entries, rest),
        confidence=Confidence.MEDIUM,
        message=f"{{by}} runs {{times_a_step}}, with {{transfer_a_step}} of {moves}; "
        + (
            "the GPU computes nothing meanwhile"
            if whole
            else "during {exposed_of_step} of it, the GPU computes nothing"
        ),
        advice=advice(kind, collectives, hidden=hidden),
        evidence={
            "all_ns": collectives.total_ns,
            "exposed_ns": int(moved_ns.sum()),
            "transfer_ns": transfer_ns,
            "ops": collectives.outer_op.name.sums(moved_ns),
        },
    )


def _dropped(collectives: Work) -> Drop | DropWork:
    """The edit that removes the collectives, with their ops if the trace has them."""
    return (
        Drop(collectives.outer_op.distinct().rows)
        if collectives.op.there.all()
        else DropWork(collectives.entries)
    )


def waiting_hits(
    collectives: Work, name: str, lost: LostTime, arrivals: Arrivals, limits: Limits, *, single: bool
) -> Iterator[Hits]:
    """Hits for waiting collectives and for transferring ones; all are waiting if most of their time is."""
    least_ns = np.maximum(
        limits.waiting_times * arrivals.transfer_ns, arrivals.transfer_ns + limits.min_late_ns
    )
    late = collectives.dur_ns > least_ns
    if len(distinct(collectives.step[late])) == 1 < len(distinct(collectives.step)):
        late[:] = False  # in the first step other ranks begin to record, in another it is a hiccup
    if (
        collectives.total_ns > limits.waiting_times * arrivals.transfer_ns.sum()
        or name.split(" ")[0] in ALL_WAITING
    ):
        late[:] = True
    for peers in (True, False):
        inside = np.flatnonzero(late == peers)
        members = lost[np.isin(lost.owner, inside)]
        members = replace(members, owner=np.searchsorted(inside, members.owner), spans=None)
        if len(inside):
            spread = _PART_TEXTS[peers] if len(inside) < len(collectives) else ""
            yield _estimated_hits(
                collectives[inside],
                name,
                members,
                arrivals[inside],
                limits,
                spread,
                peers=peers,
                single=single,
            )


def _estimated_hits(
    collectives: Work,
    name: str,
    lost: LostTime,
    arrivals: Arrivals,
    limits: Limits,
    spread: str,
    *,
    peers: bool,
    single: bool,
) -> Hits:
    exposed = lost.sums(len(collectives))
    moved = np.minimum(exposed, arrivals.transfer_ns)
    waiting, kind = int((exposed - moved).sum()), name.split(" ")[0]
    whole = int(exposed.sum()) >= _WHOLE * collectives.total_ns
    hidden = int(exposed.sum()) < (1 - _HIDDEN) * collectives.total_ns
    gain = 1.0 if may_be_needless(kind, collectives) else limits.gain_share
    return Hits(
        occurrences=collectives,
        named_by=name,
        cause="waiting" if peers else "transfer",
        lost=lost,
        fix=() if peers else Scale(collectives.entries, 1 - gain * moved / np.maximum(collectives.dur_ns, 1)),
        confidence=Confidence.LOW if peers else Confidence.MEDIUM,
        message=(
            f"of all calls of {{by}}, the {spread} ones ({{number_a_step}}) take {{all_a_step}}; "
            if spread
            else "{by} runs {times_a_step} and takes {all_a_step}; "
        )
        + (
            "the GPU computes nothing meanwhile"
            if whole
            else "during {exposed_of_step} of it, the GPU computes nothing"
        )
        + "{elsewhere}"
        + late_rank_text(kind, waiting=waiting, peers=peers),
        advice=remedy(kind, collectives, hidden=hidden, peers=peers, single=single),
        max_severity=_HINT if peers else Severity.HIGH,
        evidence={
            "all_ns": collectives.total_ns,
            "exposed_ns": int(exposed.sum()),
            "transfer_ns": int(moved.sum()),
            "waiting_ns": waiting,
            "ops": collectives.outer_op.name.sums(exposed),
        },
    )


_ADVICE |= dict.fromkeys(("dispatch", "combine"), _ADVICE["alltoall"])  # of experts: DeepEP


_NEEDED += "dtype), or split the batch."


def advice(kind: str, collectives: Work, *, hidden: bool = False) -> str:
    """By what it is, such as "allreduce"; outside of the backward pass the next op usually needs the result.

    Args:
        hidden: compute overlaps most of its time.
    """
    if may_be_needless(kind, collectives):
        return _PARTS
    if is_exchange_only(collectives):
        return _IN_PHASES
    if hidden and _ADVICE.get(kind) is _SPLIT:
        return _MOSTLY_HIDDEN
    if kind != "allreduce":
        return _ADVICE.get(kind, _ELSE)
    backward = bool(collectives.outer_op.name.matches(_BACKWARD).any())
    min_count = len(collectives) >= _MANY * len(distinct(collectives.step))
    names = map(str, texts_of(collectives.events.trace.lanes.cpu, "name"))
    reduced = any(map(_DDP.search, names))  # what is called outside of the backward pass is no gradient then
    if not backward and (reduced or not _trains(collectives)):
        return _JOIN_SOME * min_count + _NEEDED
    if reduced:
        return _JOIN if min_count else _LAST_BUCKET
    return _JOIN * min_count + (_ADVICE[kind] if backward else _AFTER_BACKWARD + _NEEDED)


def is_exchange_only(collectives: Work) -> bool:
    """True if kernels only send and receive, and the network moves the data between them."""
    return bool(collectives.name.matches(_PHASES).all())


def remedy(kind: str, collectives: Work, *, hidden: bool, peers: bool, single: bool) -> str:
    """Where it was not measured who is late.

    Args:
        hidden: compute overlaps most of its time.
        peers: most of it is probably waiting.
        single: this is the only trace of the job.
    """
    if kind == "recv":
        return _PIPELINE
    return (
        (_ALONE if single else _PEERS)
        if peers and kind != "barrier"
        else advice(kind, collectives, hidden=hidden)
    )


def late_rank_text(kind: str, *, waiting: int, peers: bool) -> str:
    """The end of a message about estimated waiting."""
    if kind in ALL_WAITING:
        return " and waits for another rank"
    if not waiting:
        return ""
    whom = "a rank that comes later" if peers else "other ranks"
    return f"; {{waiting_of_step}} of this is probably waiting for {whom}"


def waited_by_rank(last: Rows, waited_ns: Rows) -> dict[str, int]:
    """Waiting time in ns by the rank that was waited for, such as `rank 3`; longest first."""
    total = {f"rank {rank}": int(waited_ns[last == rank].sum()) for rank in distinct(last).tolist()}
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def late_ranks_text(kind: str, last: Rows, waited_ns: Rows) -> str:
    """Advice for measured waiting."""
    if kind == "barrier":
        return _ADVICE[kind]
    waited_for = waited_by_rank(last, waited_ns)
    late = next(iter(waited_for))
    item = waited_for[late] >= _ONE_RANKS * sum(waited_for.values())
    return _LATE.format(late=late.capitalize()) if item else _IN_TURN


def may_be_needless(kind: str, collectives: Work) -> bool:
    """True if the collective gathers what ranks computed. Gathers of sharded parameters are needed."""
    if kind != "allgather":
        return False
    annotation = collectives.launch.annotation
    return not (collectives.outer_op.name.matches(r"(?i)fsdp").any() or annotation.matches(r"(?i)fsdp").any())


def _trains(collectives: Work) -> bool:
    """True if any op of the trace runs in backward."""
    every = Work.build(collectives.events)
    return bool(every.outer_op.name.matches(_BACKWARD).any())
