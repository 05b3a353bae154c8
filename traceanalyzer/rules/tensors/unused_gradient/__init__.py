"""Backward through parameters that no optimizer updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.records import dataclass
from traceanalyzer.replay.edits import Drop, DropWork, Edit
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, shapes_in_words
from traceanalyzer.rules.tensors.unused_gradient.discarded import (
    discarded_gradients,
    gradients_beyond_trained,
)
from traceanalyzer.rules.tensors.unused_gradient.optimizer_lists import (
    NODE,
    counted,
    for_unused_alone,
    passes_of,
    updates_are_recorded,
    used_by_optimizers,
)
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_LEAF = r"^torch::autograd::AccumulateGrad$"
_UNRECORDED = "the shapes that the optimizer works on are not recorded"
_NODE = "autograd::engine::evaluate_function"
_WRITES = r"^aten::(_foreach_zero|_foreach_copy|zero|fill|copy|add|sub|addcmul|addcdiv)_$"
_LIST_UPDATES = r"^aten::_foreach_(add|sub|addcmul|addcdiv|lerp|copy)_$"
_ZEROES = r"^aten::(_foreach_)?zero_$"
_CONVOLUTION, _LAYERS = "aten::convolution_backward", r"^aten::(convolution_backward|mm)$"
# A convolution's backward is asked for gradients of input, weight and bias: not of the input.
_NO_INPUT = "[False"
# Nodes that compute first the gradient of the input, then that of the weight.
_OF_LAYER = r": (Mm|Addmm)Backward\d*$"
_OF_WEIGHT = r"wgrad|_bwd_weight|backward_filter"


class _Reason(StrEnum):
    """Why gradients are needless, as the message says it after their number."""

    NOT_UPDATED = "belong to parameters that no optimizer updates"
    NOT_UPDATED_OR_CLEARED = "belong to parameters that no optimizer updates and that nothing clears"
    ENDS_BACKWARD = "belong to parameters that no optimizer updates, and backward goes on for them alone"
    CLEARED = "are cleared before any optimizer reads them"
    NEVER_CLEARED = (
        "are added to the gradients of the step before, because no optimizer's zero_grad() clears them"
    )


_CERTAIN = (_Reason.NOT_UPDATED_OR_CLEARED, _Reason.NEVER_CLEARED)


@dataclass(frozen=True, slots=True)
class Limits:
    min_unused_share: float = limit(
        0.75,
        "for the first case: reported only if at least this share of the gradients is unused, because a "
        "frozen backbone has most of the parameters; a few gradients that no optimizer reads may have "
        "another use",
    )
    min_steps: int = limit(
        2,
        "reported only if there are at least this many steps; with one step, an optimizer may still wait "
        "for more gradients",
    )


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits)
def unused_gradient(calls: Calls, work: Work, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Backward computes gradients that no optimizer uses.

    What it looks for: parameters that get a gradient in every step, though no optimizer uses this
    gradient. There are four cases:
    - most gradients are unused, as with a backbone that is not trained and not frozen;
    - a few parameters before the frozen layers, such as a position embedding, still require gradients, which
      no optimizer uses. The backward pass runs through all frozen layers only to reach them;
    - the program never clears unused gradients, and each step adds to them. An example is a perceptual loss,
      if its network is not frozen;
    - a backward pass also computes gradients of another network, and the program discards them. An example is
      an actor's loss, which computes gradients of the critics.

    The cost is the part of the backward pass that is needed only for unused gradients.
    Why it costs: the backward pass of a layer takes twice the time of its forward pass. The layer's
    activations stay in memory until its backward pass has run.
    Bad: AdamW(head.parameters()) on a backbone that requires gradients; a discriminator's loss on images that
    are not detached from their generator; an actor's loss through critics that require gradients. Good:
    backbone.requires_grad_(False); discriminator(images.detach()); critics that are frozen while the actor's
    loss is computed.
    With an execution trace, computed-unused tells this by the ids of tensors, and this rule is silent. Without
    shapes, only the first case is found, by the number of gradients and of tensors that the optimizer updates.
    How sure: confidence is high if shapes show that the gradients are never cleared, else medium.
    When it is wrong: an optimizer works on flattened or sharded copies of the parameters.
    Source: "Locally disabling gradient computation" in PyTorch's notes on autograd; measured on an H200.
    """
    leaves = calls[calls.is_op & calls.name.matches(_LEAF)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(leaves) == 0 or len(marks) == 0 or flow is not None:
        return
    if len(work.of_kind("communication")):
        raise Unavailable("other ranks take part: an optimizer may hold shards of the parameters")
    added = np.isin(leaves.rows, calls[calls.is_op & calls.name.one_of("aten::add_")].parent.distinct().rows)
    pass_of = passes_of(calls, marks, leaves)
    if (leaves.text("input_dims").code < 0).any():
        unused = unused_by_count(calls, work, leaves, marks, added, pass_of, limits)
        if not unused.any():
            raise Unavailable(_UNRECORDED)
        yield replace(_hits(calls, leaves, ~unused, marks, _Reason.NOT_UPDATED), confidence=Confidence.MEDIUM)
        return
    gone = discarded_gradients(calls, work, leaves, marks, added, pass_of, limits.min_steps)
    if len(distinct(leaves.step[gone])) >= limits.min_steps:
        yield _hits_of_gradients(calls, work, leaves, gone, marks, _Reason.CLEARED)
        return
    recorded, used = updates_are_recorded(calls, work, marks), np.zeros(len(leaves), bool)
    if recorded:
        # Shapes decide: unused gradients shaped like those of trained layers are not reported.
        used = used_by_optimizers(calls, leaves, marks)
        if _steady(leaves, used, marks, limits):
            reason = _Reason.NOT_UPDATED_OR_CLEARED if added[~used].all() else _Reason.NOT_UPDATED
            yield _hits(calls, leaves, used, marks, reason)
            return
    beyond = gradients_beyond_trained(calls, work, leaves, marks, added, pass_of, used, limits.min_steps)
    if beyond.any():
        yield _hits(calls, leaves, ~beyond, marks, _Reason.ENDS_BACKWARD)
        return
    uncleared = uncleared_gradients(calls, leaves, marks, added, pass_of, limits.min_steps)
    if uncleared.any() and not (recorded and used[uncleared].all()):
        yield _hits_of_gradients(calls, work, leaves, uncleared, marks, _Reason.NEVER_CLEARED)
    elif not recorded:
        raise Unavailable(_UNRECORDED)


def unused_by_count(
    calls: Calls, work: Work, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows, limits: Limits
) -> Mask:
    """Which gradients come last in each pass and are not used, by their number alone; none if it does not tell.

    Each pass adds them to those of the step before, and nothing clears them; or the optimizer updates only as many
    tensors as there are gradients before them. An optimizer's step must lie between two passes.
    """
    none, number = np.zeros(len(leaves), bool), np.unique(pass_of)
    order = np.argsort(leaves.start_ns, kind="stable")
    if len(number) <= limits.min_steps or (np.bincount(pass_of)[number] * len(number) != len(leaves)).any():
        return none
    table = order.reshape(len(number), -1)
    step_of = np.searchsorted(leaves.start_ns[table[:, 0]], marks.start_ns) - 1
    sizes, _ = counted(calls, work, marks)
    updated = np.bincount(step_of[step_of >= 0], sizes[step_of >= 0], len(number))
    fresh = (~added[table][1:]).sum(axis=1)
    writes = calls[calls.is_top_op & calls.name.matches(f"{_WRITES}|{_LIST_UPDATES}") & ~calls.inside(marks)]
    # Gradients of the first step may be from before the recording.
    zeroes = writes.name.matches(_ZEROES)
    used = fresh if not zeroes.any() and fresh[0] < table.shape[1] else updated[1:-1]
    # Who updates the others without an optimizer calls an op for each, or one for a list.
    others = writes[~zeroes]
    by_hand = len(others) >= len(leaves) // 2 or others.name.matches(_LIST_UPDATES).any()
    if by_hand or (used is not fresh and not sizes.all()):
        return none
    first = int(used[0])
    known = 0 < first <= (1 - limits.min_unused_share) * table.shape[1] and (used == first).all()
    # What is cleared comes first, too: from there on, each gradient is added to another one, or none is.
    suffix = added[table[1:, first:]]
    if not known or suffix.any() != suffix.all() or not np.isin(np.arange(len(number) - 1), step_of).all():
        return none
    none[table[:, first:].ravel()] = True
    return none


def _hits(calls: Calls, leaves: Calls, used: Mask, marks: Calls, reason: _Reason) -> Hits:
    needless = for_unused_alone(calls, leaves, used, marks)
    return _gradient_hits(leaves, used, needless, needless.launched()[0], (Drop(needless.rows),), reason)


def _hits_of_gradients(
    calls: Calls, work: Work, leaves: Calls, unused: Mask, marks: Calls, reason: _Reason
) -> Hits:
    exclusive = for_unused_alone(calls, leaves, ~unused, marks)
    spent, dropped, needless = work_of_gradients(calls, work, leaves, unused, exclusive)
    other_work = spent[~spent.launch.inside(dropped)]
    fix: tuple[Edit, ...] = (Drop(dropped.rows),)
    if len(other_work):
        fix = (*fix, DropWork(other_work.entries))
    return _gradient_hits(leaves, ~unused, needless, spent, fix, reason)


def _gradient_hits(
    leaves: Calls, used: Mask, needless: Calls, spent: Work, fix: tuple[Edit, ...], reason: _Reason
) -> Hits:
    steps = len(distinct(leaves.step))
    owner = spent.launch.index_of_enclosing(needless)
    named = {"of_shapes": _name_shapes(leaves[~used])} if reason is _Reason.ENDS_BACKWARD else {}
    return Hits(
        occurrences=needless,
        lost=LostTime.all_of(spent, owner),
        fix=fix,
        message=f"{{unused}} of {{gradients}} gradients a step{'{of_shapes}' * len(named)} {reason}"
        ": computing them takes {gpu_a_step} on the GPU, in {nodes}",
        advice="Call requires_grad_(False) on frozen parameters. If no trained layer comes before them, run their "
        "forward under torch.no_grad()"
        + (", or detach() the inputs of another part's loss." if reason is _Reason.CLEARED else "."),
        confidence=Confidence.HIGH if reason in _CERTAIN else Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(spent),
            **named,
            "unused": round((~used).sum() / steps),
            "gradients": round(len(leaves) / steps),
            "nodes": {
                name.removeprefix(f"{NODE}: "): ns
                for name, ns in needless[owner].name.sums(spent.dur_ns).items()
            },
            "gpu_ns": spent.total_ns,
        },
    )


