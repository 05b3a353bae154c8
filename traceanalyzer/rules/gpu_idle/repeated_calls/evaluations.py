"""Networks that are evaluated anew for each derivative of the same points."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, rank_within
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Confidence, Hits, IdleTime, LostTime, Work
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import with_inputs, without_views
from traceanalyzer.timeline.backward_nodes import outer_nodes_of
from traceanalyzer.timeline.loops import LAYER

from .repeats import ENGINE

_SUMS_UP = "torch::autograd::AccumulateGrad"
# Layers of a network, and evaluations; more of them are a loop over time steps or samples. Chosen.
_MIN_LAYERS, _MAX_EVALUATIONS = 3, 8


def evaluation_hits(calls: Calls, outer: Calls, work: Work, idle: IdleTime) -> Iterator[Hits]:
    """Equal runs of forward ops with layers, each differentiated before the next and again with the loss.

    No gradient of a parameter is added up between them, as between micro-batches. No op between them takes a tensor of
    the input's or of a weight's shape, as a solver or an inner training loop does.
    """
    engine, sums_ns = outer.name.matches(ENGINE), np.sort(calls.start_ns[calls.name.one_of(_SUMS_UP)])
    forward, number, signatures = with_inputs(without_views(outer[~engine]).in_order(by_step=True))
    nodes, recorder = outer_nodes_of(calls, forward)
    last_run = len(nodes) - 1 - np.unique(recorder[::-1], return_index=True)[1]
    # A node runs for a derivative, and again in the backward of the loss.
    layers = forward.name.meets(LAYER.search) & (np.bincount(recorder, minlength=len(forward)) > 1)
    for begins, size in _equal_runs(forward, number, layers, np.sort(outer.start_ns[engine])):
        pairs = [pair for pair in pairwise(begins.tolist()) if len({*forward.step[[*pair]].tolist()}) == 1]
        between = {which for begin, end in pairs for which in number[begin + size : end].tolist()}
        summed = any(np.diff(np.searchsorted(sums_ns, forward.start_ns[[*pair]])).any() for pair in pairs)
        network = [signatures[which] for which in number[begins[0] : begins[0] + size].tolist()]
        if summed or _depend(network, [signatures[which] for which in between]):
            continue
        starts, ends = forward.start_ns[begins], forward.end_ns[begins + size - 1]
        later = rank_within(forward.step[begins]) > 0
        owner = np.searchsorted(begins, recorder[last_run], side="right") - 1
        of_loss = (owner >= 0) & (recorder[last_run] < begins[owner] + size) & later[owner]
        first, backward = forward[begins[later]], nodes[last_run[of_loss]]
        spans = np.append(starts[later], backward.start_ns), np.append(ends[later], backward.end_ns)
        lost = LostTime.joined([LostTime.spent_within(work, *spans), LostTime.launched_within(idle, *spans)])
        yield Hits(
            occurrences=first,
            cause="evaluated-anew",
            lost=lost.owned_by(np.append(np.arange(len(first)), (np.cumsum(later) - 1)[owner[of_loss]])),
            fix=DropSpans(*spans),
            confidence=Confidence.LOW,
            message="one network ({members} ops) is evaluated {passes} times a step on inputs of one shape, {given}, "
            "and differentiated each time before the next; the loss goes backward through each{at_lines}",
            advice="If the inputs are the same, as the points of several residuals: evaluate the network and its "
            "derivatives once, and share them. Otherwise put them into one batch. The trace shows no values.",
            evidence={
                "members": size,
                "passes": 1 + len(pairs) // len(distinct(forward.step[begins])),
                "given": shape_text(tensors(network[0])[0]),
                "lines": first.line.or_else(first.annotation).sums(ends[later] - starts[later]),
            },
        )


def _equal_runs(forward: Calls, number: Rows, layers: Mask, engine_ns: Rows) -> Iterator[tuple[Rows, int]]:
    """(first op of each run, number of ops) of equal runs with layers, several a step, that backward separates."""
    engine_runs = np.searchsorted(engine_ns, forward.start_ns)
    edges = np.flatnonzero(np.diff(forward.step) | np.diff(forward.thread) | np.diff(engine_runs)) + 1
    runs: dict[tuple[int, ...], list[int]] = {}
    for low, high in pairwise([0, *edges.tolist(), len(forward)]):
        inside = low + np.flatnonzero(layers[low:high])
        if len(inside) >= _MIN_LAYERS:
            runs.setdefault(tuple(number[inside[0] : high].tolist()), []).append(int(inside[0]))
    for ops, places in runs.items():
        times, size = np.bincount(forward.step[places])[forward.step[places]], len(ops)
        begins = np.array(places)[(times > 1) & (times <= _MAX_EVALUATIONS)]
        while len(begins) and begins[0] > 0 and (number[begins - 1] == number[begins[0] - 1]).all():
            begins, size = begins - 1, size + 1
        if len(begins):
            yield begins, size


def _depend(network: Sequence[Signature], between: Sequence[Signature]) -> bool:
    """True if an op between two evaluations takes a tensor of the input's or of a weight's shape."""
    layers = [tensors(op)[1:] for op in network if LAYER.search(op.name)]
    shapes: set[Shape] = {*tensors(network[0])[:1], *(shape for each in layers for shape in each)}
    return not tensors(network[0]) or any(shape in shapes for op in between for shape in tensors(op) if len(shape) > 1)
