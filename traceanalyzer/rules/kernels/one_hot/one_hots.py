"""What becomes of one-hot tensors: conversions, and the product that picks by them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.signatures import Signature

_HOPS = 4  # conversions of the mask and of a weight beside it, and the op that reads it
_LONG = "long int"
_PRODUCTS = {"aten::mul": 0, "aten::mm": 0, "aten::addmm": 1}  # op -> its first factor


@dataclass(frozen=True, slots=True)
class Trail:
    """What is known of a one-hot tensor after some ops.

    Attributes:
        rows, classes: its size; no rows where the trail has ended.
        kind: type of its elements.
        passed: it was converted by the op.
        instead: what gives the values of the product with it, or of its sum over rows, that the op is.
    """

    rows: int = 0
    classes: int = 0
    kind: str = _LONG
    passed: bool = False
    instead: Signature | None = None


_END = Trail()


def followed(masks: Calls, work: Work, inputs: WorkInputs) -> tuple[Work, Work, list[Signature]]:
    """(conversions of one-hot tensors, products with them, what would do instead of each of the first of those).

    Followed is each thread in the order of its ops, by what each launches first, from the end of aten::one_hot on.
    """
    trails, state = _begun(masks, inputs)
    made = Counter((trails[which].rows, trails[which].classes) for which in state[state > 0].tolist())
    pairs = {size for size, count in made.items() if count > len({*masks.step.tolist()})}
    ordered, at = _after(masks, work)
    parts = []
    for hop in range(_HOPS):
        on = np.flatnonzero((state > 0) & (at + hop < len(ordered)))
        piece = ordered[at[on] + hop]
        same = (piece.launch.thread == masks.thread[on]) & (piece.step == masks.step[on])
        on, piece = on[same], piece[same]
        number = inputs.number[piece.entries]
        pair, first = grouped([number, state[on]])
        begun = zip(number[first].tolist(), state[on][first].tolist(), strict=True)
        state[:] = 0
        state[on] = len(trails) + pair
        trails += [_next(inputs.signatures[which], trails[before], pairs) for which, before in begun]
        parts.append((piece.entries, state[on]))
        state[np.array([one.rows == 0 for one in trails], bool)[state]] = 0
    entries, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    passed = np.array([one.passed for one in trails], bool)[after]
    read = np.array([one.instead is not None for one in trails], bool)[after]
    instead = [trails[which].instead for which in after[read].tolist()]
    whole = (np.concatenate([entries[some], _beside(work, entries[some])]) for some in (passed, read))
    converted, products = (work[some] for some in whole)
    return converted, products, [one for one in instead if one is not None]


def _beside(work: Work, entries: Rows) -> Rows:
    """What else the ops of these entries launched: a large copy is two kernels."""
    rows = work.op.rows
    same = np.isin(rows, rows[entries]) & work.op.there
    same[entries] = False
    return np.flatnonzero(same)


def _begun(masks: Calls, inputs: WorkInputs) -> tuple[list[Trail], Rows]:
    """(trails, of which the first has ended; the one of each mask, by what is scattered into it)."""
    made, owner = masks.launched()
    number = inputs.number[made.entries]
    trails, state = [_END], np.zeros(len(masks), np.int64)
    for which in dict.fromkeys(number.tolist()):
        op = inputs.signatures[which]
        shape = _shape(op, 0) if op.name == "aten::scatter_" else ()
        if len(shape) > 1 and shape[-1] > 0:
            state[owner[number == which]] = len(trails)
            trails.append(Trail(math.prod(shape[:-1]), shape[-1]))
    return trails, state


def _after(masks: Calls, work: Work) -> tuple[Work, Rows]:
    """(first work of each op in the order in which its threads launched it, the place in it after each mask)."""
    launched = work[work.launch.there]
    op = np.where(launched.op.there, launched.op.rows, -1 - np.arange(len(launched)))
    launched = launched[np.sort(np.unique(op, return_index=True)[1])]
    thread, start = launched.launch.thread, launched.launch.start_ns
    order = np.lexsort((start, thread))
    both = np.lexsort((np.append(start, masks.end_ns), np.append(thread, masks.thread)))
    before = np.cumsum(both < len(launched))
    place = np.empty(len(both), np.int64)
    place[both] = before
    return launched[order], place[len(launched) :]


def _next(op: Signature, trail: Trail, pairs: Container[tuple[int, int]]) -> Trail:
    """The trail after an op; `pairs` are sizes of which every step makes several."""
    size = trail.rows * trail.classes
    if op.name == "aten::copy_":
        if op.types[1:2] == (trail.kind,) and math.prod(_shape(op, 1)) == size:
            return Trail(trail.rows, trail.classes, op.types[0], passed=True)
        return Trail(trail.rows, trail.classes, trail.kind)  # another tensor's, such as the table's
    if (
        op.name == "aten::sum"
        and _shape(op, 0) == (trail.rows, trail.classes)
        and op.types[:1] == (trail.kind,)
    ):
        sums = _sums(trail, (), trail.kind) if op.scalars[1:2] == ("[0]",) else None
        return Trail(trail.rows, trail.classes, trail.kind, instead=sums)
    if op.name not in _PRODUCTS:
        return _END
    first = _PRODUCTS[op.name]
    shapes, kinds = (_shape(op, first), _shape(op, first + 1)), op.types[first : first + 2]
    if kinds != (trail.kind, trail.kind) or trail.kind == _LONG:
        return _END
    if op.name == "aten::mul" and math.prod(shapes[0]) == math.prod(shapes[1]) == size:
        return Trail(instead=_op("gather", [[*shapes[0]], [], [trail.rows]], kinds[0], "Scalar", _LONG))
    both = shapes == ((trail.classes, trail.rows), (trail.rows, trail.classes))
    if (
        op.name == "aten::mm" and both and (trail.rows, trail.classes) in pairs
    ):  # counts, by two indices of each row
        return Trail(instead=_op("gather", [[trail.rows], [], [trail.rows]], kinds[0], "Scalar", _LONG))
    if op.name == "aten::mm" and shapes[0] == (trail.classes, trail.rows):  # sums of the rows of each class
        return replace(trail, passed=False, instead=_sums(trail, shapes[1][1:], kinds[0]))
    if op.name != "aten::mul" and shapes[0] == (trail.rows, trail.classes) and len(shapes[1]) == 2:
        return Trail(instead=_op("embedding", [[*shapes[1]], [trail.rows]], kinds[0], _LONG))
    return _END


def _sums(trail: Trail, width: tuple[int, ...], kind: str) -> Signature:
    dims = [[trail.classes, *width], [], [trail.rows], [trail.rows, *width], []]
    return _op("index_add_", dims, kind, "Scalar", _LONG, kind, "Scalar")


def _op(name: str, dims: list[list[int]], *types: str) -> Signature:
    return Signature(f"aten::{name}", tuple(dims), types, ("",) * len(dims))


def _shape(op: Signature, position: int) -> tuple[int, ...]:
    """Empty where it is not recorded."""
    try:
        return op.shape(position)
    except LookupError:
        return ()
