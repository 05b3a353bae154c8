"""Collectives that fewer or larger ones could replace."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, distinct, pick
from traceanalyzer.replay.edits import Drop, DropWork
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Work, rule
from traceanalyzer.timeline.collective_waits import collectives_of
from traceanalyzer.timeline.names import OPTIMIZER_MARK


class Limits:
    max_small_elements: int = 1_024
    """a collective is small if it has at most this many elements; its time is then only latency, about 10 µs
    on NVLink"""
    min_small_times: int = 3
    """reported only if a thread starts at least this many small collectives a step; two may be a loss and its count"""
    max_kernels_between: int = 8
    """reported only if at most this many kernels run between two small collectives. Between logged values no kernel
    runs; between collectives of different layers or iterations, 10 to 73 kernels run; measured on H200 and B200"""


_FORWARD = r"^DistributedDataParallel\.forward"
_NORM = "SyncBatchNorm"
_BROADCAST = r"^c10d::broadcast_"
# What DistributedDataParallel does to send its buffers: one tensor is packed, sent, and copied back to the buffers.
_PACKS = r"^(c10d::broadcast_|record_param_comms|aten::(un)?flatten_dense_tensors)$"
_STACKABLE: dict[str, Any] = {
    "cause": "one-by-one",
    "message": "after the first call of each step, {by} runs {times_a_step} more, for at most {elements} elements: "
    "{total_a_step}",
    "advice": "Stack the values and reduce them once, or every hundred steps.",
}
_LOGGED = _STACKABLE | {
    "advice": "The host reads each value. Stack the values, and reduce and read them every hundred steps."
}
_NORMS: dict[str, Any] = {
    "cause": "batch-norm",
    "message": "{by} exchanges statistics with all ranks, {times_a_step}, and each layer waits for them",
    "advice": "Use BatchNorm if the batch of each rank is large enough for its own statistics; else GroupNorm or "
    "LayerNorm, which need no other rank.",
}


@rule(
    since="0.1", claims=Claims.EVENT, limits=Limits, causes=("every-micro-step", "buffers", "one-by-one", "batch-norm")
)
def needless_collectives(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Ranks run more collectives than the step needs.

    What it looks for:
    - gradient accumulation without no_sync: the gradients are reduced after every micro-batch;
    - buffers that DistributedDataParallel sends to all ranks before every forward pass;
    - small values that are reduced one by one, for example for logging;
    - SyncBatchNorm, which exchanges statistics in each layer.
    Why it costs: accumulated gradients need only one reduction per optimizer step. Every small collective
    costs latency, and all ranks wait for the slowest rank.
    Bad: `for micro in batch: loss(micro).backward()`. Good: `with model.no_sync():` around all micro-batches
    except the last.
    Bad: `for x in metrics: dist.all_reduce(x)`. Good: torch.stack(metrics), reduced once, or every 100 steps.
    Bad: DistributedDataParallel(model) whose buffers are constants. Good: broadcast_buffers=False.
    Bad: SyncBatchNorm with 32 images per GPU. Good: BatchNorm, if the batch of one rank is large enough. Else
    GroupNorm or LayerNorm.
    How sure: collectives and their sizes are recorded. The trace does not show whether small collectives can
    be joined, so their confidence is medium.
    When it is wrong: a small value is needed before the next value can be computed.
    Source: PyTorch's DDP notes (no_sync); measured on two H200 with torch 2.11.
    """
    every = collectives_of(work)
    members = every[(every.step >= 0) & every.op.there]
    elements = members.number_or_ops("in_elements")
    yield from _every_micro_step(calls, members, work)
    yield from _buffers(calls, members, work)
    small = (elements >= 0) & (elements <= limits.max_small_elements)
    statistics = members.outer_op.name.matches(_NORM)  # two numbers a channel: of wide layers, they are many
    yield from _each_tensor(members[small | statistics], calls, work, limits)


