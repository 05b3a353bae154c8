"""Gradients at an end of a backward pass that are cleared before an optimizer reads them, by lists of shapes.

A loss on what another network made of this one's output makes that network's gradients first; a loss on what another
network made makes that network's last.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, pick, starts_of_runs
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.tensors.unused_gradient import optimizer_lists as lists
from traceanalyzer.rules.tensors.unused_gradient.optimizer_lists import (
    COUNTS,
    ENGINE,
    FUSED,
    LISTS,
    NODE,
    OPAQUE,
    Zeroing,
    blocks_of,
    lists_of,
    shapes_of,
    taken_by,
    updated_at_an_end,
)
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors

# Backward itself, what takes parameters in forward, and moving averages of them, as of a target network.
_NO_READERS = (
    r"^autograd::|^torch::autograd|Backward\d*$|^aten::(linear|b?mm|matmul|addb?mm|embedding)|conv"
    r"|(?<!foreach_)norm$|(lerp|zero)_$"
)
# Clearing and clipping use no gradient for anything else, and a moving average takes parameters.
_NO_USE = r"((?<!addc)mul|lerp|zero)_$|norm$|::detach_?$"


@dataclass(frozen=True, slots=True)
class _Pass:
    """One backward pass: its gradients, and those at one end that the next optimizer does not have.

    Attributes:
        leaves: positions of all of its gradients.
        beyond: positions of those at the end or, if these are not the ones, at the beginning.
        shapes: of those beyond the ones that the optimizer has none of; empty where it has all.
        mark: position of the optimizer's step that comes next.
    """

    leaves: Rows
    beyond: Rows
    shapes: frozenset[Shape]
    mark: int


def discarded_gradients(
    calls: Calls, work: Work, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows, least: int
) -> Mask:
    """Which gradients end or begin a pass, are in no optimizer's list until made anew, and are read by no op.

    What comes after the last pass is not recorded: it is as the others of its kind, if all of them, at least so many,
    are such.

    Args:
        leaves, marks: gradients of parameters, and steps of optimizers.
        added: which gradients are added to what was there.
        pass_of: of each gradient, rising with time.
    """
    order = np.argsort(leaves.start_ns, kind="stable")
    marks = marks[np.argsort(marks.start_ns, kind="stable")]
    lists, shapes = lists_of(calls, marks), shapes_of(leaves)
    ends = np.flatnonzero(np.append(starts_of_runs(pass_of[order])[1:], True)) + 1
    after = np.searchsorted(marks.start_ns, leaves.start_ns)
    each = np.split(order, ends[:-1])
    blocks = blocks_of(work[work.op.name.matches(FUSED)], marks)
    sizes = blocks_of(work[work.op.name.one_of(COUNTS)], marks)
    for members in each:
        mark = int(after[members[-1]])
        if mark < len(lists) and not lists[mark] and blocks[mark]:
            lists[mark] = updated_at_an_end(members, shapes, int(sizes[mark]), int(blocks[mark]))
    read_shapes = taken_by(calls, marks)
    passes = [_pass(members, shapes, lists, read_shapes, int(after[members[-1]])) for members in each]
    zeroed = Zeroing.found(calls, work)
    verdicts = [_verdict(place, passes, leaves, shapes, lists, added, zeroed) for place in range(len(passes))]
    kinds = [(len(each_pass.leaves), each_pass.shapes) for each_pass in passes]
    gone, proven = np.zeros(len(leaves), bool), Counter[tuple[int, frozenset[Shape]]]()
    for place, (each_pass, kind) in enumerate(zip(passes, kinds, strict=True)):
        alike = {verdict for (verdict, _), other in zip(verdicts, kinds, strict=True) if other == kind}
        anew = verdicts[place][1]
        if alike - {None} != {True} or anew is None:
            continue
        begin, end = leaves.end_ns[each_pass.leaves].max(), leaves.start_ns[anew].min()
        reads = _reads(calls, work, marks, each_pass, int(begin), int(end), int(blocks[each_pass.mark]))
        if reads is not None and not each_pass.shapes & reads:
            gone[each_pass.beyond] = True
            proven[kind] += 1
    for (verdict, _), each_pass, kind in zip(verdicts, passes, kinds, strict=True):
        if verdict is None and least <= proven[kind] == kinds.count(kind) - 1:
            gone[each_pass.beyond] = True
    return gone


def _pass(
    members: Rows, shapes: list[Shape], lists: list[Counter[Shape]], read_shapes: list[set[Shape]], mark: int
) -> _Pass:
    """Of the gradients of one pass those beyond the optimizer's, where they are the last or the first ones."""
    listed = lists[mark] if mark < len(lists) else Counter[Shape]()
    beyond = Counter(shapes[place] for place in members.tolist())
    beyond.subtract(listed)
    beyond = +beyond
    unlisted = frozenset(shape for shape in beyond if not listed[shape])
    for end in (members[len(members) - beyond.total() :], members[: beyond.total()]):
        other = listed and () not in unlisted and not unlisted & read_shapes[mark]
        if other and Counter(shapes[place] for place in end.tolist()) == beyond:
            return _Pass(members, end, unlisted, mark)
    return _Pass(members, members[:0], frozenset(), mark)


