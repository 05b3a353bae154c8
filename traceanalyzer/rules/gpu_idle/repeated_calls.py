"""The same sequence of small ops runs many times, and one call could do all."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, median, ranges, rank_within
from traceanalyzer.model.short_names import listed_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import DropSpans, Resize
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.rule.lost_time import span_of
from traceanalyzer.tensors.flow import MIN_CHAIN, Flow
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, signatures_of, tensors
from traceanalyzer.tensors.top_ops import with_inputs, without_views
from traceanalyzer.timeline.backward_nodes import outer_nodes_of
from traceanalyzer.timeline.loops import LAYER, exact_loops
from traceanalyzer.timeline.names import OPTIMIZER_MARK

# A recurrent cell needs the state of the call before, and DistributedDataParallel calls its own op for each parameter.
_EXCLUDED = regex(r"lstm|gru|rnn|Rnn|_cell|Cell|^torch\.distributed")
# Alone, it may be the backward of a model.
_BACKWARD_OF_LAYERS = regex(r"([Mm]m|Convolution|Norm|Attention)\w*Backward")
_HEAVY = regex(r"linear|matmul|mm\b|mm_|conv|attention|einsum|(layer|batch|group|instance|rms)_norm")
_PICKS = regex(r"::(where|nonzero|unbind|item)$")
_INDEXES = regex(r"::(select|index|index_select|gather|take)$| (Select|Index|Gather)Backward\d*$")
# Images of other sizes are no batch.
_SIZED = regex(r"::(conv|cudnn_conv)")
_GATHERS = r"::(unbind|split|split_with_sizes|chunk|stack|cat|concat|vstack|hstack)$"
_ON_LISTS = regex(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")
_SLICES = regex(r"^aten::(slice|narrow|select)$")
# Ops that decide about the next repeat, as in decoding.
_DECODES = regex(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
# Letters of the ops that a title names.
_LISTED = 40
# Ops before or after the loop.
_NEAR = 2
# Loops of a step and thread, such as layers, an op for each parameter, and a loop of the loss.
_ROUNDS = 3
# Share of the repeats whose shapes differ from those of the repeat before, and of a loop's ops that are nodes of
# another loop; chosen.
_MOST = 0.5
_ENGINE, _SUMS_UP = r"^autograd::engine|^torch::autograd", "torch::autograd::AccumulateGrad"
# Ops of other threads between two repeats, over the median: more of them are code between two loops; chosen.
_MORE_BETWEEN = 1.5
# Layers of a network, and evaluations; more of them are a loop over time steps or samples. Chosen.
_MIN_LAYERS, _MAX_EVALUATIONS = 3, 8


class Limits:
    min_repeats: int = 16
    """a sequence repeats at least this many times in a step; fewer repeats may be the layers of a model"""
    few_repeats: int = 4
    """this many repeats are enough if shapes change from repeat to repeat, as with experts of a model"""
    max_kernel_ns: int = 10_000
    """the kernels take at most this time on average; launching longer kernels less often gains little; H200"""
    kernel_floor_ns: int = 2_000
    """for the saving: a nearly empty kernel takes this time; measured: 1.1 to 2 µs, H200"""
    max_loop_launches: int = 24
    """a repeat with a matrix product launches at most this many kernels; measured per repeat: a loop over
    samples launches 6, an expert 13, a relation of a graph 17, a small U-Net 36; H200"""


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits, causes=("evaluated-anew",))
def repeated_calls(
    calls: Calls, work: Work, idle: IdleTime, gpus: Gpus, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    """The same sequence of small ops runs many times a step.

    What it looks for: a sequence of small ops that repeats in a row within a step, usually at least 16 times.
    Each repeat launches tiny kernels. The sequence is often a loop over samples, requests, parameters or a
    list. The cost includes the loop's backward pass.

    The cause `evaluated-anew`: the same network is evaluated several times, with autograd.grad after each,
    before one backward pass. If the inputs are the same, one evaluation is enough. An example is a
    physics-informed network with several residuals.
    Why it costs: every op costs microseconds of CPU time, and every kernel has a start-up time. One call on
    all elements pays both costs only once.
    Bad: `[x[i] * torch.tensor(w[i], device="cuda") for i in range(64)]`. Good: one tensor of all weights, `x
    * torch.tensor(w, device="cuda")[:, None]`.
    How sure: the repetition is measured. An execution trace shows whether a repeat needs the result of the one
    before: then launch-bound names the loop, with another remedy. Without one, confidence is low for most repeats
    with a matrix product: these may be the layers of a model.
    When it is wrong: without an execution trace, each repeat may need the previous result.
    Source: PyTorch's performance tuning guide; measured on an H200 with torch 2.11.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    groups = _by_ops(repeats_of(outer[~outer.inside(marks)], work, limits))
    chains = [chain_length(loops, flow) for loops in groups]
    # Repeats that need each other may hold loops whose repeats do not, and are no layers of other shapes.
    inner = _by_ops(
        part
        for loops, length in zip(groups, chains, strict=True)
        for loop in (loops if (length or 0) >= MIN_CHAIN else ())
        for part in _loops_in(loop.ops, np.arange(len(loop.ops)) // loop.period, work, limits)
        if not part.shapes_change
    )
    groups, chains = groups + inner, chains + [chain_length(loops, flow) for loops in inner]
    around = [_around(outer, loops) for loops in groups]
    nodes = [_later_nodes(calls, each, loops) for each, loops in zip(around, groups, strict=True)]
    sure = [confidence_of(loops, chain, limits) for loops, chain in zip(groups, chains, strict=True)]
    # The backward of a loop counts with that loop, and so does what calls backward in it.
    counted = [np.empty(0, np.int64), *(each.ops.rows for each in nodes)]
    for loops, inside, confidence in zip(groups, around, sure, strict=True):
        if confidence and loops[0].calls_backward:
            counted.append(inside.ops.rows[~inside.ops.name.matches(_ENGINE)])
    elsewhere = np.concatenate(counted)
    for loops, inside, later, chain, confidence in zip(groups, around, nodes, chains, sure, strict=True):
        if confidence and np.isin(loops[0].ops.rows, elsewhere).mean() < _MOST:
            yield _hits(loops, inside, later, idle, gpus, limits, confidence, known=chain is not None)
    yield from evaluation_hits(calls, outer, work, idle)


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """One loop within one step: its ops in order, the ops of one repeat, and the work that it launched.

    Attributes:
        end_ns: of the last op, or of an op after it that stacks the results.
        collected: unbind or split comes before the loop, or stack or cat after it.
        between: int64 (repeats - 1,), ops of other threads between the repeats: what calls backward in a loop.
    """

    ops: Calls
    period: int
    pieces: Work
    end_ns: int
    collected: bool
    between: Rows

    @property
    def place(self) -> Rows:
        """Number of the place of each repeat: more runs between two places, as between stages of a solver."""
        return np.append(0, np.cumsum(self.between > _MORE_BETWEEN * median(self.between)))

    @property
    def calls_backward(self) -> bool:
        return bool(median(self.between) > 0 and self.ops.name.matches(_ENGINE).all())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.ops[np.arange(self.period)].name.values()))

    @property
    def first_ops(self) -> Calls:
        return self.ops[np.arange(0, len(self.ops), self.period)]

    @property
    def starts_ns(self) -> Rows:
        return self.first_ops.start_ns

    @property
    def ends_ns(self) -> Rows:
        """End of each repeat: start of the next one of its place."""
        ends_ns = self.ops.end_ns[self.period - 1 :: self.period]
        return np.append(
            np.where(np.diff(self.place) > 0, ends_ns[:-1], self.first_ops.start_ns[1:]), self.end_ns
        )

    def changing(self, pattern: re.Pattern[str]) -> bool:
        """True if an op of such a name gets other inputs in some repeat, or if inputs are not recorded."""
        number, signatures = signatures_of(self.ops.events.trace, self.ops.rows)
        same = (np.diff(number.reshape(-1, self.period), axis=0) == 0).all(axis=0)
        known = any(op.dims for op in signatures)
        chosen = [pattern.search(name) is not None for name in self.names]
        return bool((np.array(chosen) & ~(same & known)).any())

    @property
    def shapes_change(self) -> bool:
        """True if in most repeats some op gets other shapes than in the repeat before."""
        dims = self.ops.text("input_dims").code.reshape(-1, self.period)
        return bool((np.diff(dims, axis=0) != 0).any(axis=1).mean() > _MOST)