def _name_shapes(leaves: Calls) -> str:
    """Part of a sentence that names their shapes; empty where there are many."""
    shapes = [shapes_in_words(dims) for dims in leaves.text("input_dims").sums(leaves.dur_ns)]
    return f" (of shapes {', '.join(shapes)})" if len(shapes) < 4 else ""


def _steady(leaves: Calls, used: Mask, marks: Calls, limits: Limits) -> bool:
    """Whether every step with gradients has an optimizer's step, some gradients for it and many more for none."""
    steps, step_of = np.unique(leaves.step, return_inverse=True)
    share = np.bincount(step_of, ~used) / np.bincount(step_of)
    stepped = np.isin(steps, marks.step).all() and (steps >= 0).all()
    enough = ((share >= limits.min_unused_share) & (share < 1)).all()
    return bool(stepped and enough and len(steps) >= limits.min_steps)


def uncleared_gradients(
    calls: Calls, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows, least: int
) -> Mask:
    """Which gradients each pass adds to what was there, though an optimizer's step came since the last pass.

    None where passes are no more than the least, or unlike each other, or no optimizer's step lies between two, where a
    gradient is now added and now made anew, where all are added (then they may be set to zero), or where the program
    itself writes to a tensor of such a shape.
    """
    none = np.zeros(len(leaves), bool)
    order = np.argsort(leaves.start_ns, kind="stable")
    number, each = np.unique(pass_of[order], return_counts=True)
    if len(number) <= least or len(set(each.tolist())) > 1:
        return none
    table = order.reshape(len(number), -1)
    shapes = leaves.text("input_dims").code[table]
    begins = leaves.start_ns[table[:, 0]]
    steps = np.searchsorted(np.sort(marks.start_ns), begins)
    # Gradients of the first step may be from before the recording.
    was = added[table][1:]
    if (np.diff(steps) == 0).any() or (shapes != shapes[0]).any() or (was != was[0]).any() or was[0].all():
        return none
    uncleared = none.copy()
    uncleared[table[:, was[0]].ravel()] = True
    return none if uncleared.any() and _writes_gradients(calls, leaves[uncleared], marks) else uncleared