def _verdict(
    place: int,
    passes: list[_Pass],
    leaves: Calls,
    shapes: list[Shape],
    lists: list[Counter[Shape]],
    added: Mask,
    zeroed: Zeroing,
) -> tuple[bool | None, list[int] | None]:
    """(whether the gradients beyond the optimizer's are cleared unused, those that are then made anew).

    The first is None where they are not cleared.
    """
    this = passes[place]
    if not this.shapes:
        return False, None
    for later in passes[place + 1 :]:
        anew = [leaf for leaf in later.leaves.tolist() if shapes[leaf] in this.shapes]
        if not anew:
            continue
        between = lists[this.mark : later.mark]
        if not all(between) or any(this.shapes & other.keys() for other in between):
            return False, None
        since, until = leaves.end_ns[this.leaves].max(), leaves.start_ns[anew].min()
        if not added[anew].any() or zeroed.all_of(shapes, this.beyond, int(since), int(until)):
            return True, anew
    return None, None


def _reads(
    calls: Calls, work: Work, marks: Calls, each_pass: _Pass, begin_ns: int, end_ns: int, blocks: int
) -> set[Shape] | None:
    """Of its shapes those that an op takes in that time that is neither forward, backward nor an optimizer's.

    None where shapes of such an op were not recorded, unless it has as many blocks as the optimizer. Many tensors are
    vectors of some length: whoever reads a network's gradients reads more of them than those of its biases.
    """
    ops = calls[(calls.start_ns >= begin_ns) & (calls.start_ns < end_ns) & calls.is_top_op]
    ops = ops[~ops.inside(marks) & ~ops.name.matches(_NO_READERS) & ~ops.name.meets(is_view)]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    unknown = np.array([bool(re.match(LISTS, op.name)) and not any(op.dims) for op in signatures], bool)[
        number
    ]
    if unknown.any() and (blocks_of(work, ops[unknown]) != max(blocks, 1)).any():
        return None
    telling = {shape for shape in each_pass.shapes if len(shape) > 1} or each_pass.shapes
    return {shape for op in signatures for shape in telling.intersection(tensors(op))}


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


