"""Networks that a step calls several times on inputs of equal shapes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, narrowed, numbered, sums_of
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Hits, LostTime, Work
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import Batching, lines_of
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.backward_nodes import backward_nodes_of
from traceanalyzer.timeline.loops import step_edges

_AUTOGRAD, _LEAVES = r"^autograd::engine", r"^torch::autograd::AccumulateGrad$"
# Layers of a network; chosen.
_MIN_LAYERS = 3
# More passes are a loop over time steps or samples; chosen.
_MAX_PASSES = 8
# Ops of a pass; chosen.
_MAX_OPS = 2_000
# A node runs for a derivative, and again in the backward of the loss.
_MIN_RUNS = 2
LAYERS = regex(r"^aten::(linear|conv[123]d|convolution|addmm|matmul|mm)$")
# What a pass draws or writes in place is the next one's input: tokens, and a cache of keys and values.
_FEEDS_NEXT_PASS = regex(r"^aten::(argmax|multinomial|exponential_|index_put_|index_copy_|scatter_)$")
_DIFFERS = regex(r"^aten::(r?sub|lerp)$")
# Distances between layers to try: few of a network's distances recur.
_CANDIDATES = 8
# Ops after the passes.
_NEAR = 4


@dataclass(frozen=True, slots=True, eq=False)
class Evaluations:
    """The evaluations of one network in one step.

    Attributes:
        first_ops: the first op of each.
        ends_ns: int64 (evaluations,), end of the last op of each.
        names: the ops of one evaluation.
        nodes: outermost ops of backward of the loss through each evaluation but the first.
        owner: int64 (nodes,), the evaluation.
        input_shape: shape of the network's input.
    """

    first_ops: Calls
    ends_ns: Rows
    names: tuple[str, ...]
    nodes: Calls
    owner: Rows
    input_shape: Shape


def evaluations_of(calls: Calls, outer: Calls) -> Iterator[Evaluations]:
    """The network with the longest evaluations in each step, if each is differentiated before the next begins.

    The evaluations are independent, by shapes. No op between them takes a tensor of the input's or of a weight's
    shape, as a solver, an attack or an inner training loop does. No gradient of a parameter is added up between them,
    as between micro-batches. Each one is differentiated again with the loss.

    Args:
        outer: outermost ops.
    """
    forward = outer[~outer.name.matches(_AUTOGRAD) & ~outer.name.meets(is_view)]
    forward = forward[np.lexsort((forward.start_ns, forward.thread, forward.step))]
    if not len(forward) or (forward.text("input_dims").code < 0).all():
        return
    nodes, recorder = backward_nodes_of(calls, forward)
    nodes, recorder = nodes[recorder >= 0], recorder[recorder >= 0]
    _, once = np.unique(nodes.outer_op.rows, return_index=True)
    nodes, recorder = nodes.outer_op[once], recorder[once]
    if not len(nodes):
        return
    kind, _ = grouped([forward.name.code, forward.text("input_dims").code])
    layer = forward.name.meets(LAYERS.search)
    leaves = calls[calls.name.matches(_LEAVES)]
    for low, high in pairwise(step_edges(forward)):
        longest = largest_network(kind[low:high], layer[low:high])
        if longest is None:
            continue
        begins, size = longest[0] + low, longest[1]
        evaluations = _independent_evaluations(forward, begins, size, nodes, recorder, leaves)
        if evaluations is not None:
            yield evaluations


def largest_network(kind: Rows, layer: Mask) -> tuple[Rows, int] | None:
    """(first op of each evaluation, ops of each) of the network that covers most, None if nothing recurs."""
    best: tuple[Rows, int] | None = None
    places = np.flatnonzero(layer)
    _, number, count = np.unique(kind[places], return_inverse=True, return_counts=True)
    for which in np.flatnonzero((count > 1) & (count <= _MAX_PASSES)).tolist():
        begins = places[number == which]
        size = count_equal_ops(kind, begins, 1)
        before = count_equal_ops(kind, begins - 1, -1, int(np.diff(begins).min()) - size)
        if int(layer[begins[0] : begins[0] + size].sum()) < _MIN_LAYERS:
            continue
        if best is None or (size + before) * len(begins) > best[1] * len(best[0]):
            best = begins - before, size + before
    return best


def count_equal_ops(kind: Rows, begins: Rows, by: int, most: int | None = None) -> int:
    """Number of equal ops from there on, at most up to the next evaluation."""
    most = int(np.diff(begins).min()) if most is None else most
    for far in range(min(most, _MAX_OPS)):
        where = begins + by * far
        if where[0] < 0 or where[-1] >= len(kind) or (kind[where] != kind[where[0]]).any():
            return far
    return max(min(most, _MAX_OPS), 0)


def _independent_evaluations(
    forward: Calls, begins: Rows, size: int, nodes: Calls, recorder: Rows, leaves: Calls
) -> Evaluations | None:
    size = ops_before_backward(forward, begins, size, nodes, recorder)
    starts, ends = forward.start_ns[begins], forward.end_ns[begins + size - 1]
    adds_up = ((leaves.start_ns >= starts[0]) & (leaves.start_ns < ends[-1])).any()
    owner = np.searchsorted(begins, recorder, side="right") - 1
    inside = (owner >= 0) & (recorder < begins[owner] + size)
    nodes, recorder, owner = nodes[inside], recorder[inside], owner[inside]
    runs = np.unique(recorder, return_counts=True)
    again = set(owner[np.isin(recorder, runs[0][runs[1] >= _MIN_RUNS])].tolist())
    follows = np.append(starts[1:], np.iinfo(np.int64).max)
    between = set(owner[nodes.start_ns < follows[owner]].tolist())
    everyone = set(range(len(begins)))
    if adds_up or again != everyone or between != everyone or depend_on_each_other(forward, begins, size):
        return None
    if not is_one_network(
        forward[begins[0] : begins[0] + size], leaves[leaves.step == forward.step[begins[0]]]
    ):
        return None
    last = is_last_run(recorder, nodes) & (owner > 0)
    first = signatures_of(forward.events.trace, forward.rows[begins[:1]])[1][0]
    return Evaluations(
        first_ops=forward[begins],
        ends_ns=ends,
        names=tuple(map(str, forward[begins[0] : begins[0] + size].name.values())),
        nodes=nodes[last],
        owner=owner[last],
        input_shape=next(iter(tensors(first)), ()),
    )


def ops_before_backward(forward: Calls, begins: Rows, size: int, nodes: Calls, recorder: Rows) -> int:
    """Number of ops of each evaluation before the first node of any of them."""
    for begin in begins.tolist():
        inside = (recorder >= begin) & (recorder < begin + size)
        first = nodes.start_ns[inside].min(initial=np.iinfo(np.int64).max)
        size = max(int(np.searchsorted(forward.start_ns[begin : begin + size], first)), 1)
    return size


def is_one_network(evaluation: Calls, leaves: Calls) -> bool:
    """True if some weight gets no more gradients than there are such weights. Several networks get more."""
    trace = evaluation.events.trace
    number, signatures = signatures_of(trace, evaluation.rows)
    weights = Counter(weight_sizes(signatures[which]) for which in number.tolist())
    number, signatures = signatures_of(trace, leaves.rows)
    gradients = Counter(
        tuple(sorted(shape)) for which in number.tolist() for shape in tensors(signatures[which])[:1]
    )
    return any(0 < gradients[shape] <= count for shape, count in weights.items() if shape)


def weight_sizes(op: Signature) -> Shape:
    """Sorted sizes of a layer's weight; empty for other ops."""
    shapes = tensors(op)[1:] if LAYERS.search(op.name) else []
    return next((tuple(sorted(shape)) for shape in shapes if len(shape) > 1), ())