def repeats_of(outer: Calls, work: Work, limits: Limits) -> Iterator[Repeats]:
    """The loops that cover most ops of each step and thread, and launch short work in each repeat."""
    outer = outer.in_order(by_step=True)
    # Ops within a row of equal ops that launch nothing, such as views of parameters, hide a loop.
    same = np.diff(outer.name.code) == 0
    outer = outer[
        ~(np.append(False, same) & np.append(same, False)) | np.isin(outer.rows, work.outer_op.rows)
    ]
    group, _ = grouped([outer.step, outer.thread])
    yield from _loops_in(outer, group, work, limits)


def _by_ops(loops: Iterable[Repeats]) -> list[list[Repeats]]:
    """The loops, those of the same ops together."""
    by_ops: dict[tuple[str, ...], list[Repeats]] = {}
    for loop in loops:
        # Where code calls backward in a loop, nodes of views may be missing in the first stage of a solver.
        kinds = filter(_BACKWARD_OF_LAYERS.search, loop.names) if loop.calls_backward else loop.names
        by_ops.setdefault(tuple(sorted(kinds)), []).append(loop)
    return list(by_ops.values())


def _loops_in(outer: Calls, group: Rows, work: Work, limits: Limits) -> Iterator[Repeats]:
    """As `repeats_of`, in each group of the ops."""
    order = np.argsort(work.outer_op.rows, kind="stable")
    launched = work.outer_op.rows[order]
    first, last = (np.searchsorted(launched, outer.rows, side=side) for side in ("left", "right"))
    gathers, kind = outer.name.matches(_GATHERS), outer.name.code.astype(np.int64)
    for _ in range(_ROUNDS):
        for members in [loop.members for loop in exact_loops(kind, group, limits.few_repeats)]:
            # Codes that equal no other: the next round leaves these ops out.
            kind[members.ravel()] = int(kind.max()) + 1 + members.ravel()
            begin, end = int(members[0, 0]), int(members[-1, -1]) + 1
            pieces = work[order[ranges(first[begin:end], (last - first)[begin:end])[1]]]
            if len(pieces) >= len(members) and pieces.dur_ns.mean() <= limits.max_kernel_ns:
                near = gathers[max(begin - _NEAR, 0) : end + _NEAR]
                stacked = end < len(outer) and group[end] == group[begin] and outer.name[end] == "aten::stack"
                end_ns = int(outer.end_ns[end if stacked else end - 1])
                others = outer[(outer.step == outer.step[begin]) & (outer.thread != outer.thread[begin])]
                between = np.diff(np.searchsorted(np.sort(others.start_ns), outer.start_ns[members[:, 0]]))
                ops = outer[members.ravel()]
                yield Repeats(ops, members.shape[1], pieces, end_ns, bool(near.any()), between)


