"""What to do about collectives that the device has nothing to run beside."""

from __future__ import annotations

import re

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.trace import texts_of
from traceanalyzer.rule.views import Work

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
_ADVICE |= dict.fromkeys(("dispatch", "combine"), _ADVICE["alltoall"])  # of experts: DeepEP
_AFTER_BACKWARD = "Reduce gradients during the backward pass, not after it (DistributedDataParallel). "
_LAST_BUCKET = (
    "Try another size of DistributedDataParallel's buckets (bucket_cap_mb): smaller ones start earlier, so that more "
    "of the transfer overlaps with the backward pass; larger ones need fewer launches."
)
_NEEDED = (
    "If the result is needed at once, use fewer or smaller collectives (one for several layers, a smaller "
)
_NEEDED += "dtype), or split the batch."
_MANY = 64  # all-reduces a step: as many of 25 MB, DistributedDataParallel's default, are 1.6 GB of gradients
_JOIN = (
    "Merge many collectives into one: larger DistributedDataParallel buckets (bucket_cap_mb), or one flat tensor "
    "where you call them yourself. "
)
_JOIN_SOME = "Merge collectives whose inputs are ready at the same time; those of consecutive layers cannot be merged. "
_PARTS = (
    "If possible, let the next op work only on this rank's part of the tensor. Then no collective is needed. "
    "Else use fewer and larger collectives, or split the batch, so that one half computes while the other communicates."
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
_ONE_RANKS = 0.6  # of the waiting: then it is one rank's, as in the verdict on a job; chosen
ALL_WAITING = ("barrier", "recv")
"""What these take is the way of the others to get there."""
_BACKWARD = r"^autograd::|Backward"
_DDP = re.compile(r"^DistributedDataParallel\.forward|^torch\.distributed\.ddp\.reducer::")
_PHASES = r"internode_ll::(dispatch|combine)"  # DeepEP's: one kernel sends and another receives, if asked to


def advice(kind: str, found: Work, *, hidden: bool = False) -> str:
    """By what it is, such as "allreduce"; outside of the backward pass the next op usually needs the result.

    Args:
        hidden: whether most of its time has compute beside it.
    """
    if perhaps_needless(kind, found):
        return _PARTS
    if in_phases(found):
        return _IN_PHASES
    if hidden and _ADVICE.get(kind) is _SPLIT:
        return _MOSTLY_HIDDEN
    if kind != "allreduce":
        return _ADVICE.get(kind, _ELSE)
    backward = bool(found.outer_op.name.matches(_BACKWARD).any())
    many = len(found) >= _MANY * len(distinct(found.step))
    names = map(str, texts_of(found.events.trace.lanes.cpu, "name"))
    reduced = any(map(_DDP.search, names))  # what is called outside of the backward pass is no gradient then
    if not backward and (reduced or not _trains(found)):
        return _JOIN_SOME * many + _NEEDED
    if reduced:
        return _JOIN if many else _LAST_BUCKET
    return _JOIN * many + (_ADVICE[kind] if backward else _AFTER_BACKWARD + _NEEDED)


def in_phases(found: Work) -> bool:
    """Whether kernels only send and receive, and the network moves the data between them."""
    return bool(found.name.matches(_PHASES).all())


def remedy(kind: str, found: Work, *, hidden: bool, peers: bool, alone: bool) -> str:
    """Where it was not measured who is late.

    Args:
        hidden: whether most of its time has compute beside it.
        peers: whether most of it is probably waiting.
        alone: whether this is the only trace of the job.
    """
    if kind == "recv":
        return _PIPELINE
    return (
        (_ALONE if alone else _PEERS) if peers and kind != "barrier" else advice(kind, found, hidden=hidden)
    )


def perhaps_late(kind: str, *, waiting: int, peers: bool) -> str:
    """The end of a message, where waiting is estimated."""
    if kind in ALL_WAITING:
        return " and waits for another rank"
    if not waiting:
        return ""
    whom = "a rank that comes later" if peers else "other ranks"
    return f"; {{waiting_of_step}} of this is probably waiting for {whom}"


def by_rank(last: Rows, waited_ns: Rows) -> dict[str, int]:
    """`rank 3` -> how long it was waited for in ns, the longest first."""
    total = {f"rank {rank}": int(waited_ns[last == rank].sum()) for rank in distinct(last).tolist()}
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def who_is_late(kind: str, last: Rows, waited_ns: Rows) -> str:
    """What to do about measured waiting."""
    if kind == "barrier":
        return _ADVICE[kind]
    waited_for = by_rank(last, waited_ns)
    late = next(iter(waited_for))
    one = waited_for[late] >= _ONE_RANKS * sum(waited_for.values())
    return _LATE.format(late=late.capitalize()) if one else _IN_TURN


def perhaps_needless(kind: str, found: Work) -> bool:
    """Whether it gathers what ranks have computed; of sharded parameters each rank needs all."""
    if kind != "allgather":
        return False
    annotation = found.launch.annotation
    return not (found.outer_op.name.matches(r"(?i)fsdp").any() or annotation.matches(r"(?i)fsdp").any())


def _trains(found: Work) -> bool:
    """Whether anything in the trace runs in a backward pass."""
    every = Work.build(found.events)
    return bool(every.outer_op.name.matches(_BACKWARD).any())
