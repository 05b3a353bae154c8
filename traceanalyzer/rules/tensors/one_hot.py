"""One-hot tensors on the device, where the index would do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct, grouped, pick
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import bound_of, reached_ns
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, op_times
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature, tensors

# Share of a product's time to write a gradient of zeros: the product reads two tensors and writes one.
_WRITTEN = 1 / 3
# Sequence numbers from the op that makes a factor to the product, with views between; chosen.
_NEAR = 2
# Ops after one_hot: conversions of the mask and of a weight, and the op that reads it.
_HOPS = 4
_LONG = "long int"
# Position of the first factor by op.
_PRODUCTS = {"aten::mul": 0, "aten::mm": 0, "aten::addmm": 1}


# Dice loss over 152 classes of 4x512x512, H100: gather and scatter_add save 6.8 of the 25.6 ms of a step.
@rule(since="0.1", claims=Claims.WORK)
def one_hot(calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None) -> Iterator[Hits]:
    """One-hot tensors are written out, though the index is enough.

    What it looks for: calls of torch.nn.functional.one_hot, and ops that use the result to count
    classes, to pick rows, or to sum rows.
    Why it costs: one_hot writes eight bytes per class and element, nearly all of them zeros. A conversion
    reads all these bytes again. A product multiplies the zeros, only to pick one of many values.
    Bad: F.one_hot(target, 150).permute(0, 3, 1, 2).float() in a Dice loss; one_hot(x, words).float() @ table.
    Good: gather and scatter_add along the classes for a Dice loss; class indices for cross_entropy; an
    embedding for a product with a table; bincount to count; index_add to sum rows.
    How sure: only one_hot creates such tensors. Which ops read them is concluded from the order of ops, and
    from dtypes and sizes.
    When it is wrong: the program changes the one-hot tensor before use, for example to smooth or mix labels.
    Saving: the time of the one-hot tensor and its product, minus the time that gather or an embedding takes.
    Source: torch.nn.functional.one_hot in PyTorch's documentation (the result is int64); measured on an H100,
    torch 2.11.
    """
    masks = calls[calls.is_op & calls.name.one_of("aten::one_hot")]
    making, _ = masks.launched()
    if len(making) == 0:
        return
    converted, read, instead = follow_masks(masks, work, inputs)
    needed_ns = np.zeros(len(work))
    first = read[: len(instead)]
    needed_ns[first.entries] = _needed(first, instead, gpus)
    again, needed_share = _backward(work, inputs, first[first.op.name.one_of("aten::mul")])
    needed_ns[again.entries] = again.dur_ns * needed_share
    read = work[distinct(np.append(read.entries, again.entries))]
    parts = making, converted, read
    spent = work[np.sort(np.concatenate([part.entries for part in parts]))]
    for device, pieces in spent.by_device():
        yield _hits(flow, pieces, needed_ns[pieces.entries], *(part[part.device == device] for part in parts))


def _needed(read: Work, instead: list[Signature], gpus: Gpus) -> Floats:
    """What each product would take as gather or embedding, ns; as long as it takes where that is not known."""
    needed = read.dur_ns.astype(np.float64)
    texts = list(map(repr, instead))
    ops = dict(zip(texts, instead, strict=True))
    position = {text: number for number, text in enumerate(ops)}
    number = np.array([position[text] for text in texts], np.int64)
    for device, _ in read.by_device():
        target = np.array([_reached_ns(op, gpus[device].peaks) for op in ops.values()])
        on_device = read.device == device
        needed[on_device] = np.minimum(needed[on_device], target[number[on_device]])
    return needed


def _backward(work: Work, inputs: WorkInputs, products: Work) -> tuple[Work, Floats]:
    """(backward of products with masks, what is left of each piece): gradients of what was gathered are scattered.

    The gradient has the mask's layout, which what made the product's other factor changes back: the node before.
    """
    column = ints(work.events.trace.lanes.cpu, "sequence")
    number, of_products = (pick(column, selection.outer_op.rows, NULL_INT) for selection in (work, products))
    of_products = distinct(of_products[of_products != NULL_INT])
    distance = np.append(of_products, np.iinfo(np.int64).max)[np.searchsorted(of_products, number)] - number
    sizes = {
        tensors(inputs.signatures[which])[0] for which in distinct(inputs.number[products.entries]).tolist()
    }
    node = work.outer_op.name.matches(r"Backward\d*$") & (number != NULL_INT)
    product = (
        node
        & (distance == 0)
        & inputs.meets(lambda op: op.name == "aten::mul" and sizes & {*tensors(op)[:1]})
    )
    moved = (
        (distance > 0)
        & (distance <= _NEAR)
        & inputs.meets(lambda op: _moves(op) and sizes & {*tensors(op)[:1]})
    )
    pieces = work[product | node & moved]
    return pieces, np.where(product, _WRITTEN, 0.0)[pieces.entries]


def _moves(op: Signature) -> bool:
    """A copy that changes no type."""
    return op.name == "aten::copy_" and len(tensors(op)) > 1 and op.types[0] == op.types[1]


def _reached_ns(op: Signature, peaks: Peaks | None) -> float:
    """What such an op takes; endless where that is not known."""
    bound = bound_of(op)
    return math.inf if bound is None or peaks is None else float(reached_ns(bound, peaks, None))


def _hits(
    flow: Flow | None, pieces: Work, needed_ns: Floats, making: Work, converted: Work, read: Work
) -> Hits:
    parts = [
        f"{{{name}_of_step}} {text}"
        for name, text, part in (
            ("making", "to make them", making),
            ("converting", "to convert them", converted),
            ("reading", "to compute with them, in {readers:of this part}", read),
        )
        if len(part)
    ]
    return Hits(
        **reduce_to(pieces, needed_ns),
        message="making one-hot tensors takes {spent_a_step}{where}"
        if len(making) and len(parts) == 1
        else "one-hot tensors take {spent_a_step}{where}: " + ", ".join(parts),
        advice="Use the index itself. To pick or add along the classes: gather, scatter_add. As a target: "
        "cross_entropy takes class indices. For a product with a table: torch.nn.functional.embedding. "
        "For counts: torch.bincount. For sums of rows: index_add.",
        confidence=confidence_of(flow, pieces.op) if len(read) else Confidence.HIGH,
        evidence={
            **gpu_time_evidence(pieces),
            "spent_ns": pieces.total_ns,
            "making_ns": making.total_ns,
            "converting_ns": converted.total_ns,
            "reading_ns": read.total_ns,
            "readers": op_times(read),
        },
    )


@dataclass(frozen=True, slots=True)
class Trail:
    """State of a one-hot tensor after some ops.

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


