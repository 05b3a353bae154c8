"""Gradients that every pass adds to the last step's, beside others that are made anew after each optimizer's step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors

_NODE = "autograd::engine::evaluate_function"
_WRITES = r"^aten::(_foreach_zero|_foreach_copy|zero|fill|copy|add|sub|addcmul|addcdiv)_$"
_CONVOLUTION, _LAYERS = "aten::convolution_backward", r"^aten::(convolution_backward|mm)$"
_NO_INPUT = "[False"  # of what a convolution's backward is asked for: gradients of input, weight and bias
_OF_LAYER = r": (Mm|Addmm)Backward\d*$"  # the gradient of its input comes first, that of its weight then
_OF_WEIGHT = r"wgrad|_bwd_weight|backward_filter"


def never_cleared(calls: Calls, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows, least: int) -> Mask:
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
    was = added[table][1:]  # those of the first may be from before the recording
    if (np.diff(steps) == 0).any() or (shapes != shapes[0]).any() or (was != was[0]).any() or was[0].all():
        return none
    kept = none.copy()
    kept[table[:, was[0]].ravel()] = True
    return none if kept.any() and _written(calls, leaves[kept], marks) else kept


def _written(calls: Calls, leaves: Calls, marks: Calls) -> bool:
    """Whether the program itself writes to tensors of such shapes, or to lists of shapes that were not recorded."""
    writes = calls[calls.is_top_op & calls.name.matches(_WRITES) & ~calls.inside(marks)]
    _, signatures = signatures_of(calls.events.trace, writes.rows)
    shapes = _shapes(leaves)
    return any(
        ("foreach" in one.name and not any(one.dims)) or shapes & set(tensors(one)) for one in signatures
    )


def made_for(calls: Calls, work: Work, leaves: Calls, kept: Mask, alone: Calls) -> tuple[Work, Calls, Calls]:
    """(work that only makes the gradients of those, what of the CPU lane goes with it, all that launches it).

    A weight's gradient of a convolution is told by its kernel's name, of a product by its shape. If the input of a
    network needs no gradient, all that backward does from its last layer to its first is in vain.
    """
    order = np.argsort(leaves.start_ns, kind="stable")
    nodes = calls[calls.name.matches(f"^{_NODE}")]
    nodes = nodes[~nodes.parent.inside(nodes)]
    nodes = nodes[np.argsort(nodes.start_ns, kind="stable")]
    following = np.append(order, -1)[np.searchsorted(leaves.end_ns[order], nodes.end_ns)]
    nodes = nodes[pick(kept, following, False) & (pick(leaves.step, following) == nodes.step)]
    shapes = _shapes(leaves[kept])
    inner = calls[calls.is_op & calls.inside(nodes)]
    number, signatures = signatures_of(calls.events.trace, inner.rows)
    makes = np.array([_makes(one, shapes) for one in signatures], bool)[number]
    owner, layer = inner.index_of_enclosing(nodes), makes & inner.name.matches(_LAYERS)
    weight = {int(owner[at]): signatures[number[at]] for at in np.flatnonzero(layer).tolist()}
    products = makes & ~inner.name.one_of(_CONVOLUTION)
    products &= ~_of_input(inner, nodes, owner, products)
    biases = inner.name.one_of("aten::sum") & np.isin(owner, list(weight))
    gone = (
        calls.joined((alone, nodes[_in_vain(nodes, weight)], inner[products | biases])).distinct().outermost()
    )
    convolutions = inner[layer & ~products]
    kernels = work.launch.inside(convolutions) & work.name.matches(_OF_WEIGHT)
    return (
        work[kernels | work.launch.inside(gone)],
        gone,
        calls.joined((gone, convolutions)).distinct().outermost(),
    )


def _of_input(inner: Calls, nodes: Calls, owner: Rows, products: Mask) -> Mask:
    """Products of a layer before its last one: the gradient of its input may have the shape of a weight, too."""
    mine = products & inner.name.one_of("aten::mm") & nodes.name.matches(_OF_LAYER)[owner]
    last = np.zeros(len(nodes), np.int64)
    np.maximum.at(last, owner[mine], inner.start_ns[mine])
    return mine & (inner.start_ns < last[owner])


def _in_vain(nodes: Calls, weight: dict[int, Signature]) -> Mask:
    """Nodes from a network's last layer to its first, whose input needs no gradient.

    The weights of first layers tell runs and networks apart, and so does how often each weight is used.
    """
    found, layers = np.zeros(len(nodes), bool), sorted(weight)
    lasts = [place for place, at in enumerate(layers) if _needs_no_input(weight[at])]
    shapes = {at: (int(nodes.step[at]), str(one.dims[2:3])) for at, one in weight.items()}
    begins, runs = {shapes[layers[place]] for place in lasts}, Counter(shapes.values())
    for place in lasts:
        last = first = layers[place]
        for earlier in reversed(layers[:place]):
            own = shapes[earlier]
            if nodes.step[earlier] != nodes.step[last] or own in begins or runs[own] % runs[shapes[last]]:
                break
            first = earlier
        found[first : last + 1] = True
    return found


def _needs_no_input(layer: Signature) -> bool:
    """Whether it is a convolution whose input gets no gradient."""
    return layer.name == _CONVOLUTION and bool(layer.scalars) and layer.scalars[-1].startswith(_NO_INPUT)


def _makes(op: Signature, shapes: set[Shape]) -> bool:
    """Whether it makes or converts a gradient of such a shape."""
    own = tensors(op)
    if op.name == _CONVOLUTION:
        return len(own) > 2 and own[2] in shapes
    if op.name == "aten::mm" and len(own) > 1:
        made = own[0][0], own[1][-1]
        return made in shapes or made[::-1] in shapes
    return op.name == "ToCopyBackward0" and bool(own) and own[0] in shapes


def _shapes(leaves: Calls) -> set[Shape]:
    _, signatures = signatures_of(leaves.events.trace, leaves.rows)
    return {shape for one in signatures for shape in tensors(one)}