def is_last_run(recorder: Rows, nodes: Calls) -> Mask:
    """True for the last run of each op's node."""
    order = np.lexsort((nodes.start_ns, recorder))
    last = np.zeros(len(recorder), bool)
    last[order] = np.append(recorder[order][1:] != recorder[order][:-1], True)
    return last


def depend_on_each_other(forward: Calls, begins: Rows, size: int) -> bool:
    """True if an op between two evaluations takes a tensor of an input's or a weight's shape."""
    number, signatures = signatures_of(forward.events.trace, forward.rows[begins[0] : begins[-1]])
    evaluation = number[:size].tolist()
    shapes = {shape for which in evaluation[:1] for shape in tensors(signatures[which])[:1]}
    for which in evaluation:
        if LAYERS.search(signatures[which].name):
            shapes.update(tensors(signatures[which])[1:])
    inside = np.zeros(len(number), bool)
    for begin in (begins[:-1] - begins[0]).tolist():
        inside[begin : begin + size] = True
    between = distinct(number[~inside]).tolist()
    return any(shape in shapes for which in between for shape in tensors(signatures[which]) if len(shape) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """Passes in a row within one step.

    Attributes:
        first_ops: the first op of each pass.
        ops: all of them, without views.
        ends_ns: int64 (passes,), end of the last op of each.
        names: the ops of one pass.
        launches: pieces of work of one pass.
        combining_op: the op that takes the results of several.
    """

    first_ops: Calls
    ops: Calls
    ends_ns: Rows
    names: tuple[str, ...]
    launches: int
    combining_op: str


def passes_of(outer: Calls, work: Work, least: int, min_share: float) -> Iterator[Passes]:
    """The passes of each step that make at least this share of its launches.

    A pass is independent of the one before if two things hold. Its first layer takes no tensor as large as a pass's
    result, as a layer of a chain would. An op right after the last pass takes two such tensors. For pairs of passes
    that recur within a step, as in guidance, a subtraction is enough. A pass that copies to the host, draws a sample or
    writes into an existing tensor decides about the next one.

    Args:
        outer: outermost ops.
        least: minimum launches of a pass. Fewer are a layer, not a network.
    """
    outer = outer[~outer.name.meets(is_view)]
    if (outer.text("input_dims").code < 0).all():  # without shapes nobody takes what another one made
        return
    outer = outer[np.lexsort((outer.start_ns, narrowed(numbered(outer.thread)[0]), narrowed(outer.step)))]
    kind, _ = grouped([outer.name.code, outer.text("input_dims").code])
    launching = work.outer_op.rows
    launching = launching[launching >= 0]
    count = np.bincount(launching, minlength=int(outer.rows.max()) + 1)[outer.rows]
    layer, reads = outer.name.meets(LAYERS.search), work.outer_op.rows[work.kind.one_of("copy_d2h")]
    ends = np.isin(outer.rows, reads) | outer.name.meets(_FEEDS_NEXT_PASS.search)
    kind = np.where(ends, -1 - np.arange(len(kind)), kind)  # equal to no other: no pass goes on
    of_step = sums_of(outer.step, count, int(outer.step[-1]) + 1)  # of all threads: backward has its own
    for low, high in pairwise(step_edges(outer)):
        span = slice(low, high)
        passes = _shortest_passes(outer[span], kind[span], count[span], layer[span], least)
        step_launches = int(of_step[outer.step[low]])
        if (
            sum(len(network.first_ops) * network.launches for network in passes)
            >= min_share * step_launches
            > 0
        ):
            yield from passes


def _shortest_passes(outer: Calls, kind: Rows, count: Rows, layer: Mask, least: int) -> list[Passes]:
    """The passes with the shortest period."""
    places = np.flatnonzero(layer)
    order = np.lexsort((places, kind[places]))
    steps = np.diff(places[order])[np.diff(kind[places[order]]) == 0]
    usual = [period for period, _ in Counter(steps.tolist()).most_common(_CANDIDATES)]
    for period in sorted(usual):
        if passes := list(_passes_of_period(period, outer, kind, count, layer, least)):
            return passes
    return []


def _passes_of_period(
    period: int, outer: Calls, kind: Rows, count: Rows, layer: Mask, least: int
) -> Iterator[Passes]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], kind[period:] == kind[:-period], [False]))))
    repeats, ends = (edges[1::2] - edges[::2]) // period + 1, edges[1::2] + period
    begins, launches = ends - repeats * period, np.append(0, np.cumsum(count))
    chosen = (repeats >= 2) & (launches[begins + period] - launches[begins] >= least)
    again = Counter(kind[begins[chosen]].tolist())
    for begin, end in zip(begins[chosen].tolist(), ends[chosen].tolist(), strict=True):
        times = (end - begin) // period
        if repeats_block(kind[begin : begin + period]):
            continue
        pairs = times == 2 and again[int(kind[begin])] > 1
        taker = _combining_op(outer[begin : end + _NEAR], times * period, layer[begin:end], pairs=pairs)
        if taker:
            starts = begin + period * np.arange(times)
            yield Passes(
                first_ops=outer[starts],
                ops=outer[begin:end],
                ends_ns=outer.end_ns[starts + period - 1],
                names=tuple(map(str, outer[begin : begin + period].name.values())),
                launches=int(count[begin : begin + period].sum()),
                combining_op=taker,
            )


