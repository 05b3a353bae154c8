"""Gradients at the end of a backward pass that are cleared before an optimizer has them, told by lists of shapes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, starts_of_runs
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.names import VIEWING_OP

_LISTS = r"^aten::_(foreach|fused)_"
# Backward itself, and what takes parameters in forward.
_NO_READERS = (
    r"^autograd::|^torch::autograd|Backward\d*$|^aten::(linear|b?mm|matmul|addb?mm|embedding)|conv|norm$"
)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One backward pass: its gradients, and those at its end that the next optimizer does not have.

    Attributes:
        leaves: positions of all of its gradients, and of those at the end.
        shapes: of the gradients at the end those that the optimizer has none of; empty where it has all.
        mark: position of the optimizer's step that comes next.
    """

    leaves: Rows
    tail: Rows
    shapes: frozenset[Shape]
    mark: int


def discarded(calls: Calls, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows) -> Mask:
    """Which gradients end a pass, are in no optimizer's list until they are made anew, and are read by no op.

    Args:
        leaves, marks: gradients of parameters, and steps of optimizers.
        added: which gradients are added to what was there.
        pass_of: of each gradient, rising with time.
    """
    order, by_start = np.argsort(leaves.start_ns, kind="stable"), np.argsort(marks.start_ns, kind="stable")
    lists = _lists(calls, marks[by_start])
    shapes = _shapes_of(leaves)
    ends = np.flatnonzero(np.append(starts_of_runs(pass_of[order])[1:], True)) + 1
    after = np.searchsorted(marks.start_ns[by_start], leaves.start_ns)
    passes = [_pass(own, shapes, lists, int(after[own[-1]])) for own in np.split(order, ends[:-1])]
    verdicts = [_verdict(at, passes, shapes, lists, added) for at in range(len(passes))]
    reads = _reads(calls, marks, frozenset().union(*(one.shapes for one in passes)))
    if reads is None:
        return np.zeros(len(leaves), bool)
    gone, kinds = np.zeros(len(leaves), bool), [(len(one.leaves), one.shapes) for one in passes]
    for one, kind in zip(passes, kinds, strict=True):
        alike = {verdict for verdict, other in zip(verdicts, kinds, strict=True) if other == kind}
        if alike - {None} == {True} and not one.shapes & reads:
            gone[one.tail] = True
    return gone


def _lists(calls: Calls, marks: Calls) -> list[Counter[Shape]]:
    """Shapes of the tensors that each step of an optimizer updates; empty where not all were recorded."""
    updates = calls[calls.is_op & calls.name.matches(_LISTS)]
    owner, names = updates.index_of_enclosing(marks), updates.name
    number, signatures = signatures_of(calls.events.trace, updates.rows)
    by_op: dict[tuple[int, str], Counter[Shape]] = {}
    unknown: set[int] = set()  # another group of parameters may have a list too long to be recorded
    for at in np.flatnonzero(owner >= 0).tolist():
        op = signatures[number[at]]
        if not any(op.dims):
            unknown.add(int(owner[at]))
        first = Signature(op.name, op.dims[:1], (), ())
        by_op.setdefault((int(owner[at]), str(names[at])), Counter()).update(tensors(first))
    found = [Counter[Shape]() for _ in range(len(marks))]
    for (mark, _), count in by_op.items():
        if mark not in unknown:
            found[mark] = max(found[mark], count, key=Counter.total)
    return found


def _pass(own: Rows, shapes: list[Shape], lists: list[Counter[Shape]], mark: int) -> _Pass:
    """Of the gradients of one pass those beyond the optimizer's, where they are the last ones."""
    listed = lists[mark] if mark < len(lists) else Counter[Shape]()
    beyond = Counter(shapes[at] for at in own.tolist())
    beyond.subtract(listed)
    beyond = +beyond
    tail = own[len(own) - beyond.total() :]
    alone = frozenset(shape for shape in beyond if not listed[shape])
    if not listed or () in alone or Counter(shapes[at] for at in tail.tolist()) != beyond:
        return _Pass(own, own[:0], frozenset(), mark)
    return _Pass(own, tail, alone, mark)


def _verdict(
    at: int, passes: list[_Pass], shapes: list[Shape], lists: list[Counter[Shape]], added: Mask
) -> bool | None:
    """Whether the gradients at the end of a pass are cleared unused; None where they are not cleared."""
    this = passes[at]
    if not this.shapes:
        return False
    for later in passes[at + 1 :]:
        anew = [leaf for leaf in later.leaves.tolist() if shapes[leaf] in this.shapes]
        if not anew:
            continue
        between = lists[this.mark : later.mark]
        if not all(between) or any(this.shapes & one.keys() for one in between):
            return False
        if not added[anew].any():
            return True
    return None


def _shapes_of(leaves: Calls) -> list[Shape]:
    number, signatures = signatures_of(leaves.events.trace, leaves.rows)
    first = [next(iter(tensors(one)), ()) for one in signatures]
    return [first[which] for which in number.tolist()]


def _reads(calls: Calls, marks: Calls, shapes: frozenset[Shape]) -> set[Shape] | None:
    """Of these shapes those that an op takes that is neither forward, backward nor an optimizer's.

    None where shapes of such an op were not recorded.
    """
    ops = calls[calls.is_top_op & ~calls.inside(marks) & ~calls.name.matches(_NO_READERS)]
    ops = ops[~ops.name.meets(VIEWING_OP.search)]
    _, signatures = signatures_of(calls.events.trace, ops.rows)
    if any(re.match(_LISTS, op.name) and not any(op.dims) for op in signatures):
        return None
    return {shape for op in signatures for shape in shapes.intersection(tensors(op))}
