"""The same sequence of small ops runs many times, and one call could do all."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, rank_within
from traceanalyzer.model.short_names import listed_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import Resize
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.rule.lost_time import span_of
from traceanalyzer.tensors.chains import MIN_CHAIN
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.timeline.backward_nodes import outer_nodes_of
from traceanalyzer.timeline.names import OPTIMIZER_MARK

from .evaluations import evaluation_hits
from .repeats import (
    BACKWARD_OF_LAYERS,
    ENGINE,
    MOST,
    Limits,
    Repeats,
    by_ops,
    chain_length_of,
    loops_in,
    parts_beside_chain,
    repeats_of,
)

# A recurrent cell needs the state of the call before, and DistributedDataParallel calls its own op for each parameter.
_EXCLUDED = regex(r"lstm|gru|rnn|Rnn|_cell|Cell|^torch\.distributed")
_HEAVY = regex(r"linear|matmul|mm\b|mm_|conv|attention|einsum|(layer|batch|group|instance|rms)_norm")
_PICKS = regex(r"::(where|nonzero|unbind|item)$")
_INDEXES = regex(r"::(select|index|index_select|gather|take)$| (Select|Index|Gather)Backward\d*$")
# Images of other sizes are no batch.
_SIZED = regex(r"::(conv|cudnn_conv)")
_ON_LISTS = regex(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")
_SLICES = regex(r"^aten::(slice|narrow|select)$")
# Ops that decide about the next repeat, as in decoding.
_DECODES = regex(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
# Letters of the ops that a title names.
_LISTED = 40


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
    repeated = by_ops(repeats_of(outer[~outer.inside(marks)], work, limits))
    groups = [(loops, chain_length_of(loops, flow)) for loops in repeated]
    inner = by_ops(
        part
        for loops, chain in groups
        if confidence_of(loops, chain, limits) is None
        for part in _loops_within(loops, work, limits, needs_order=(chain or 0) >= MIN_CHAIN)
    )
    parts = by_ops(
        part
        for loops, chain in groups
        if flow is not None and (chain or 0) >= MIN_CHAIN
        for part in parts_beside_chain(loops, flow, limits)
    )
    groups += [(loops, chain_length_of(loops, flow)) for loops in inner] + [(loops, 0) for loops in parts]
    around = [_around(outer, loops) for loops, _ in groups]
    nodes = [_later_nodes(calls, inside, loops) for inside, (loops, _) in zip(around, groups, strict=True)]
    sure = [confidence_of(loops, chain, limits) for loops, chain in groups]
    # The backward of a loop counts with that loop, and so does what calls backward in it.
    counted = [np.empty(0, np.int64), *(later.ops.rows for later in nodes)]
    for (loops, _), inside, confidence in zip(groups, around, sure, strict=True):
        if confidence and loops[0].calls_backward:
            counted.append(inside.ops.rows[~inside.ops.name.matches(ENGINE)])
    elsewhere = np.concatenate(counted)
    for (loops, chain), inside, later, confidence in zip(groups, around, nodes, sure, strict=True):
        if confidence and np.isin(loops[0].ops.rows, elsewhere).mean() < MOST:
            yield _hits(loops, inside, later, idle, gpus, limits, confidence, known=chain is not None)
    yield from evaluation_hits(calls, outer, work, idle)


def _loops_within(loops: Sequence[Repeats], work: Work, limits: Limits, *, needs_order: bool) -> Iterator[Repeats]:
    """Loops inside the repeats, as over experts in each layer of a model."""
    for loop in loops:
        for part in loops_in(loop.ops, np.arange(len(loop.ops)) // loop.period, work, limits):
            # Of changing shapes, they may be layers, unless they pick their rows.
            if _guess(part, limits) if part.shapes_change else needs_order:
                yield part


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
    """Confidence that the loops could be one call; None if they need their order, as launch-bound then says."""
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
    if not picks and any(map(BACKWARD_OF_LAYERS.search, names)):
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
    """One repeat of each loop, and of its later backward, does the work of all; if `known`, none needs another."""
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
    lines = function.or_else(ops[first].line).or_else(ops[first].annotation).sums(loop_ends_ns[last] - starts_ns[first])
    others = len(set(names)) - 1
    sent = bool(pieces.kind.one_of("copy_h2d").any()) and not any(map(_HEAVY.search, names))
    return Hits(
        occurrences=ops,
        named_by=next(iter(lines), None) or names[0] + f" + {others} op{'s' * (others > 1)}" * (others > 0),
        lost=lost.owned_by(np.append(np.arange(len(ops)), nodes.repeat)),
        fix=(
            _grown_work(around, nodes, group, gpus, limits.kernel_floor_ns),
            Batch(spans.start_ns, ends_ns, group, limits.batched_backward_times if largest.calls_backward else 1.0),
        ),
        confidence=confidence,
        message=("a sequence of {members} ops, {ops:of their time}," if others else "{ops}")
        + " runs {times_a_step} and launches {launches} kernels each time, copies included ({piece} on average)"
        "{at_lines}",
        advice=_advice(largest, sent=sent, known=known),
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
    """The work of a repeat, or of a node, that does the work of all of its group."""
    # A kernel of few blocks leaves room for those of other repeats. The start of a kernel, the floor, is paid once.
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


def _advice(loop: Repeats, *, sent: bool, known: bool) -> str:
    """What to do: `sent` if it copies to the device, `known` if its tensors show that no repeat needs another."""
    if loop.part or loop.calls_backward:
        return _AFTER_LOOP if loop.part else _ROWS
    if sent:
        return _SEND_ONCE
    advice = next(text for ops, of, text in _ADVICE if of(map(ops.search, loop.names)))
    if known or not advice.startswith(_STACK):
        return advice
    return f"If no repeat needs the one before, {advice[0].lower()}{advice[1:]}"


_SEND_ONCE = "Collect on the host what each repetition copies, copy it once as one tensor, and compute on all of it."
_AFTER_LOOP = (
    "Some layers of this loop do not feed its next iteration: collect their inputs in a list, stack it after the "
    "loop, and call these layers (and the loss) once on all time steps."
)
_STACK = "Stack the inputs"
_ROWS = (
    "Compute all rows in one backward pass: torch.func.vmap of torch.func.vjp, or the inputs repeated once per row. "
    "autograd.grad(..., is_grads_batched=True) changes least, but still loops where an op has no batching rule. "
    "Several losses: add them, and call backward once."
)
# Ops of the repeat, whether any or all of them are such, and the advice.
_ADVICE = (
    (
        _HEAVY,
        any,
        f"{_STACK}, and call the layer once. If each repeat has its own weights, stack these, too (bmm, grouped GEMM, "
        "torch.func.vmap).",
    ),
    (regex("^aten::zero_$"), all, "Set gradients to None: zero_grad(set_to_none=True) launches nothing."),
    (
        regex(r"^aten::(linalg_vector_)?norm$"),
        any,
        "Compute all norms at once by torch._foreach_norm; read one number.",
    ),
    (regex("^aten::copy_$"), all, "If DistributedDataParallel copies its buffers, use broadcast_buffers=False."),
    (regex("_$"), all, "Update all tensors with one call: torch._foreach_ ops take the whole list."),
    (regex(""), any, f"{_STACK} and use one op for all of them."),
)
