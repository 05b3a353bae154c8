"""Communication that overlaps no compute."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import texts_of
from traceanalyzer.replay.edits import Drop, DropWork, MoveToSideStream, Resize
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Severity, Work, rule
from traceanalyzer.rule.lost_time import split_waiting
from traceanalyzer.timeline.collective_waits import Arrivals, CollectiveWaits, collective_names, collectives_of
from traceanalyzer.timeline.synchronisation import HiddenWaits

_SPLIT = "Split the batch in two: one half computes while the other communicates (DeepEP: return_recv_hook=True)."
_ADVICE = {
    "allreduce": "Overlap it with the backward pass: DistributedDataParallel with small enough buckets "
    "(bucket_cap_mb), or async_op=True and a late wait().",
    "allgather": "Prefetch the next layer's parameters (FSDP: forward and backward prefetch).",
    "reducescatter": "Overlap it with the next layer's backward pass: use smaller FSDP units.",
    **dict.fromkeys(("alltoall", "sendrecv", "dispatch", "combine"), _SPLIT),
    "barrier": "Remove the barrier from the loop: collectives already synchronise the ranks.",
    "recv": "This rank waits for the sending rank: look at what that rank does before it sends. A pipeline of p stages "
    "with m micro-batches a step leaves each stage idle for (p-1)/(m+p-1) of it: use more and smaller micro-batches, "
    "or an interleaved schedule.",
}
_AFTER_BACKWARD = "Reduce gradients during the backward pass, not after it (DistributedDataParallel). "
_NEEDED = (
    "If the result is needed at once, use fewer or smaller collectives (one for several layers, a smaller dtype), or "
    "split the batch."
)
_ELSE = "Start it earlier, with async_op=True, and wait where the result is needed."
_PEERS = "The rank that waits least is the late one: compare its compute and host time with those of the others."
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
# Highest severity: waiting of this rank is no fault of its own.
_HINT = Severity.LOW
# Share that rounds to 100 %.
_WHOLE = 0.995
# Share of a collective's time with overlapping compute from which it counts as overlapped; chosen.
_HIDDEN = 0.5


class Limits:
    gain_share: float = 0.3
    """used for the predicted saving: of the transfer time that runs beside compute after the fix, only this
    share is saved, because compute slows down while NCCL runs; measured with DDP on 2 H200, NVLink"""
    waiting_times: float = 1.75
    """with one rank's trace: a rank is regarded as waiting if a collective takes at least this many times its
    estimated transfer time; if ranks arrive together, a collective takes 1.0 to 1.7 times that time (measured
    on 2 H200, NVLink)"""
    min_measured_share: float = 0.5
    """waiting is measured if the other ranks' traces cover at least this share of a collective's time;
    otherwise waiting is estimated from this rank's trace"""
    min_waiting_ns: int = 20_000
    """with the traces of all ranks: shorter waits in a collective are ignored; the ends that two ranks record
    for one collective differ by up to 10 µs (measured on 2 H200)"""
    min_late_ns: int = 100_000
    """with one rank's trace: a rank is regarded as waiting only if the collective also takes at least this
    much longer than its estimated transfer time; the latency between hosts is tens of µs"""


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.01, limits=Limits, causes=("serialised", "waiting", "transfer"))
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
        exposed, on_device = _of(lost, members), arrivals[members]
        alone = exposed.sums(len(collectives)) >= _WHOLE * collectives.dur_ns
        # Nothing computes beside these, while queued kernels of another stream wait for them.
        serial = np.flatnonzero(np.isin(collectives.entries, hidden.after) & alone)
        if 2 * collectives.dur_ns[serial].sum() >= collectives.total_ns:
            yield _serialised_hits(collectives[serial], name, _of(exposed, serial))
        elif collectives.dur_ns[on_device.measured].sum() >= limits.min_measured_share * collectives.total_ns:
            yield from measured_hits(collectives, name, exposed, on_device, limits)
        else:
            yield from waiting_hits(collectives, name, exposed, on_device, limits, single=waits is None)


def _of(lost: LostTime, members: Rows) -> LostTime:
    """The time that these owners lost; they are numbered anew."""
    part = lost[np.isin(lost.owner, members)]
    return replace(part, owner=np.searchsorted(members, part.owner), spans=None)


