"""Ops compute again what they, or earlier ops, have computed from the same tensors."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick
from traceanalyzer.model.trace import ints_at
from traceanalyzer.regions.regions import DropRegion
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Unavailable, rule
from traceanalyzer.tensors.fixed_inputs import Stretch, stretches
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.needed_values import known_factors
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.signatures import Shape, shape_text
from traceanalyzer.tensors.top_ops import with_inputs, without_views
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, in_hooks
from traceanalyzer.timeline.loops import LAYER, step_edges
from traceanalyzer.timeline.names import DATA_LOADING

_NODES = r"^autograd::engine"
_PREPARES = frozenset({Kind.NORM, Kind.REDUCTION, Kind.SORT, Kind.COUNT, Kind.SCAN})
_ADVICE = {
    "loop-invariant": "Compute it once a step, before its first use, and pass the result to each call or iteration. If "
    "it computes a parametrized weight, run the loop within torch.nn.utils.parametrize.cached().",
    "same-matrix": "Factorise the matrix once: torch.linalg.lu_factor and lu_solve, or cholesky and cholesky_solve "
    "if it is symmetric and positive definite. If it never changes, keep the factors for the whole run.",
    "first-pass": "Drop the pass without gradients: run the one with gradients earlier, and use its results detached. "
    "In a first PPO or GRPO update, old_log_probs = log_probs.detach().",
    "second-pass": "Use the results of the first pass, for example its logits for the accuracy.",
    "forward-twice": "If both passes get the same batch and weights, use the results of the first, for example its "
    "logits for the accuracy. A target or teacher network has weights of its own, and needs its pass.",
    "forward-in-hook": "If the batch fits into memory, use the loss without the cache, which runs the model twice; "
    "else larger mini-batches. In sentence-transformers: MultipleNegativesRankingLoss.",
    "unchanged-inputs": "Compute it once, and pass the result to each layer or model. If the tensors never "
    "change, compute it once for the whole run (cached=True in PyG's layers).",
    "constant-weights": "Compute it once after loading: remove_parametrizations, merge_and_unload for adapters, or "
    "store the weights in the dtype that layers read.",
    "repeated-preparation": "Compute it once after loading, and store the result.",
    "known-factor": "Pass scale_tril=L to MultivariateNormal instead of a covariance, or use Independent(Normal(mean, "
    "std), 1) if the covariance is diagonal.",
    "stored-inputs": "If these tensors never change, compute the result once, and keep it (cached=True in PyG's "
    "layers). Nothing is wrong if the recording repeats one batch.",
    "rebuilt-constants": "Make them once and keep them: register_buffer(), an attribute, or a cache by sizes.",
}


class Limits:
    min_iterations: int = 3
    """cause `loop-invariant`: the same is computed at least this many times a step; twice is a second pass"""
    min_layers: int = 4
    """cause `second-pass`: at least this many layers a step run again; fewer are no pass of a network; chosen"""
    min_steps: int = 3
    """without an execution trace, at least this many steps must do the same; chosen"""
    min_constant_ops: int = 3
    """cause `rebuilt-constants`: at least this many ops make a constant, views not counted; two ops, such as
    zeros() and a fill, make a buffer"""
    min_index_ops: int = 5
    """cause `unchanged-inputs`: at least this many ops in a row, views not counted; fewer cost little; chosen"""
    min_pass_ops: int = 8
    """cause `forward-twice`: at least this many ops in a row run again, views not counted; fewer may be equal
    by chance, as in a head or a loss; chosen"""


@rule(since="0.4", claims=Claims.WORK, specificity=3, min_share=0.02, limits=Limits, causes=tuple(_ADVICE))
def computed_again(calls: Calls, idle: IdleTime, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Ops compute again what was computed from the same tensors before.

    What it looks for: with an execution trace (NAME.et.json.gz beside the trace), ops whose inputs have the
    same values as those of an earlier op of the step. Without one, it looks for three patterns that need no
    tensor ids. The findings' causes:
    `loop-invariant`: each iteration of a loop computes the same, such as keys and values of one condition, or
    quantised weights.
    `same-matrix`: linalg.solve factorises the same matrix again for other right-hand sides.
    `first-pass`: ops run without a backward pass before they run on the same inputs with one.
    `second-pass`: a network runs a second time on the same inputs, for example to compute the accuracy.
    `forward-twice`: without an execution trace, a forward pass of the same ops and shapes runs again without a
    backward pass. Whether it gets the same batch is not recorded, so its severity is info.
    `forward-in-hook`: a forward pass runs without gradients, and again in a hook of the backward pass, with a
    backward pass of its own. Losses that cache gradients (GradCache) do this to save memory.
    `unchanged-inputs`: layers compute the same of index tensors (edges, positions, masks).
    `constant-weights`: inference computes the same of weights alone in every step (casts, norms, adapters).
    `repeated-preparation`: inference normalises, sorts or reduces the same stored tensor in every step.
    `known-factor`: the Cholesky factor of L @ L.T, or of a diagonal matrix, as of a distribution's covariance.
    `stored-inputs`: training computes the same of the same tensors in every step before the first layer, such as
    features that are propagated over a constant graph.
    `rebuilt-constants`: every step makes the same constants from numbers (arange, masks, windows).
    Why it costs: the result is the same. Each call pays again for kernels, launches and the backward pass.
    Bad: CachedMultipleNegativesRankingLoss with a mini-batch as large as the batch. Good: MultipleNegativesRankingLoss.
    Bad: k, v = layer.kv(encoder_output) in each decoding step. Good: k and v computed once per request.
    Bad: torch.hann_window(400).to(device) in forward(). Good: register_buffer.
    Bad: MultivariateNormal(mean, torch.diag_embed(var)). Good: Independent(Normal(mean, std), 1).
    Bad: gcn_norm(edge_index) in each layer. Good: the edge weights computed once, before the layers.
    How sure: with an execution trace, tensors are identified by their ids, and confidence is high. Numbers
    that Python passes (0.99 * x) are not recorded. Where most of the ops depend on them, and without an
    execution trace, confidence is medium.
    When it is wrong: host code changes a tensor without an op of PyTorch, or passes other numbers. Without an
    execution trace: the layers get different graphs of the same shape. `stored-inputs`: the recording repeats one
    batch that changes in other steps. Cached gradients are right if memory is short, which the trace does not show.
    Saving: the time of the repeated ops, of functions that make nothing else, and of nodes of backward that belong to
    them. Of `forward-in-hook`
    it is the time of the pass without gradients.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    of_pass = calls[:0]
    if flow is not None:
        of_pass = _before_hooks(flow)
        yield from _exact(flow, calls, idle, limits)
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    nodes = ops[ops.name.matches(_NODES)]
    if not any(ops.text("input_dims").distinct()):
        if flow is not None:
            return
        raise Unavailable("no shapes recorded: record_shapes=True shows what ops compute")
    yield from _constants(ops, calls, idle, limits)
    confidence = Confidence.HIGH if len(of_pass) else Confidence.MEDIUM
    if len(distinct(nodes.step)) >= limits.min_steps:
        before_hooks, again = _forward_twice(ops, nodes, limits)
        # Tensors' ids do not show that a hook restores the state of random numbers for dropout.
        of_pass = calls.joined([of_pass, before_hooks]).distinct()
        if flow is None:
            yield from _index_tensors(ops, nodes, idle, limits)
            if len(again):
                yield _hits("forward-twice", again, idle, Confidence.MEDIUM)
    if len(of_pass):
        yield _hits("forward-in-hook", of_pass, idle, confidence)


def _before_hooks(flow: Flow) -> Calls:
    """By the ids of tensors: ops outside of hooks of backward that are computed again in these."""
    first, hooked = flow.places(flow.again[flow.number]), in_hooks(flow.ops.events, flow.ops.rows)
    return flow.ops[distinct(first[(first >= 0) & hooked & ~pick(hooked, first, True)])]


def _exact(flow: Flow, calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """By the ids of tensors."""
    factorises = calls[calls.is_op & calls.name.matches("^aten::linalg_lu_factor_ex$")]
    factorises = factorises[factorises.inside(flow.ops[flow.matrix_again[flow.number] >= 0])]
    if len(factorises):
        yield _hits("same-matrix", factorises, idle, Confidence.HIGH)
    causes, guesses = _causes(flow, limits)
    for cause in _ADVICE:
        if (members := causes == cause).any():
            chosen, guessed = flow.ops[members], guesses[members]
            certain = chosen[guessed].total_ns * 2 < chosen.total_ns
            confidence = Confidence.HIGH if certain and cause != "stored-inputs" else Confidence.MEDIUM
            yield _hits(cause, chosen, idle, confidence)


def _causes(flow: Flow, limits: Limits) -> tuple[NDArray[np.object_], Mask]:
    """(cause of each op, empty for none; whether it holds only if numbers of Python are equal)."""
    number, user, guesses = flow.number, flow.places(flow.user[flow.number]), flow.guessed[flow.number]
    computes = flow.ops.name.meets(lambda name: op_row(name).kind is not Kind.CREATION)
    computes &= ~in_hooks(flow.ops.events, flow.ops.rows)
    again = np.where(computes, flow.again[number], -1)
    causes = np.where(flow.stored[number] & computes, "stored-inputs", "").astype(object)
    prepares = flow.ops.name.meets(lambda name: op_row(name).kind in _PREPARES)
    constant = flow.constant[number] & computes
    causes[constant] = np.where(prepares, "repeated-preparation", "constant-weights")[constant]
    times = np.bincount(flow.again[flow.again >= 0], minlength=len(flow.again))
    of_pass = (again >= 0) & (times[again] < limits.min_iterations - 1)
    causes[(again >= 0) & ~of_pass] = "loop-invariant"
    # The later op, which has a backward pass, is kept.
    before = of_pass & (again > number)
    causes[before], of_pass = "first-pass", of_pass & ~before
    layers = (of_pass & flow.ops.name.meets(LAYER.search)).sum()
    enough = layers >= limits.min_layers * max(len(distinct(flow.ops.step[of_pass])), 1)
    causes[of_pass] = "second-pass" if enough else "unchanged-inputs"
    causes[known_factors(flow.recorded, flow.values)[number]] = "known-factor"
    # What makes a tensor for these ops, or views one.
    serves = (flow.view | flow.stored | (flow.again >= 0))[number] & (causes == "") & (user >= 0)
    for op in np.flatnonzero(serves)[::-1].tolist():
        causes[op], guesses[op] = causes[user[op]], guesses[user[op]]
    return causes, guesses


def _constants(ops: Calls, calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Of recorded numbers alone, in every step. What a loader makes is a batch."""
    loading = calls[calls.is_annotation & calls.name.meets(DATA_LOADING.search)]
    ops, number, signatures = with_inputs(ops[~ops.inside(loading)].in_order())
    steps = len(distinct(ops.step))
    if steps < limits.min_steps:
        return
    alike = _by_content(stretches(ops, number, signatures, limits.min_constant_ops), number)
    in_all = [runs for runs in alike if len(distinct(ops.step[[run.begin for run in runs]])) == steps]
    chosen = [run for runs in in_all for run in runs]
    if chosen:
        members = np.concatenate([np.arange(run.begin, run.end) for run in chosen])
        yield _hits("rebuilt-constants", ops[members], idle, Confidence.MEDIUM)