def follow_masks(masks: Calls, work: Work, inputs: WorkInputs) -> tuple[Work, Work, list[Signature]]:
    """(conversions of one-hot tensors, products with them, what would do instead of each of the first of those).

    Followed is each thread in the order of its ops, by what each launches first, from the end of aten::one_hot on.
    """
    trails, state = _initial_trails(masks, inputs)
    counts = Counter((trails[which].rows, trails[which].classes) for which in state[state > 0].tolist())
    pairs = {size for size, count in counts.items() if count > len({*masks.step.tolist()})}
    ordered, place = _places_after(masks, work)
    parts = []
    for hop in range(_HOPS):
        on = np.flatnonzero((state > 0) & (place + hop < len(ordered)))
        piece = ordered[place[on] + hop]
        same = (piece.launch.thread == masks.thread[on]) & (piece.step == masks.step[on])
        on, piece = on[same], piece[same]
        number = inputs.number[piece.entries]
        pair, first = grouped([number, state[on]])
        begun = zip(number[first].tolist(), state[on][first].tolist(), strict=True)
        state[:] = 0
        state[on] = len(trails) + pair
        trails += [_next_trail(inputs.signatures[which], trails[before], pairs) for which, before in begun]
        parts.append((piece.entries, state[on]))
        state[np.array([op.rows == 0 for op in trails], bool)[state]] = 0
    entries, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    passed = np.array([op.passed for op in trails], bool)[after]
    read = np.array([op.instead is not None for op in trails], bool)[after]
    instead = [trails[which].instead for which in after[read].tolist()]
    whole = (np.concatenate([entries[some], _other_kernels(work, entries[some])]) for some in (passed, read))
    converted, products = (work[some] for some in whole)
    return converted, products, [op for op in instead if op is not None]


def _other_kernels(work: Work, entries: Rows) -> Rows:
    """What else the ops of these entries launched: a large copy is two kernels."""
    rows = work.op.rows
    same = np.isin(rows, rows[entries]) & work.op.there
    same[entries] = False
    return np.flatnonzero(same)


def _initial_trails(masks: Calls, inputs: WorkInputs) -> tuple[list[Trail], Rows]:
    """(trails, of which the first has ended; the one of each mask, by what is scattered into it)."""
    launched, owner = masks.launched()
    number = inputs.number[launched.entries]
    trails, state = [_END], np.zeros(len(masks), np.int64)
    for which in dict.fromkeys(number.tolist()):
        op = inputs.signatures[which]
        shape = _shape(op, 0) if op.name == "aten::scatter_" else ()
        if len(shape) > 1 and shape[-1] > 0:
            state[owner[number == which]] = len(trails)
            trails.append(Trail(math.prod(shape[:-1]), shape[-1]))
    return trails, state


def _places_after(masks: Calls, work: Work) -> tuple[Work, Rows]:
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


def _next_trail(op: Signature, trail: Trail, pairs: Container[tuple[int, int]]) -> Trail:
    """The trail after an op; `pairs` are sizes of which every step makes several."""
    size = trail.rows, trail.classes
    if op.name == "aten::copy_":
        converts = op.types[1:2] == (trail.kind,) and math.prod(_shape(op, 1)) == math.prod(size)
        # another copy is of another tensor, such as the table
        return Trail(*size, op.types[0], passed=True) if converts else Trail(*size, trail.kind)
    if op.name == "aten::sum" and _shape(op, 0) == size and op.types[:1] == (trail.kind,):
        sums = _sums(trail, (), trail.kind) if op.scalars[1:2] == ("[0]",) else None
        return Trail(*size, trail.kind, instead=sums)
    return _after_product(op, trail, size in pairs) if op.name in _PRODUCTS else _END


def _after_product(op: Signature, trail: Trail, in_pairs: bool) -> Trail:
    """The trail after a product, `in_pairs` if every step makes several one-hot tensors of this size."""
    first, size, kind = _PRODUCTS[op.name], (trail.rows, trail.classes), trail.kind
    left, right = _shape(op, first), _shape(op, first + 1)
    if op.types[first : first + 2] != (kind, kind) or kind == _LONG:
        return _END
    if op.name == "aten::mul":
        if not math.prod(left) == math.prod(right) == math.prod(size):
            return _END
        return Trail(instead=_op("gather", [[*left], [], [trail.rows]], kind, "Scalar", _LONG))
    if op.name == "aten::mm" and left == size[::-1]:
        # a product of two one-hot tensors counts pairs of classes, another one sums the rows of each class
        if right == size and in_pairs:
            return Trail(instead=_op("gather", [[trail.rows], [], [trail.rows]], kind, "Scalar", _LONG))
        return replace(trail, passed=False, instead=_sums(trail, right[1:], kind))
    if left == size and len(right) == 2:
        return Trail(instead=_op("embedding", [[*right], [trail.rows]], kind, _LONG))
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
