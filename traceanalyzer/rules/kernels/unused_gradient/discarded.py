"""Gradients at an end of a backward pass that are cleared before an optimizer has them, told by lists of shapes.

A loss on what another network made of this one's output makes that network's gradients first; a loss on what another
network made makes that network's last.

Lists of more than about 30 tensors have no recorded shapes. A fused optimizer's kernels have one block for each 65,536
elements of each tensor, and the one that counts its steps has one for each tensor. If the first gradients of a pass, so
many, make as many blocks, and the last ones do not, the first are the optimizer's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, starts_of_runs
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.names import VIEWING_OP

_LISTS = r"^aten::_(foreach|fused)_"
_FUSED, _COUNTS = r"^aten::_fused_", "aten::_foreach_add_"
_APPLIED = "multi_tensor_apply_kernel"
_CHUNK = 65_536  # elements of a tensor for each block of ATen's kernels over lists
# Backward itself, what takes parameters in forward, and moving averages of them, as of a target network.
_NO_READERS = (
    r"^autograd::|^torch::autograd|Backward\d*$|^aten::(linear|b?mm|matmul|addb?mm|embedding)|conv"
    r"|(?<!foreach_)norm$|lerp_$"
)


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


def discarded(calls: Calls, work: Work, leaves: Calls, marks: Calls, added: Mask, pass_of: Rows) -> Mask:
    """Which gradients end or begin a pass, are in no optimizer's list until made anew, and are read by no op.

    Args:
        leaves, marks: gradients of parameters, and steps of optimizers.
        added: which gradients are added to what was there.
        pass_of: of each gradient, rising with time.
    """
    order = np.argsort(leaves.start_ns, kind="stable")
    marks = marks[np.argsort(marks.start_ns, kind="stable")]
    lists, shapes = _lists(calls, marks), _shapes_of(leaves)
    ends = np.flatnonzero(np.append(starts_of_runs(pass_of[order])[1:], True)) + 1
    after = np.searchsorted(marks.start_ns, leaves.start_ns)
    each = np.split(order, ends[:-1])
    blocks = _blocks(work[work.op.name.matches(_FUSED)], marks)
    sizes = _blocks(work[work.op.name.one_of(_COUNTS)], marks)
    for own in each:
        mark = int(after[own[-1]])
        if mark < len(lists) and not lists[mark] and blocks[mark]:
            lists[mark] = _first(own, shapes, int(sizes[mark]), int(blocks[mark]))
    passes = [_pass(own, shapes, lists, int(after[own[-1]])) for own in each]
    verdicts = [_verdict(at, passes, shapes, lists, added) for at in range(len(passes))]
    kinds = [(len(one.leaves), one.shapes) for one in passes]
    gone = np.zeros(len(leaves), bool)
    for at, (one, kind) in enumerate(zip(passes, kinds, strict=True)):
        alike = {verdict for (verdict, _), other in zip(verdicts, kinds, strict=True) if other == kind}
        anew = verdicts[at][1]
        if alike - {None} != {True} or anew is None:
            continue
        begin, end = leaves.end_ns[one.leaves].max(), leaves.start_ns[anew].min()
        reads = _reads(calls, work, marks, one, int(begin), int(end), int(blocks[one.mark]))
        if reads is not None and not one.shapes & reads:
            gone[one.beyond] = True
    return gone


def _blocks(fused: Work, calls: Calls) -> Rows:
    """Blocks of the kernels over lists that each of some calls launches."""
    own = fused[fused.name.matches(_APPLIED)]
    owner = own.launch.index_of_enclosing(calls)
    counts = np.bincount(owner[owner >= 0], own.blocks[owner >= 0], len(calls))
    return counts.astype(np.int64)


def _first(own: Rows, shapes: list[Shape], size: int, blocks: int) -> Counter[Shape]:
    """Shapes of the first gradients of a pass, so many, if they make so many blocks; empty where the last do, too."""
    each = np.array([-(-math.prod(shapes[at]) // _CHUNK) for at in own.tolist()])
    first, last = each[:size].sum() == blocks, each[len(each) - size :].sum() == blocks
    if not 0 < size <= len(own) or not first or (last and size < len(own)):
        return Counter()
    return Counter(shapes[at] for at in own[:size].tolist())


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
        by_op.setdefault((int(owner[at]), str(names[at])), Counter()).update(tensors(first) or _numbers(op))
    found = [Counter[Shape]() for _ in range(len(marks))]
    for (mark, _), count in by_op.items():
        if mark not in unknown:
            found[mark] = max(found[mark], count, key=lambda one: (any(one), one.total()))
    return found


def _numbers(op: Signature) -> list[Shape]:
    """Shapes of a list of single numbers, such as a temperature, or the steps that an optimizer counts."""
    return [()] * op.dims[0].count([]) if op.dims and isinstance(op.dims[0], list) else []


def _pass(own: Rows, shapes: list[Shape], lists: list[Counter[Shape]], mark: int) -> _Pass:
    """Of the gradients of one pass those beyond the optimizer's, where they are the last or the first ones."""
    listed = lists[mark] if mark < len(lists) else Counter[Shape]()
    beyond = Counter(shapes[at] for at in own.tolist())
    beyond.subtract(listed)
    beyond = +beyond
    alone = frozenset(shape for shape in beyond if not listed[shape])
    for end in (own[len(own) - beyond.total() :], own[: beyond.total()]):
        if listed and () not in alone and Counter(shapes[at] for at in end.tolist()) == beyond:
            return _Pass(own, end, alone, mark)
    return _Pass(own, own[:0], frozenset(), mark)


def _verdict(
    at: int, passes: list[_Pass], shapes: list[Shape], lists: list[Counter[Shape]], added: Mask
) -> tuple[bool | None, list[int] | None]:
    """(whether the gradients beyond the optimizer's are cleared unused, those that are then made anew).

    The first is None where they are not cleared.
    """
    this = passes[at]
    if not this.shapes:
        return False, None
    for later in passes[at + 1 :]:
        anew = [leaf for leaf in later.leaves.tolist() if shapes[leaf] in this.shapes]
        if not anew:
            continue
        between = lists[this.mark : later.mark]
        if not all(between) or any(this.shapes & one.keys() for one in between):
            return False, None
        if not added[anew].any():
            return True, anew
    return None, None


def _shapes_of(leaves: Calls) -> list[Shape]:
    number, signatures = signatures_of(leaves.events.trace, leaves.rows)
    first = [next(iter(tensors(one)), ()) for one in signatures]
    return [first[which] for which in number.tolist()]


def _reads(
    calls: Calls, work: Work, marks: Calls, one: _Pass, begin_ns: int, end_ns: int, blocks: int
) -> set[Shape] | None:
    """Of its shapes those that an op takes in that time that is neither forward, backward nor an optimizer's.

    None where shapes of such an op were not recorded, unless it has as many blocks as the optimizer.
    """
    ops = calls[(calls.start_ns >= begin_ns) & (calls.start_ns < end_ns) & calls.is_top_op]
    ops = ops[~ops.inside(marks) & ~ops.name.matches(_NO_READERS) & ~ops.name.meets(VIEWING_OP.search)]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    unknown = np.array([bool(re.match(_LISTS, op.name)) and not any(op.dims) for op in signatures], bool)[
        number
    ]
    if unknown.any() and (_blocks(work, ops[unknown]) != max(blocks, 1)).any():
        return None
    return {shape for op in signatures for shape in one.shapes.intersection(tensors(op))}
