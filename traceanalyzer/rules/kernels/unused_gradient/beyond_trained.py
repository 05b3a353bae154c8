"""Gradients that backward makes after those of all trained parameters, and that each step makes anew, unread.

A frozen layer makes no gradient of its own, but backward runs through it if a tensor before it requires one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.kernels.unused_gradient import optimizer_lists as lists
from traceanalyzer.rules.kernels.unused_gradient.unused_parameters import ENGINE, NODE, OPAQUE
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors

# Clearing and clipping use no gradient for anything else, and a moving average takes parameters.
_NO_USE = r"((?<!addc)mul|lerp|zero)_$|norm$|::detach_?$"


@dataclass(frozen=True, slots=True)
class _Passes:
    """Backward passes that are all alike, each with the optimizers' steps before the next one.

    Attributes:
        table: positions of gradients, a row for each pass.
        shapes: of the gradients of one pass.
        steps: positions of the optimizers' steps by the number of the pass before them.
    """

    table: Rows
    shapes: list[Shape]
    steps: dict[int, list[int]]


def beyond_trained(
    calls: Calls, work: Work, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows, used: Mask, least: int
) -> Mask:
    """Which gradients come after the last one that an optimizer has, in every pass, and are used by nothing.

    None where passes are unlike each other, or fewer than the least come before an optimizer's step, where what an
    optimizer updates is not known, where such a gradient is added to the one before an optimizer's step (it may be for
    an optimizer that runs later), or where another op takes a tensor of such a shape, unless it is of forward.

    Args:
        leaves, marks: gradients of parameters, and steps of optimizers.
        added: which gradients are added to what was there.
        pass_of: of each gradient, rising with time.
        used: which gradients have the shape of something that optimizers update; none where that is not recorded.
    """
    none = np.zeros(len(leaves), bool)
    marks = marks[np.argsort(marks.start_ns, kind="stable")]
    passes = _passes(leaves, marks, pass_of)
    if passes is None or len(passes.steps) < least or _opaque(work, marks):
        return none
    known = _trained(calls, work, marks, passes)
    if known is None:
        known = int(np.flatnonzero(used[passes.table[0]]).max(initial=-1)) + 1
    beyond = passes.table[:, known:]
    anew = [at + 1 for at in passes.steps if at + 1 < len(beyond)]
    if known == 0 or beyond.size == 0 or not anew or added[beyond[anew]].any():
        return none
    shapes, blocks = set(passes.shapes[known:]), lists.chunks(passes.shapes[:known]).sum()
    if (
        () in shapes
        or _hooked(calls, leaves[beyond.ravel()])
        or _taken(calls, work, marks, shapes, int(blocks))
    ):
        return none
    gone = none.copy()
    gone[beyond.ravel()] = True
    return gone


def _passes(leaves: Calls, marks: Calls, pass_of: Rows) -> _Passes | None:
    """None where passes are unlike each other, or an optimizer's step lies within one."""
    order = np.argsort(leaves.start_ns, kind="stable")
    number, each = np.unique(pass_of[order], return_counts=True)
    if len(set(each.tolist())) > 1:
        return None
    table = order.reshape(len(number), -1)
    codes = leaves.text("input_dims").code[table]
    before = np.searchsorted(leaves.start_ns[table[:, 0]], marks.start_ns) - 1
    within = (before >= 0) & (marks.start_ns < pick(leaves.end_ns[table].max(axis=1), before))
    if (codes != codes[0]).any() or within.any():
        return None
    steps: dict[int, list[int]] = {}
    for mark in np.flatnonzero(before >= 0).tolist():
        steps.setdefault(int(before[mark]), []).append(mark)
    return _Passes(table, lists.shapes_of(leaves[table[0]]), steps)


def _opaque(work: Work, marks: Calls) -> bool:
    """Whether an optimizer's step launches work of which neither the shapes nor the blocks tell what it updates."""
    own = work[work.launch.index_of_enclosing(marks) >= 0]
    number, signatures = signatures_of(work.events.trace, own.op.rows)
    shown = np.array([any(one.dims) for one in signatures], bool)[number] | own.op.name.matches(lists.LISTS)
    return bool(len(own) == 0 or (own.in_graph | ~shown | own.op.name.matches(OPAQUE)).any())


def _trained(calls: Calls, work: Work, marks: Calls, passes: _Passes) -> int | None:
    """How many gradients of a pass, its first ones, optimizers have; None where that is not known of each step."""
    listed, (sizes, blocks) = lists.lists_of(calls, marks), lists.counted(calls, work, marks)
    known, every = set[int](), np.arange(len(passes.shapes))
    for own in passes.steps.values():
        whole = sum((listed[mark] for mark in own), Counter[Shape]())
        size = whole.total()
        if all(listed[mark] for mark in own):
            fits = Counter(passes.shapes[:size]) == whole
        else:
            size = int(sizes[own].sum())
            first = lists.first_updated(every, passes.shapes, size, int(blocks[own].sum()))
            fits = bool(blocks[own].all() and first)
        if not fits:
            return None
        known.add(size)
    return max(known)


def _hooked(calls: Calls, leaves: Calls) -> bool:
    """Whether a hook of such a gradient calls an op."""
    nodes = calls[calls.name.matches(f"^{NODE}")]
    nodes = nodes[np.isin(np.arange(len(nodes)), leaves.index_of_enclosing(nodes))]
    inner = calls[calls.is_op & calls.inside(nodes) & ~calls.inside(leaves)]
    return bool((~np.isin(inner.rows, nodes.rows)).any())


def _taken(calls: Calls, work: Work, marks: Calls, shapes: set[Shape], blocks: int) -> bool:
    """Whether an op that is neither of forward nor of backward takes such a tensor, or may do so.

    A list whose shapes are not recorded holds none of them if it launches nothing, or makes as many blocks as the
    trained parameters.
    """
    ops = calls[calls.is_top_op & ~calls.name.matches(ENGINE)]
    ops = ops[~_forward(calls, ops) & ~ops.name.matches(_NO_USE)]
    ops = ops[~(ops.inside(marks) & ops.name.matches(lists.LISTS))]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    unknown = ~np.array([any(one.dims) for one in signatures], bool)[number] & ops.name.matches(lists.LISTS)
    unknown &= np.isin(np.arange(len(ops)), ops.launched()[1])
    if (lists.blocks_of(work, ops[unknown]) != blocks).any():
        return True
    return any(not shapes.isdisjoint(tensors(one)) for one in signatures)


def _forward(calls: Calls, ops: Calls) -> Mask:
    """Which ops backward has a node of: the last of those with its number, as others only show the next one's."""
    column = ints(calls.events.trace.lanes.cpu, "sequence")
    made = pick(column, calls[calls.name.matches(f"^{NODE}")].rows, NULL_INT)
    number = pick(column, ops.rows, NULL_INT)
    order = np.lexsort((ops.start_ns, number, ops.thread))
    last = np.ones(len(ops), bool)
    last[order[:-1]] = (np.diff(number[order]) != 0) | (np.diff(ops.thread[order]) != 0)
    return np.asarray(last & (number != NULL_INT) & np.isin(number, made))
