"""What to do about collectives that the device has nothing to run beside."""

from __future__ import annotations

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.rule.views import Work

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
_ADVICE |= dict.fromkeys(("dispatch", "combine"), _ADVICE["alltoall"])  # of experts: DeepEP
_AFTER_BACKWARD = "Gradients summed after the backward pass belong beside it (DistributedDataParallel). "
_NEEDED = "What is needed at once takes fewer or smaller collectives (one for several layers, a smaller dtype), or a "
_NEEDED += "split batch."
_MANY = 64  # all-reduces a step: as many of 25 MB, DistributedDataParallel's default, are 1.6 GB of gradients
_JOIN = (
    "Put many into one: DistributedDataParallel's buckets (bucket_cap_mb), or one flat tensor where they are called by "
    "hand, so that the latency of a collective is paid once for many. "
)
_PARTS = (
    "See whether the next op can work on the part that this rank has, which makes it needless and is what is "
)
_PARTS += "counted here; else fewer and larger ones, or a split batch, so that one half computes meanwhile."
_ELSE = "Start it earlier, with async_op=True, and wait where the result is needed."
_PIPELINE = "Look at the rank that sends: what it does before that is what this one waits for. In a pipeline more and "
_PIPELINE += "smaller micro-batches leave less of it."
_PEERS = "The rank that waits least is the late one: compare its compute and host time with the others'{how}. What it "
_PEERS += "does before is what this one waits for, and overlap does not take that away."
_ALONE = " (diagnose all ranks at once, which measures that)"
_LATE = "{late} comes last: look at what its findings say, and what its GPU computes or is idle for before. That is "
_LATE += "what this one waits for, and overlap does not take it away."
ALL_WAITING = ("barrier", "recv")
"""What these take is the way of the others to get there."""
_BACKWARD = r"^autograd::|Backward"


def advice(kind: str, found: Work) -> str:
    """By what it is, such as "allreduce"; outside of the backward pass the next op usually needs the result."""
    if perhaps_needless(kind, found):
        return _PARTS
    if kind != "allreduce":
        return _ADVICE.get(kind, _ELSE)
    join = _JOIN if len(found) >= _MANY * len(distinct(found.step)) else ""
    if found.outer_op.name.matches(_BACKWARD).any():
        return join + _ADVICE[kind]
    return join + (_AFTER_BACKWARD + _NEEDED if _trains(found) else _NEEDED)


def remedy(kind: str, found: Work, *, peers: bool, alone: bool) -> str:
    """Where it was not measured who is late.

    Args:
        peers: whether most of it is probably waiting.
        alone: whether this is the only trace of the job.
    """
    if kind == "recv":
        return _PIPELINE
    return _PEERS.format(how=_ALONE if alone else "") if peers and kind != "barrier" else advice(kind, found)


def perhaps_late(kind: str, *, waiting: int, peers: bool) -> str:
    """The end of a message, where waiting is estimated."""
    if kind in ALL_WAITING:
        return ", waiting for another rank"
    if not waiting:
        return ""
    whom = "a rank that comes later" if peers else "other ranks"
    return f"; {{waiting}} of it is probably waiting for {whom}"


def by_rank(last: Rows, waited_ns: Rows) -> dict[str, int]:
    """`rank 3` -> how long it was waited for in ns, the longest first."""
    total = {f"rank {rank}": int(waited_ns[last == rank].sum()) for rank in distinct(last).tolist()}
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def who_is_late(last: Rows, waited_ns: Rows) -> str:
    """What to do about measured waiting."""
    return _LATE.format(late=next(iter(by_rank(last, waited_ns))).capitalize())


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