def _writes_gradients(calls: Calls, leaves: Calls, marks: Calls) -> bool:
    """Whether the program itself writes to tensors of such shapes, or to lists of shapes that were not recorded."""
    writes = calls[calls.is_top_op & calls.name.matches(_WRITES) & ~calls.inside(marks)]
    _, signatures = signatures_of(calls.events.trace, writes.rows)
    shapes = _shapes(leaves)
    return any(("foreach" in op.name and not any(op.dims)) or shapes & set(tensors(op)) for op in signatures)


def work_of_gradients(
    calls: Calls, work: Work, leaves: Calls, needed: Mask, exclusive: Calls
) -> tuple[Work, Calls, Calls]:
    """(work that only makes the gradients of those, what of the CPU lane goes with it, all that launches it).

    The kernel's name shows a convolution's gradient of its weight, the shape that of a product. If the input of a
    network needs no gradient, all that backward does from its last layer to its first is in vain.
    """
    order = np.argsort(leaves.start_ns, kind="stable")
    nodes = calls[calls.name.matches(f"^{_NODE}")]
    nodes = nodes[~nodes.parent.inside(nodes)]
    nodes = nodes[np.argsort(nodes.start_ns, kind="stable")]
    following = np.append(order, -1)[np.searchsorted(leaves.end_ns[order], nodes.end_ns)]
    nodes = nodes[pick(needed, following, False) & (pick(leaves.step, following) == nodes.step)]
    shapes = _shapes(leaves[needed])
    inner = calls[calls.is_op & calls.inside(nodes)]
    number, signatures = signatures_of(calls.events.trace, inner.rows)
    makes = np.array([_makes_gradient(op, shapes) for op in signatures], bool)[number]
    owner, layer = inner.index_of_enclosing(nodes), makes & inner.name.matches(_LAYERS)
    weight = {int(owner[place]): signatures[number[place]] for place in np.flatnonzero(layer).tolist()}
    products = makes & ~inner.name.one_of(_CONVOLUTION)
    products &= ~_input_gradients(inner, nodes, owner, products)
    biases = inner.name.one_of("aten::sum") & np.isin(owner, list(weight))
    gone = (
        calls.joined((exclusive, nodes[_needless_nodes(nodes, weight)], inner[products | biases]))
        .distinct()
        .outermost()
    )
    convolutions = inner[layer & ~products]
    kernels = work.launch.inside(convolutions) & work.name.matches(_OF_WEIGHT)
    return (
        work[kernels | work.launch.inside(gone)],
        gone,
        calls.joined((gone, convolutions)).distinct().outermost(),
    )


