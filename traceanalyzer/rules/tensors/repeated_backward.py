"""Backward passes that go through the same graph again."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, no_rows, pick
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Unavailable, Work, gpu_time_evidence, rule
from traceanalyzer.tensors.flow import Flow

_NODE = r"^[^:]+Backward\d*$"
EVALUATION = f"^{ENGINE}"


class Limits:
    min_again_share: float = 0.05
    """reported only if at least this share of the backward nodes runs again; a smaller share is one shared layer"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits)
def repeated_backward(trace: Trace, calls: Calls, work: Work, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Backward passes run the same autograd nodes several times.

    What it looks for: backward nodes that run again, as a second backward pass goes through a graph that the
    first pass kept (retain_graph=True).
    Why it costs: every pass computes all gradients on its way. For several losses, one pass over their sum
    often gives the same gradients. In a GAN, the backward pass of the discriminator's loss may also compute
    gradients of the generator, which nobody uses.
    Bad: loss_a.backward(retain_graph=True) and then loss_b.backward(); a discriminator's loss on images that
    are not detached. Good: (loss_a + loss_b).backward();
    discriminator(images.detach()).
    With an execution trace, computed-unused finds runs whose results no op reads. Their repeats are not counted here.
    How sure: the recorded sequence numbers show that a node runs again.
    When it is wrong: the passes cannot be joined. For example, the program compares the gradients of several losses.
    Source: torch.autograd.backward, "retain_graph", in PyTorch's documentation.
    """
    nodes = calls[calls.is_op & calls.name.matches(_NODE)]
    if len(nodes) and (pick(ints(trace.lanes.cpu, "sequence"), nodes.rows) == NULL_INT).all():
        raise Unavailable("no sequence numbers in the trace", "record with a released torch.profiler")
    unread = no_rows() if flow is None else flow.ops[flow.unread[flow.number]].outer_op.rows
    repeated = _repeated_nodes(trace, calls, nodes, unread)
    if repeated.sum() <= limits.min_again_share * len(nodes):
        return
    evaluations = _with_sums(calls, nodes[repeated])
    spent, owner = evaluations.launched()
    steps = max(len(distinct(evaluations.step[evaluations.step >= 0])), 1)
    yield Hits(
        occurrences=evaluations,
        lost=LostTime.all_of(spent, owner),
        fix=Drop(evaluations.rows),
        message="in each step, backward repeats {again} of {nodes} autograd nodes; the repeats take {spent} of GPU "
        "time a step, in {ops}",
        advice="Add the losses and call backward once. Where nothing uses the gradient of a loss's input, detach this "
        "input.",
        evidence={
            **gpu_time_evidence(spent),
            "again": round(int(repeated.sum()) / steps),
            "nodes": round(len(nodes) / steps),
            "spent_ns": spent.total_ns // steps,
        },
    )


def _repeated_nodes(trace: Trace, calls: Calls, nodes: Calls, unread: Rows) -> Mask:
    """Nodes that were computed before, and not in vain; bool of shape (nodes,)."""
    sequence = pick(ints(trace.lanes.cpu, "sequence"), nodes.rows)
    thread = pick(ints(trace.lanes.cpu, "fwd_thread"), nodes.rows)
    number, _ = grouped([sequence, thread, nodes.name.code])
    order = np.lexsort((nodes.start_ns, number))
    later = np.zeros(len(nodes), np.bool_)
    later[order[1:]] = number[order[1:]] == number[order[:-1]]
    recorded = calls[pick(ints(trace.lanes.cpu, "sequence"), calls.rows) != NULL_INT].parent.rows
    # with create_graph=True a second pass is usually needed
    twice_differentiable = np.isin(number, number[np.isin(nodes.rows, recorded)])
    in_vain = np.isin(number, number[np.isin(nodes.parent.rows, unread)])
    return np.asarray(later & (sequence != NULL_INT) & ~twice_differentiable & ~in_vain)


def _with_sums(calls: Calls, again: Calls) -> Calls:
    """The engine's evaluations of these nodes, and of the sums of gradients that follow on them."""
    every = calls[calls.name.matches(EVALUATION)]
    every = every[np.lexsort((every.start_ns, every.thread))]
    in_parents = np.isin(every.rows, again.parent.rows)
    sum_before = np.maximum.accumulate(np.where(every.name.matches("AccumulateGrad$"), 0, np.arange(len(every))))
    return every[in_parents[sum_before]] if in_parents.any() else again