def _every_micro_step(calls: Calls, members: Work, work: Work) -> Iterator[Hits]:
    """Reductions in backward passes that another reduction follows before the optimizer's step."""
    forward = calls[calls.name.matches(_FORWARD)]
    updates = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(updates) == 0:
        return
    launched = members.launch.start_ns
    goes_on = forward.next_start_ns(launched) < updates.next_start_ns(launched)
    backward = members.outer_op.name.matches(r"^autograd::engine|Backward")
    collectives = members[goes_on & backward]
    every = len(members[backward]) / max(len(distinct(members.step)), 1)
    yield Hits(
        occurrences=collectives,
        cause="every-micro-step",
        lost=LostTime.uncovered(collectives, work.of_kind("compute")),
        fix=DropWork(collectives.entries),
        message="gradients are reduced after every micro-batch, though it is enough to reduce them after the last one: "
        "the other reductions ({number_a_step}, of {reductions} in all) take {total_a_step} in which the GPU computes "
        "nothing",
        advice="Run all micro-batches except the last under model.no_sync().",
        evidence={"reductions": round(every), "ops": collectives.outer_op.name.sums(collectives.dur_ns)},
    )


def _buffers(calls: Calls, members: Work, work: Work) -> Iterator[Hits]:
    """Broadcasts that DistributedDataParallel runs before the forward pass, with the copies that pack and unpack."""
    forward = calls[calls.name.matches(_FORWARD)]
    sent = members[members.outer_op.name.matches(_BROADCAST)]
    sent = sent[sent.outer_op.index_of_enclosing(forward) >= 0]
    packing = calls[calls.is_top_op & calls.name.matches(_PACKS)]
    around = packing.index_of_enclosing(forward)
    used = distinct(sent.outer_op.index_of_enclosing(forward))
    yield Hits(
        occurrences=sent,
        cause="buffers",
        lost=LostTime.uncovered(sent, work.of_kind("compute")),
        fix=Drop(packing[np.isin(around, used)].rows),
        confidence=Confidence.MEDIUM,
        message="before each forward pass, DistributedDataParallel sends the buffers of rank 0 to all ranks: "
        "{times_a_step}, {total_a_step} in which the GPU computes nothing",
        advice="If the buffers are constants, or need not be equal on all ranks, pass broadcast_buffers=False.",
    )


def _each_tensor(small: Work, calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Small collectives of one op in a row. One collective could replace each run."""
    kernels_ns, reads_ns = (np.sort(work.of_kind(kind).launch.start_ns) for kind in ("compute", "copy_d2h"))
    for op, collectives in small.by(small.outer_op.name):
        collectives = collectives[np.argsort(collectives.launch.start_ns, kind="stable")]
        kernels, reads = (np.diff(np.searchsorted(ns, collectives.launch.start_ns)) for ns in (kernels_ns, reads_ns))
        # A long pause or another step begins a new run.
        goes_on = (kernels <= limits.max_kernels_between) & (np.diff(collectives.step) == 0)
        norm = _NORM in op
        later = collectives if norm else collectives[np.append(False, goes_on)]
        if len(later) < (limits.min_small_times - 1) * len(distinct(collectives.step)):
            continue
        # For logging, every value is copied to the host before the next collective of its run.
        logged = not norm and bool((reads[goes_on] > 0).all())
        dropped = (collectives if logged else later).outer_op.distinct()
        between = calls[:0] if norm else _read_between(calls, collectives.outer_op, goes_on & (kernels == 0))
        yield Hits(
            occurrences=later,
            named_by=op,
            fix=Drop(np.append(dropped.rows, between.rows)),
            confidence=Confidence.MEDIUM,
            evidence={
                **({} if norm else {"elements": limits.max_small_elements}),
                "lines": later.line.sums(later.dur_ns),
            },
            **(_NORMS if norm else _LOGGED if logged else _STACKABLE),
        )


def _read_between(calls: Calls, ops: Calls, bare: Mask) -> Calls:
    """Copies to the host between these ops and the next ones of their run, where no kernel is launched between."""
    begin, end, thread = ops.end_ns[:-1][bare], ops.start_ns[1:][bare], ops.thread[1:][bare]
    done = calls[calls.is_top_op | (calls.is_call & ~calls.op.there)]
    place = np.searchsorted(begin, done.start_ns, side="right") - 1
    within = (place >= 0) & (done.start_ns < pick(end, place)) & (done.thread == pick(thread, place))
    return done[within]
