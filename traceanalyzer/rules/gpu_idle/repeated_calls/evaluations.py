"""Networks that a step evaluates several times, each time with its derivatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import distinct, rank_within
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Hits, IdleTime, LostTime, Work
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import with_inputs, without_views
from traceanalyzer.timeline.backward_nodes import outer_nodes_of
from traceanalyzer.timeline.loops import LAYER

_ENGINE, _SUMS_UP = r"^autograd::engine|^torch::autograd", "torch::autograd::AccumulateGrad"
# Layers of a network, and evaluations; more of them are a loop over time steps or samples. Chosen.
_MIN_LAYERS, _MAX_EVALUATIONS = 3, 8


def evaluation_hits(calls: Calls, outer: Calls, work: Work, idle: IdleTime) -> Iterator[Hits]:
    """Equal runs of forward ops with layers, each differentiated before the next and again with the loss.

    No gradient of a parameter is added up between them, as between micro-batches. No op between them takes a tensor of
    the input's or of a weight's shape, as a solver or an inner training loop does.

    Args:
        outer: outermost ops.
    """
    engine, sums_ns = outer.name.matches(_ENGINE), np.sort(calls.start_ns[calls.name.one_of(_SUMS_UP)])
    forward, number, signatures = with_inputs(without_views(outer[~engine]).in_order(by_step=True))
    nodes, recorder = outer_nodes_of(calls, forward)
    last_run = len(nodes) - 1 - np.unique(recorder[::-1], return_index=True)[1]
    engine_runs = np.searchsorted(np.sort(outer.start_ns[engine]), forward.start_ns)
    edges = np.flatnonzero(np.diff(forward.step) | np.diff(forward.thread) | np.diff(engine_runs)) + 1
    # A node runs for a derivative, and again in the backward of the loss.
    again = np.bincount(recorder, minlength=len(forward)) > 1
    layers, runs = np.flatnonzero(forward.name.meets(LAYER.search)), dict[tuple[int, ...], list[int]]()
    for low, high in pairwise([0, *edges.tolist(), len(forward)]):
        inside = layers[slice(*np.searchsorted(layers, (low, high)))]
        if len(inside) >= _MIN_LAYERS and again[inside].any():
            runs.setdefault(tuple(number[inside[0] : high].tolist()), []).append(int(inside[0]))
    for ops, places in runs.items():
        begins, size, times = (
            np.array(places),
            len(ops),
            np.bincount(forward.step[places])[forward.step[places]],
        )
        begins = begins[(times > 1) & (times <= _MAX_EVALUATIONS)]
        while len(begins) and begins[0] > 0 and (number[begins - 1] == number[begins[0] - 1]).all():
            begins, size = begins - 1, size + 1
        pairs = [pair for pair in pairwise(begins.tolist()) if len({*forward.step[[*pair]].tolist()}) == 1]
        between = {which for begin, end in pairs for which in number[begin + size : end].tolist()}
        summed = any(np.diff(np.searchsorted(sums_ns, forward.start_ns[[*pair]])).any() for pair in pairs)
        network = [signatures[which] for which in number[begins[:1, None] + np.arange(size)].ravel().tolist()]
        if not pairs or summed or _depend(network, [signatures[which] for which in between]):
            continue
        starts, ends = forward.start_ns[begins], forward.end_ns[begins + size - 1]
        later = rank_within(forward.step[begins]) > 0
        owner = np.searchsorted(begins, recorder[last_run], side="right") - 1
        of_loss = (owner >= 0) & (recorder[last_run] < begins[owner] + size) & later[owner]
        first, backward = forward[begins[later]], nodes[last_run[of_loss]]
        spans = np.append(starts[later], backward.start_ns), np.append(ends[later], backward.end_ns)
        lost = LostTime.joined([LostTime.spent_within(work, *spans), LostTime.launched_within(idle, *spans)])
        lines = first.line.or_else(first.annotation).sums(ends[later] - starts[later])
        yield Hits(
            occurrences=first,
            cause="evaluated-anew",
            lost=lost.owned_by(np.append(np.arange(len(first)), (np.cumsum(later) - 1)[owner[of_loss]])),
            fix=DropSpans(*spans),
            confidence=Confidence.LOW,
            message="one network ({members} ops) is evaluated {passes} times a step on inputs of one shape, {given}, "
            "and differentiated each time before the next; the loss goes backward through each"
            + (", at {lines}" if lines else ""),
            advice="If the inputs are the same, as the points of several residuals: evaluate the network and its "
            "derivatives once, and share them. Otherwise put them into one batch. The trace shows no values.",
            evidence={
                "members": size,
                "passes": 1 + len(pairs) // len(distinct(forward.step[begins])),
                "given": shape_text(tensors(network[0])[0]),
                "lines": lines,
            },
        )


def _depend(network: Sequence[Signature], between: Sequence[Signature]) -> bool:
    """True if an op between two evaluations takes a tensor of the input's or of a weight's shape."""
    layers = [tensors(op)[1:] for op in network if LAYER.search(op.name)]
    shapes: set[Shape] = {*tensors(network[0])[:1], *(shape for each in layers for shape in each)}
    return not tensors(network[0]) or any(
        shape in shapes for op in between for shape in tensors(op) if len(shape) > 1
    )