def _serialised_hits(collectives: Work, name: str, lost: LostTime) -> Hits:
    return Hits(
        occurrences=collectives,
        named_by=name,
        cause="serialised",
        lost=lost,
        fix=MoveToSideStream(collectives.entries),
        confidence=Confidence.MEDIUM,
        message="{by} runs {times_a_step} for {all_a_step}, never beside compute; queued kernels of another stream "
        "wait for it, though no recorded call makes them wait",
        advice="The streams probably share a hardware queue: unset CUDA_DEVICE_MAX_CONNECTIONS=1. If tensor "
        "parallelism needs it, launch the collective after the kernels that may run beside it.",
        evidence={"all_ns": collectives.total_ns, "ops": collectives.outer_op.name.sums(collectives.dur_ns)},
    )


def measured_hits(collectives: Work, name: str, lost: LostTime, arrivals: Arrivals, limits: Limits) -> Iterator[Hits]:
    """Hits for measured waiting and for transfer. Each is a part of the lost time."""
    waiting, moving = split_waiting(collectives, lost, arrivals.transfer_ns)
    late_ns, moved_ns = waiting.sums(len(collectives)), moving.sums(len(collectives))
    late = np.flatnonzero((late_ns >= limits.min_waiting_ns) & arrivals.measured)
    if len(late):
        yield Hits(
            occurrences=collectives[late],
            named_by=name,
            cause="waiting",
            lost=_of(waiting, late),
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
    transfer_ns = int(arrivals.transfer_ns.sum())
    rest_ns = np.where(arrivals.measured, arrivals.transfer_ns, collectives.dur_ns)
    yield _transfer_hits(
        *(collectives, name, moving, rest_ns, moved_ns, limits),
        "{by} runs {times_a_step}, with {transfer_a_step} of transfer; " + _overlap(moved_ns, transfer_ns),
        moved_ns.sum() / max(transfer_ns, 1),
        transfer_ns=transfer_ns,
    )


def waiting_hits(
    collectives: Work, name: str, lost: LostTime, arrivals: Arrivals, limits: Limits, *, single: bool
) -> Iterator[Hits]:
    """Hits for waiting collectives and for transferring ones; all are waiting if most of their time is."""
    kind, slow_ns = name.split(" ")[0], limits.waiting_times * arrivals.transfer_ns
    late = collectives.dur_ns > np.maximum(slow_ns, arrivals.transfer_ns + limits.min_late_ns)
    if len(distinct(collectives.step[late])) == 1 < len(distinct(collectives.step)):
        late[:] = False  # in the first step other ranks begin to record, in another it is a hiccup
    if collectives.total_ns > slow_ns.sum() or kind in ALL_WAITING:
        late[:] = True
    for peers, chosen in ((True, np.flatnonzero(late)), (False, np.flatnonzero(~late))):
        if len(chosen) == 0:
            continue
        part, members = collectives[chosen], _of(lost, chosen)
        exposed_ns = members.sums(len(part))
        moved_ns = np.minimum(exposed_ns, arrivals.transfer_ns[chosen])
        spread = ("slow" if peers else "quick") if len(chosen) < len(collectives) else ""
        which = (
            f"of all calls of {{by}}, the {spread} ones ({{number_a_step}}) take {{all_a_step}}; "
            if spread
            else "{by} runs {times_a_step} and takes {all_a_step}; "
        )
        waiting_ns = int((exposed_ns - moved_ns).sum())
        whom = "a rank that comes later" if peers else "other ranks"
        guess = f"; {{waiting_of_step}} of this is probably waiting for {whom}" * (waiting_ns > 0)
        late_text = " and waits for another rank" if kind in ALL_WAITING else guess
        hits = _transfer_hits(
            *(part, name, members, part.dur_ns, moved_ns, limits),
            which + _overlap(exposed_ns, part.total_ns) + "{elsewhere}" + late_text,
            exposed_ns.sum() / max(part.total_ns, 1),
            exposed_ns=int(exposed_ns.sum()),
            waiting_ns=waiting_ns,
        )
        remedy = _ADVICE[kind] if kind in ALL_WAITING else _ALONE if single else _PEERS
        waits = replace(hits, cause="waiting", fix=(), confidence=Confidence.LOW, max_severity=_HINT, advice=remedy)
        yield waits if peers else hits


def _transfer_hits(
    collectives: Work,
    name: str,
    lost: LostTime,
    rest_ns: Rows,
    moved_ns: Rows,
    limits: Limits,
    message: str,
    exposed_share: float,
    **evidence: int,
) -> Hits:
    """Hits for transfer: a part of `moved_ns`, in which nothing computes, is saved; `rest_ns` is without waiting."""
    kind = name.split(" ")[0]
    fix: Drop | DropWork | Resize = Resize(collectives.entries, rest_ns - limits.gain_share * moved_ns)
    if may_be_needless(kind, collectives):
        with_ops = collectives.op.there.all()
        fix = Drop(collectives.outer_op.distinct().rows) if with_ops else DropWork(collectives.entries)
    return Hits(
        occurrences=collectives,
        named_by=name,
        cause="transfer",
        lost=lost,
        fix=fix,
        confidence=Confidence.MEDIUM,
        message=message,
        advice=advice(kind, collectives, exposed_share=exposed_share),
        evidence={
            "all_ns": collectives.total_ns,
            "exposed_ns": int(moved_ns.sum()),
            "transfer_ns": int(moved_ns.sum()),
            "ops": collectives.outer_op.name.sums(moved_ns),
            **evidence,
        },
    )


def _overlap(exposed_ns: Rows, total_ns: int) -> str:
    """A part of a message: whether the GPU computes during the collectives."""
    if int(exposed_ns.sum()) >= _WHOLE * total_ns:
        return "the GPU computes nothing meanwhile"
    return "during {exposed_of_step} of it, the GPU computes nothing"


def advice(kind: str, collectives: Work, *, exposed_share: float) -> str:
    """By what it is, such as "allreduce"; outside of the backward pass the next op usually needs the result."""
    if may_be_needless(kind, collectives):
        return (
            "If possible, let the next op work only on this rank's part of the tensor. Then no collective is needed. "
            "Else use fewer and larger collectives, or split the batch, so that one half computes while the other "
            "communicates."
        )
    if exposed_share < 1 - _HIDDEN and _ADVICE.get(kind) is _SPLIT:
        return "Most of it already overlaps with compute: start the rest earlier, or put more compute beside it."
    if kind != "allreduce":
        return _ADVICE.get(kind, _ELSE)
    backward = bool(collectives.outer_op.name.matches(_BACKWARD).any())
    names = map(str, texts_of(collectives.events.trace.lanes.cpu, "name"))
    reduced = any(map(_DDP.search, names))  # what is called outside of the backward pass is no gradient then
    every = Work.build(collectives.events).outer_op.name
    if not backward and (reduced or not every.matches(_BACKWARD).any()):
        return _NEEDED
    if reduced:
        return (
            "Try another size of DistributedDataParallel's buckets (bucket_cap_mb): smaller ones start earlier, so "
            "that more of the transfer overlaps with the backward pass; larger ones need fewer launches."
        )
    return _ADVICE[kind] if backward else _AFTER_BACKWARD + _NEEDED


def waited_by_rank(last: Rows, waited_ns: Rows) -> dict[str, int]:
    """Waiting time in ns by the rank that was waited for, such as `rank 3`; longest first."""
    total = {f"rank {rank}": int(waited_ns[last == rank].sum()) for rank in distinct(last).tolist()}
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def late_ranks_text(kind: str, last: Rows, waited_ns: Rows) -> str:
    """Advice for measured waiting."""
    if kind in ALL_WAITING:
        return _ADVICE[kind]
    waited_for = waited_by_rank(last, waited_ns)
    late = next(iter(waited_for))
    single = waited_for[late] >= _ONE_RANKS * sum(waited_for.values())
    return _LATE.format(late=late.capitalize()) if single else _IN_TURN


def may_be_needless(kind: str, collectives: Work) -> bool:
    """True if the collective gathers what ranks computed. Gathers of sharded parameters are needed."""
    if kind != "allgather":
        return False
    annotation = collectives.launch.annotation
    return not (collectives.outer_op.name.matches(r"(?i)fsdp").any() or annotation.matches(r"(?i)fsdp").any())
