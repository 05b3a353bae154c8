"""Backward passes that go through the same graph again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, distinct, grouped, pick
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rules.kernels.repeated_backward.backward_passes import EVALUATION, Passes

_NODE = r"^[^:]+Backward\d*$"
_SUMS = r"AccumulateGrad$"
_MESSAGES = {
    "": (
        "in each step, backward repeats {again} of {nodes} autograd nodes; the repeats take {spent} of GPU time a "
        "step, in {ops}"
    ),
    "inputs": (
        "backward goes through the same graphs {passes} more times a step, from the same outputs and "
        "gradient, for other inputs: {again} of {nodes} nodes, {spent} of GPU time a step, in {ops}"
    ),
}
_ADVICE = {
    "": "Add the losses and call backward once. Where nothing uses the gradient of a loss's input, detach this input.",
    "inputs": "Ask for the gradients of all inputs in one call: torch.autograd.grad(u, (x, y, t), create_graph=True).",
}


@dataclass(frozen=True, slots=True)
class Limits:
    min_again_share: float = limit(
        0.05,
        "reported only if at least this share of the backward nodes runs again; a smaller share is one "
        "shared layer",
    )


@rule(since="0.1", claims=Claims.PATTERN, causes=("inputs",), limits=Limits)
def repeated_backward(trace: Trace, calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Backward passes run the same autograd nodes several times.

    What it looks for: backward nodes that run again, in two cases:
    - a second backward pass goes through a graph that the first pass kept (retain_graph=True);
    - torch.autograd.grad is called several times for one output, with a different input in each call.
    Why it costs: every pass computes all gradients on its way. For several losses, one pass over their sum
    often gives the same gradients. In a GAN, the backward pass of the discriminator's loss may also compute
    gradients of the generator, which nobody uses.
    Bad: loss_a.backward(retain_graph=True) and then loss_b.backward(); a discriminator's loss on images that
    are not detached; grad(u, x) and then grad(u, y). Good: (loss_a + loss_b).backward();
    discriminator(images.detach()); grad(u, (x, y)).
    How sure: the recorded sequence numbers show that a node runs again.
    When it is wrong: the passes cannot be joined. For example, the program compares the gradients of several
    losses.
    Source: torch.autograd.backward, "retain_graph", in PyTorch's documentation.
    """
    nodes = calls[calls.is_op & calls.name.matches(_NODE)]
    if len(nodes) and (pick(ints(trace.lanes.cpu, "sequence"), nodes.rows) == NULL_INT).all():
        raise Unavailable("no sequence numbers in the trace", "record with a released torch.profiler")
    passes = Passes.build(calls, nodes)
    nodes, same = passes.nodes, passes.again(calls)
    kept = _again(trace, calls, nodes) & ~same
    for again, seeds, cause in ((kept, nodes[:0], ""), (same, passes.seeds(same), "inputs")):
        if again.sum() > limits.min_again_share * len(nodes):
            yield _hits(calls, nodes, again, seeds, cause)


def _hits(calls: Calls, nodes: Calls, again: Mask, seeds: Calls, cause: str) -> Hits:
    passes = _with_sums(calls, nodes[again])
    spent, owner = passes.launched()
    steps = max(len(distinct(passes.step[passes.step >= 0])), 1)
    lines = seeds.line.sums(seeds.dur_ns)
    return Hits(
        occurrences=passes,
        cause=cause,
        lost=LostTime.all_of(spent, owner),
        fix=Drop(passes.joined([passes, seeds]).rows),
        message=_MESSAGES[cause] + (", from {lines}" if lines else ""),
        advice=_ADVICE[cause],
        evidence={
            **told(spent),
            "again": round(int(again.sum()) / steps),
            "nodes": round(len(nodes) / steps),
            "passes": round(len(seeds) / steps),
            "spent_ns": spent.total_ns // steps,
            "lines": lines,
        },
    )


def _again(trace: Trace, calls: Calls, nodes: Calls) -> Mask:
    """Nodes that were computed before; bool of shape (nodes,)."""
    sequence = pick(ints(trace.lanes.cpu, "sequence"), nodes.rows)
    thread = pick(ints(trace.lanes.cpu, "fwd_thread"), nodes.rows)
    number, _ = grouped([sequence, thread, nodes.name.code])
    order = np.lexsort((nodes.start_ns, number))
    later = np.zeros(len(nodes), np.bool_)
    later[order[1:]] = number[order[1:]] == number[order[:-1]]
    recorded = calls[pick(ints(trace.lanes.cpu, "sequence"), calls.rows) != NULL_INT].parent.rows
    # with create_graph=True a second pass is usually needed
    twice_differentiable = np.isin(number, number[np.isin(nodes.rows, recorded)])
    return np.asarray(later & (sequence != NULL_INT) & ~twice_differentiable)


def _with_sums(calls: Calls, again: Calls) -> Calls:
    """The engine's evaluations of these nodes, and of the sums of gradients that follow on them."""
    every = calls[calls.name.matches(EVALUATION)]
    every = every[np.lexsort((every.start_ns, every.thread))]
    mine = np.isin(every.rows, again.parent.rows)
    of = np.maximum.accumulate(np.where(every.name.matches(_SUMS), 0, np.arange(len(every))))
    return every[mine[of]] if mine.any() else again