def gradients_beyond_trained(
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
    if passes is None or len(passes.steps) < least or _has_unknown_targets(work, marks):
        return none
    trained = _trained(calls, work, marks, passes)
    if trained is None:
        trained = int(np.flatnonzero(used[passes.table[0]]).max(initial=-1)) + 1
    beyond = passes.table[:, trained:]
    anew = [place + 1 for place in passes.steps if place + 1 < len(beyond)]
    if trained == 0 or beyond.size == 0 or not anew or added[beyond[anew]].any():
        return none
    shapes, blocks = set(passes.shapes[trained:]), lists.chunks(passes.shapes[:trained]).sum()
    if (
        () in shapes
        or _has_hook(calls, leaves[beyond.ravel()])
        or _is_read_elsewhere(calls, work, marks, shapes, int(blocks))
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


def _has_unknown_targets(work: Work, marks: Calls) -> bool:
    """Whether an optimizer's step launches work of which neither the shapes nor the blocks tell what it updates."""
    pieces = work[work.launch.index_of_enclosing(marks) >= 0]
    number, signatures = signatures_of(work.events.trace, pieces.op.rows)
    shown = np.array([any(op.dims) for op in signatures], bool)[number] | pieces.op.name.matches(lists.LISTS)
    return bool(len(pieces) == 0 or (pieces.in_graph | ~shown | pieces.op.name.matches(OPAQUE)).any())


def _trained(calls: Calls, work: Work, marks: Calls, passes: _Passes) -> int | None:
    """Number of a pass's first gradients that optimizers have; None if unknown for some step."""
    listed, (sizes, blocks) = lists.lists_of(calls, marks), lists.counted(calls, work, marks)
    trained, every = set[int](), np.arange(len(passes.shapes))
    for members in passes.steps.values():
        whole = sum((listed[mark] for mark in members), Counter[Shape]())
        size = whole.total()
        if all(listed[mark] for mark in members):
            fits = Counter(passes.shapes[:size]) == whole
        else:
            size = int(sizes[members].sum())
            first = lists.first_updated(every, passes.shapes, size, int(blocks[members].sum()))
            fits = bool(blocks[members].all() and first)
        if not fits:
            return None
        trained.add(size)
    return max(trained)


def _has_hook(calls: Calls, leaves: Calls) -> bool:
    """Whether a hook of such a gradient calls an op."""
    nodes = calls[calls.name.matches(f"^{NODE}")]
    nodes = nodes[np.isin(np.arange(len(nodes)), leaves.index_of_enclosing(nodes))]
    inner = calls[calls.is_op & calls.inside(nodes) & ~calls.inside(leaves)]
    return bool((~np.isin(inner.rows, nodes.rows)).any())


def _is_read_elsewhere(calls: Calls, work: Work, marks: Calls, shapes: set[Shape], blocks: int) -> bool:
    """Whether an op that is neither of forward nor of backward takes such a tensor, or may do so.

    A list whose shapes are not recorded holds none of them if it launches nothing, or makes as many blocks as the
    trained parameters.
    """
    ops = calls[calls.is_top_op & ~calls.name.matches(ENGINE)]
    ops = ops[~_ops_with_nodes(calls, ops) & ~ops.name.matches(_NO_USE)]
    ops = ops[~(ops.inside(marks) & ops.name.matches(lists.LISTS))]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    unknown = ~np.array([any(op.dims) for op in signatures], bool)[number] & ops.name.matches(lists.LISTS)
    unknown &= np.isin(np.arange(len(ops)), ops.launched()[1])
    if (lists.blocks_of(work, ops[unknown]) != blocks).any():
        return True
    return any(not shapes.isdisjoint(tensors(op)) for op in signatures)


def _ops_with_nodes(calls: Calls, ops: Calls) -> Mask:
    """Which ops backward has a node of: the last of those with its number, as others only show the next one's."""
    column = ints(calls.events.trace.lanes.cpu, "sequence")
    of_nodes = pick(column, calls[calls.name.matches(f"^{NODE}")].rows, NULL_INT)
    number = pick(column, ops.rows, NULL_INT)
    order = np.lexsort((ops.start_ns, number, ops.thread))
    last = np.ones(len(ops), bool)
    last[order[:-1]] = (np.diff(number[order]) != 0) | (np.diff(ops.thread[order]) != 0)
    return np.asarray(last & (number != NULL_INT) & np.isin(number, of_nodes))