def _index_tensors(ops: Calls, nodes: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Of index tensors that no op of the program makes, several times in each step."""
    forward = ops[~ops.name.matches(_NODES)].in_order(by_step=True)
    forward, number, signatures = with_inputs(forward)
    found = stretches(forward, number, signatures, limits.min_index_ops, starts_node=_starts_node(forward))
    step, steps = forward.step.tolist(), len(distinct(nodes.step))
    chosen: list[Stretch] = []
    for alike in _by_content(found, number):
        by_step = [list(runs) for _, runs in groupby(alike, key=lambda run: step[run.begin])]
        repeats = [runs for runs in by_step if len(runs) > 1 and runs[0].inputs]
        if len(repeats) >= steps and not any(_trained_between(runs, forward, nodes) for runs in repeats):
            chosen += [run for runs in repeats for run in runs]
    if chosen:
        inputs = frozenset(shape for run in chosen for shape in run.inputs)
        members = np.concatenate([np.arange(run.begin, run.end) for run in chosen])
        yield _hits("unchanged-inputs", forward[members], idle, Confidence.MEDIUM, inputs)


def _by_content(found: Iterable[Stretch], number: Rows) -> Iterable[list[Stretch]]:
    """The stretches that run the same ops on the same inputs, in order."""
    alike: dict[bytes, list[Stretch]] = {}
    for run in found:
        alike.setdefault(number[run.begin : run.end].tobytes(), []).append(run)
    return alike.values()


def _forward_twice(ops: Calls, nodes: Calls, limits: Limits) -> tuple[Calls, Calls]:
    """(forward ops without backward, equal to a row with it that is in a hook of backward; those of other rows)."""
    forward, size = without_views(ops[~ops.inside(nodes)]).in_order(), limits.min_pass_ops
    if len(forward) < 2 * size:
        return forward[:0], forward[:0]
    _, recorder = backward_nodes_of(Calls.build(ops.events), forward)
    trained = np.bincount(recorder[recorder >= 0], minlength=len(forward)) > 0
    kind, _ = grouped([forward.name.code, forward.text("input_dims").code])
    row = _equal_rows(kind, size)
    last = slice(size - 1, None)
    whole = (forward.thread[: len(row)] == forward.thread[last]) & (forward.step[: len(row)] == forward.step[last])
    trained_ops = np.convolve(trained, np.ones(size, np.int64), "valid")
    with_backward = whole & (2 * trained_ops >= size)
    without = whole & (trained_ops == 0)
    hooked = in_hooks(ops.events, forward.rows)[: len(row)]

    def before(second: Mask) -> Mask:
        """Which ops lie in rows without backward that are equal to these; more of them are a rollout, a generation."""
        enough = np.bincount(row[second], minlength=len(row)) >= np.bincount(row[without], minlength=len(row))
        return np.convolve(without & enough[row], np.ones(size, np.int64)) > 0

    before_hooks = before(with_backward & hooked)
    return forward[before_hooks], forward[before(with_backward & ~hooked) & ~before_hooks]


def _equal_rows(kind: Rows, size: int) -> Rows:
    """Number of the row of `size` kinds that begins at each place; equal rows have equal numbers."""
    row, length = kind, 1
    while length < size:
        step = min(length, size - length)
        row, _ = grouped([row[:-step], row[step:]])
        length += step
    return row


def _trained_between(runs: Sequence[Stretch], ops: Calls, nodes: Calls) -> bool:
    """Whether backward runs from the first to the last: micro-batches have other data."""
    begin_ns, end_ns = ops.start_ns[runs[0].begin], ops.end_ns[runs[-1].end - 1]
    return bool(((nodes.start_ns < end_ns) & (nodes.end_ns > begin_ns)).any())


def _starts_node(ops: Calls) -> Mask:
    """Which ops add a node to autograd's graph: the next op of the thread's step with a number has a higher one."""
    sequence = ints_at(ops.events.trace.lanes.cpu, "sequence", ops.rows)
    result = np.zeros(len(ops), bool)
    edges = step_edges(ops)
    for low, high in pairwise(edges):
        numbered = low + np.flatnonzero(sequence[low:high] >= 0)
        result[numbered[:-1]] = np.diff(sequence[numbered]) > 0
    return result


def _hits(
    cause: str, members: Calls, idle: IdleTime, confidence: Confidence, inputs: frozenset[Shape] = frozenset()
) -> Hits:
    """All of these ops are needless, with the nodes of backward that they have added."""
    calls = Calls.build(members.events)
    nodes, recorder = backward_nodes_of(calls, members)
    # Backward solves with the factors.
    outer = nodes[(recorder >= 0) & (cause != "same-matrix")].outer_op.distinct()
    needless = members.joined([members, outer[outer.step >= 0]]) if len(outer) else members
    spent, owner = needless.launched()
    steps = max(len(distinct(members.step)), 1)
    made = without_views(calls[calls.is_top_op])
    # What Python does in functions that make nothing else is needless, too; autograd's threads work for them.
    caller = np.full(len(made), members.thread[0])
    functions = calls.events.user_code.whole(made.start_ns, caller, made.inside(needless))
    largest = sorted(inputs, key=math.prod, reverse=True)[:3]
    return Hits(
        occurrences=needless,
        cause=cause,
        lost=LostTime.joined([LostTime.launched_by(idle, needless), LostTime.all_of(spent, owner)]),
        fix=(Drop(needless.rows), DropRegion(*functions)),
        message="{ops_a_step} ops a step compute "
        + _BEFORE[cause]
        + (" ({shapes})" if largest else "")
        + ": {by_ops:of these ops' time}. They take {cpu} of CPU time"
        + (", {gpu} of GPU time and {launches} launches a step" if len(spent) else " a step")
        + "{at_lines}",
        advice=_ADVICE[cause],
        confidence=confidence,
        info=cause == "forward-twice",
        evidence={
            "ops_a_step": round(len(members) / steps),
            "shapes": ", ".join(map(shape_text, largest)),
            "by_ops": members.name.sums(members.dur_ns),
            "cpu_ns": members.total_ns // steps,
            "gpu_ns": spent.total_ns // steps,
            "launches": round(len(spent) / steps),
            "lines": members.lines_with_common(),
        },
    )


_BEFORE = {
    "loop-invariant": "again what an earlier iteration has computed from the same tensors",
    "same-matrix": "again the factors of a matrix that an earlier op has factorised",
    "first-pass": "without a backward pass what later ops compute with one from the same tensors",
    "second-pass": "again what the first pass has computed from the same tensors",
    "forward-twice": "again what a pass with backward computes, from tensors of the same shapes",
    "forward-in-hook": "without gradients what a hook of the backward pass computes again with gradients",
    "unchanged-inputs": "again what an earlier op has computed from the same tensors",
    "constant-weights": "again what the step before has computed from the same weights",
    "repeated-preparation": "again what the step before has computed from the same stored tensors",
    "known-factor": "again the Cholesky factor of which a matrix was made",
    "stored-inputs": "again what the step before has computed from the same tensors",
    "rebuilt-constants": "again what every step computes from the same numbers",
}