def _input_gradients(inner: Calls, nodes: Calls, owner: Rows, products: Mask) -> Mask:
    """Products of a layer before its last one: the gradient of its input may have the shape of a weight, too."""
    of_layers = products & inner.name.one_of("aten::mm") & nodes.name.matches(_OF_LAYER)[owner]
    last = np.zeros(len(nodes), np.int64)
    np.maximum.at(last, owner[of_layers], inner.start_ns[of_layers])
    return of_layers & (inner.start_ns < last[owner])


def _needless_nodes(nodes: Calls, weight: dict[int, Signature]) -> Mask:
    """Nodes from a network's last layer to its first, whose input needs no gradient.

    The weights of first layers tell runs and networks apart, and so does how often each weight is used.
    """
    in_vain, layers = np.zeros(len(nodes), bool), sorted(weight)
    lasts = [place for place, position in enumerate(layers) if _needs_no_input(weight[position])]
    shapes = {
        position: (int(nodes.step[position]), str(entry.dims[2:3])) for position, entry in weight.items()
    }
    begins, runs = {shapes[layers[place]] for place in lasts}, Counter(shapes.values())
    for place in lasts:
        last = first = layers[place]
        for earlier in reversed(layers[:place]):
            earlier_shapes = shapes[earlier]
            if (
                nodes.step[earlier] != nodes.step[last]
                or earlier_shapes in begins
                or runs[earlier_shapes] % runs[shapes[last]]
            ):
                break
            first = earlier
        in_vain[first : last + 1] = True
    return in_vain


def _needs_no_input(layer: Signature) -> bool:
    """Whether it is a convolution whose input gets no gradient."""
    return layer.name == _CONVOLUTION and bool(layer.scalars) and layer.scalars[-1].startswith(_NO_INPUT)


def _makes_gradient(op: Signature, shapes: set[Shape]) -> bool:
    """Whether it makes or converts a gradient of such a shape."""
    inputs = tensors(op)
    if op.name == _CONVOLUTION:
        return len(inputs) > 2 and inputs[2] in shapes
    if op.name == "aten::mm" and len(inputs) > 1:
        result = inputs[0][0], inputs[1][-1]
        return result in shapes or result[::-1] in shapes
    return op.name == "ToCopyBackward0" and bool(inputs) and inputs[0] in shapes


def _shapes(leaves: Calls) -> set[Shape]:
    _, signatures = signatures_of(leaves.events.trace, leaves.rows)
    return {shape for op in signatures for shape in tensors(op)}