def chain_length(loops: Sequence[Repeats], flow: Flow | None) -> int | None:
    """`Flow.chain_length` of the loops; None without an execution trace."""
    edges = (
        np.append(loop.starts_ns[loop.place == place], loop.ends_ns[loop.place == place][-1])
        for loop in loops
        for place in distinct(loop.place).tolist()
    )
    return None if flow is None else flow.chain_length(edges)


class _OfRepeats(NamedTuple):
    """Ops, and the repeat that each belongs to, in all loops of the same ops."""

    ops: Calls
    repeat: Rows


def _around(outer: Calls, loops: Sequence[Repeats]) -> _OfRepeats:
    """The ops of the loops, with those of the threads that call backward in a loop."""
    ops = loops[0].ops.joined([loop.ops for loop in loops])
    if not loops[0].calls_backward:
        return _OfRepeats(ops, np.arange(len(ops)) // loops[0].period)
    repeat = span_of(outer, *_spans(loops))
    return _OfRepeats(outer[repeat >= 0], repeat[repeat >= 0])


def _later_nodes(calls: Calls, around: _OfRepeats, loops: Sequence[Repeats]) -> _OfRepeats:
    """Nodes of backward that run after the loops whose ops have recorded them."""
    nodes, recorder = outer_nodes_of(calls, around.ops)
    later = span_of(nodes, *_spans(loops)) < 0
    return _OfRepeats(nodes[later], around.repeat[recorder[later]])


def _spans(loops: Sequence[Repeats]) -> tuple[Rows, Rows]:
    """(starts, ends) of the repeats."""
    starts, ends = zip(*((loop.starts_ns, loop.ends_ns) for loop in loops), strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def confidence_of(loops: Sequence[Repeats], chain: int | None, limits: Limits) -> Confidence | None:
    """Confidence that the loops could be one call; None if they need their order, as launch-bound then says.

    Args:
        chain: as of `chain_length`.
    """
    if any(map(_EXCLUDED.search, loops[0].names)) or (chain or 0) >= MIN_CHAIN:
        return None
    # In another step, some repeats of the same loop may take another branch.
    guess = next(filter(None, (_guess(loop, limits) for loop in loops)), None)
    return guess if chain is None else Confidence.MEDIUM


def _guess(loop: Repeats, limits: Limits) -> Confidence | None:
    """The confidence without an execution trace: fewer repeats may be layers, more pick rows or work on lists."""
    names, count = loop.names, len(loop.first_ops)
    heavy = any(map(_HEAVY.search, names))
    # Layers of a graph network read the same rows in each repeat.
    indexes = loop.changing(_INDEXES) if heavy else any(map(_INDEXES.search, names))
    picks = loop.collected or indexes or any(map(_PICKS.search, names))
    if not picks and any(map(_BACKWARD_OF_LAYERS.search, names)):
        return None
    few_launches = len(loop.pieces) <= limits.max_loop_launches * count
    if count < limits.min_repeats:
        sized = any(map(_SIZED.search, names))
        return Confidence.MEDIUM if loop.shapes_change and picks and few_launches and not sized else None
    if heavy:
        samples = _SLICES.search(names[0]) and loop.changing(_SLICES) and not any(map(_DECODES.search, names))
        return Confidence.LOW if samples or (few_launches and picks) else None
    sent = loop.pieces.kind.one_of("copy_h2d").any()
    if loop.collected or sent or loop.shapes_change or all(map(_ON_LISTS.search, names)):
        return Confidence.MEDIUM
    # Other repeats of pointwise ops are left to launch-bound: a CUDA graph helps them.
    return Confidence.LOW if picks else None


def _hits(
    loops: Sequence[Repeats],
    around: _OfRepeats,
    nodes: _OfRepeats,
    idle: IdleTime,
    gpus: Gpus,
    limits: Limits,
    confidence: Confidence,
    *,
    known: bool,
) -> Hits:
    """Hits for loops of the same ops: one repeat of each, and of its later backward, does the work of all.

    Args:
        known: tensors show that no repeat needs the one before.
    """
    largest = max(loops, key=lambda loop: len(loop.pieces))
    ops = largest.ops.joined([loop.first_ops for loop in loops])
    repeats = [len(loop.first_ops) for loop in loops]
    loop_of = np.repeat(np.arange(len(loops)), repeats)
    loop_of, _ = grouped([loop_of, np.concatenate([loop.place for loop in loops])])
    (starts_ns, loop_ends_ns), spans = _spans(loops), ops.joined([ops, nodes.ops])
    ends_ns = np.append(loop_ends_ns, nodes.ops.end_ns)
    # Nodes of the same name do the same for other repeats.
    kind = nodes.ops.name.code
    place = rank_within(grouped([nodes.repeat, kind])[0])
    group = np.append(loop_of, len(ops) + grouped([loop_of[nodes.repeat], kind, place])[0])
    lost = LostTime.launched_within(idle, spans.start_ns, ends_ns)
    names, pieces = largest.names, largest.pieces
    callers = around.ops[(around.ops.thread != ops.thread[0]) | (not largest.calls_backward)]
    first = np.flatnonzero(np.diff(loop_of, prepend=-1))
    last = np.append(first[1:], len(ops)) - 1
    threads = np.full(len(first), callers.thread[0])
    # The first repeat may begin before the function that runs the loop, and the last may end after it.
    inner = starts_ns[np.minimum(first + 1, last)], starts_ns[last]
    function = ops.events.user_code.around_spans(*inner, threads)
    lines = (
        function.or_else(ops[first].line)
        .or_else(ops[first].annotation)
        .sums(loop_ends_ns[last] - starts_ns[first])
    )
    others = len(set(names)) - 1
    sent = pieces.kind.one_of("copy_h2d").any() and not any(map(_HEAVY.search, names))
    advice = _SEND_ONCE if sent else next(text for ops, of, text in _ADVICE if of(map(ops.search, names)))
    if largest.calls_backward:
        advice = _ROWS
    elif not known and advice.startswith(_STACK):
        advice = f"If no repeat needs the one before, {advice[0].lower()}{advice[1:]}"
    return Hits(
        occurrences=ops,
        named_by=next(iter(lines), None) or names[0] + f" + {others} op{'s' * (others > 1)}" * (others > 0),
        lost=lost.owned_by(np.append(np.arange(len(ops)), nodes.repeat)),
        fix=(
            _grown_work(around, nodes, group, gpus, limits.kernel_floor_ns),
            Batch(spans.start_ns, ends_ns, group),
        ),
        confidence=confidence,
        message=("a sequence of {members} ops, {ops:of their time}," if others else "{ops}")
        + " runs {times_a_step} and launches {launches} kernels each time, copies included ({piece} on average)"
        "{at_lines}",
        advice=advice,
        evidence={
            "ops": around.ops.name.sums(around.ops.dur_ns),
            "members": len(names),
            "loop": "backward" if largest.calls_backward else listed_ops(names, _LISTED),
            "repeats": len(largest.first_ops),
            "launches": round(len(pieces) / len(largest.first_ops), 1),
            "piece_ns": round(float(pieces.dur_ns.mean())),
            "lines": lines,
        },
    )


def _grown_work(around: _OfRepeats, nodes: _OfRepeats, group: Rows, gpus: Gpus, floor_ns: int) -> Resize:
    """The work of a repeat, or of a node, that does the work of all of its group.

    A kernel of few blocks leaves most of the device empty. The same kernels of other repeats then fit next to it. The
    start of a kernel, the floor, is paid once.
    """
    pieces, owner = around.ops.joined([around.ops, nodes.ops]).launched()
    repeats = len(group) - len(nodes.ops)
    span = np.append(around.repeat, repeats + np.arange(len(nodes.ops)))[owner]
    sms = np.array([gpus[device].sms or 0 for device in pieces.device.tolist()])
    share = np.where((sms > 0) & (pieces.blocks > 0), np.minimum(pieces.blocks / np.maximum(sms, 1), 1), 1.0)
    beyond_start = np.maximum(pieces.dur_ns - floor_ns, 0)
    total = np.bincount(group[span], beyond_start * share, len(group))[group]
    alone = np.maximum(np.bincount(span, beyond_start, len(group)), 1)
    factor = np.maximum(total / alone, 1)[span]
    return Resize(pieces.entries, pieces.dur_ns + beyond_start * (factor - 1))


_SEND_ONCE = (
    "Collect on the host what each repetition copies, copy it once as one tensor, and compute on all of it."
)
_STACK = "Stack the inputs"
_ROWS = (
    "Compute all rows in one backward pass: autograd.grad(..., is_grads_batched=True), torch.func.vmap of vjp, or the "
    "inputs repeated once per row. Several losses: add them, and call backward once."
)
# Ops of the repeat, whether any or all of them are such, and the advice.
_ADVICE = (
    (
        _HEAVY,
        any,
        f"{_STACK}, and weights that differ (bmm, grouped GEMMs, torch.func.vmap), and call the layer once.",
    ),
    (regex("^aten::zero_$"), all, "Set gradients to None: zero_grad(set_to_none=True) launches nothing."),
    (
        regex(r"^aten::(linalg_vector_)?norm$"),
        any,
        "Compute all norms at once by torch._foreach_norm; read one number.",
    ),
    (
        regex("^aten::copy_$"),
        all,
        "If DistributedDataParallel copies its buffers, use broadcast_buffers=False.",
    ),
    (regex("_$"), all, "Update all tensors with one call: torch._foreach_ ops take the whole list."),
    (regex(""), any, f"{_STACK} and use one op for all of them."),
)


def evaluation_hits(calls: Calls, outer: Calls, work: Work, idle: IdleTime) -> Iterator[Hits]:
    """Equal runs of forward ops with layers, each differentiated before the next and again with the loss.

    No gradient of a parameter is added up between them, as between micro-batches. No op between them takes a tensor of
    the input's or of a weight's shape, as a solver or an inner training loop does.
    """
    engine, sums_ns = outer.name.matches(_ENGINE), np.sort(calls.start_ns[calls.name.one_of(_SUMS_UP)])
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
    return not tensors(network[0]) or any(
        shape in shapes for op in between for shape in tensors(op) if len(shape) > 1
    )