def repeats_block(kind: Rows) -> bool:
    """True if the ops repeat one block, as layers do."""
    size = len(kind)
    return any(size % part == 0 and (kind[part:] == kind[:-part]).all() for part in range(1, size // 2 + 1))


def _combining_op(ops: Calls, size: int, layer: Mask, *, pairs: bool) -> str:
    """Name of the op after the passes that takes two of their results; empty if a chain would look the same.

    Results are compared by elements, because views and pixel shuffles change their shapes.
    """
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    op_signatures = [signatures[which] for which in number.tolist()]
    last = op_signatures[size - 1]
    result = result_elements(tensors(last), LAYERS.search(last.name))
    begins = tensors(op_signatures[int(np.argmax(layer))])
    if result is None or not begins or not any(last.dims):
        return ""
    chained = math.prod(begins[0]) == result
    takers = (op for op in op_signatures[size:] if not chained or (pairs and _DIFFERS.search(op.name)))
    return next((op.name for op in takers if most_equal_shapes(tensors(op), result) > 1), "")


def most_equal_shapes(shapes: list[Shape], elements: int) -> int:
    """The most tensors of one shape with this number of elements."""
    return max(Counter(shape for shape in shapes if math.prod(shape) == elements).values(), default=0)


def result_elements(shapes: list[Shape], layer: re.Match[str] | None) -> int | None:
    """Elements of an op's result, None if unknown. A layer has its weight's first size as channels."""
    if not shapes or (layer and len(shapes) < 2):
        return None
    data = shapes[0]
    if not layer:
        return math.prod(data)
    if "conv" in layer[1]:
        return math.prod((data[0], shapes[1][0], *data[2:]))
    return math.prod((*data[:-1], shapes[1][0] if layer[1] == "linear" else shapes[1][-1]))


def passes_hits(passes: list[Passes], batching: Batching) -> Hits:
    """Hits for passes through one network."""
    first_ops = passes[0].first_ops.joined([each.first_ops for each in passes])
    ends = np.concatenate([each.ends_ns for each in passes])
    group = np.repeat(np.arange(len(passes)), [len(each.first_ops) for each in passes])
    ops, times = first_ops.joined([each.ops for each in passes]), len(passes[0].first_ops)
    lines = lines_of(ops, ops.dur_ns)
    return Hits(
        occurrences=first_ops,
        cause="passes",
        lost=batching.lost(first_ops.start_ns, ends),
        fix=batching.edits(first_ops.start_ns, ends, group),
        confidence=Confidence.MEDIUM,
        message=f"the same {{members}} ops run {'twice' if times == 2 else '{passes} times'} in a row on tensors of "
        "the same shapes, with {launches} launches each time, and then {taker} combines the results: calls of one "
        "network, {times_a_step}" + (", at {lines}" if lines else ""),
        advice="Put the inputs into one batch and call the network once: net(torch.cat([a, b])).chunk(2).",
        evidence={
            "members": len(passes[0].names),
            "passes": times,
            "launches": passes[0].launches,
            "taker": passes[0].combining_op,
            "lines": lines,
        },
    )


def evaluation_hits(evaluations: list[Evaluations], batching: Batching) -> Hits:
    """Hits for evaluations of one network. The first one may replace the others."""
    first = evaluations[0]
    repeated = first.first_ops.joined([each.first_ops[1:] for each in evaluations])
    ends = np.concatenate([each.ends_ns[1:] for each in evaluations])
    nodes = first.first_ops.joined([each.nodes for each in evaluations])
    before = np.cumsum([0] + [len(each.first_ops) - 1 for each in evaluations])[:-1]
    owner = [each.owner - 1 + count for each, count in zip(evaluations, before, strict=True)]
    starts, stops = np.append(repeated.start_ns, nodes.start_ns), np.append(ends, nodes.end_ns)
    lost = [LostTime.spent_within(batching.work, starts, stops), batching.lost(starts, stops)]
    lines = lines_of(repeated, ends - repeated.start_ns)
    return Hits(
        occurrences=repeated,
        cause="evaluated-anew",
        lost=LostTime.joined(lost).owned_by(np.concatenate([np.arange(len(repeated)), *owner])),
        fix=DropSpans(starts, stops),
        confidence=Confidence.LOW,
        message="one network ({members} ops) is evaluated {passes} times a step on inputs of one shape, {given}, and "
        "differentiated each time before the next; the loss goes backward through each"
        + (", at {lines}" if lines else ""),
        advice="If the inputs are the same, as the points of several residuals: evaluate the network and its "
        "derivatives once, and share them. Other inputs: put them into one batch. The trace shows shapes, not values.",
        evidence={
            "members": len(first.names),
            "passes": len(first.first_ops),
            "given": "x".join(map(str, first.input_shape)),
            "nodes": len(nodes) // len(evaluations),
            "lines": lines,
        },
    )
