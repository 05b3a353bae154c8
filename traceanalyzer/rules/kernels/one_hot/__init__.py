"""One-hot tensors on the device, where the index would do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_bounds import bound_of, reached_ns
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.evidence import op_times, told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.rules.kernels.one_hot.one_hots import followed
from traceanalyzer.tensors.signatures import Signature, tensors

_WRITTEN = 1 / 3  # of a product, which reads two tensors and writes one: a gradient of zeros is written
_NEAR = 2  # numbers of autograd from the op that makes a factor to the product, views between; chosen


# Dice loss over 152 classes of 4x512x512, H100: gather and scatter_add save 6.8 of the 25.6 ms of a step.
@rule(since="0.1", claims=Claims.WORK)
def one_hot(calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus) -> Iterator[Hits]:
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
    made, _ = masks.launched()
    if len(made) == 0:
        return
    converted, read, instead = followed(masks, work, inputs)
    needed_ns = np.zeros(len(work))
    first = read[: len(instead)]
    needed_ns[first.entries] = _needed(first, instead, gpus)
    again, left = _backward(work, inputs, first[first.op.name.one_of("aten::mul")])
    needed_ns[again.entries] = again.dur_ns * left
    read = work[np.union1d(read.entries, again.entries)]
    parts = made, converted, read
    spent = work[np.sort(np.concatenate([part.entries for part in parts]))]
    for device, found in spent.by_device():
        yield _hits(found, needed_ns[found.entries], *(part[part.device == device] for part in parts))


def _needed(read: Work, instead: list[Signature], gpus: Gpus) -> Floats:
    """What each product would take as gather or embedding, ns; as long as it takes where that is not known."""
    needed = read.dur_ns.astype(np.float64)
    texts = list(map(repr, instead))
    distinct = dict(zip(texts, instead, strict=True))
    position = {text: number for number, text in enumerate(distinct)}
    number = np.array([position[text] for text in texts], np.int64)
    for device, _ in read.by_device():
        target = np.array([_reached_ns(op, gpus[device].peaks) for op in distinct.values()])
        mine = read.device == device
        needed[mine] = np.minimum(needed[mine], target[number[mine]])
    return needed


def _backward(work: Work, inputs: WorkInputs, products: Work) -> tuple[Work, Floats]:
    """(backward of products with masks, what is left of each piece): gradients of what was gathered are scattered.

    The gradient has the mask's layout, which what made the product's other factor changes back: the node before.
    """
    column = ints(work.events.trace.lanes.cpu, "sequence")
    number, own = (pick(column, one.outer_op.rows, NULL_INT) for one in (work, products))
    own = np.unique(own[own != NULL_INT])
    behind = np.append(own, np.iinfo(np.int64).max)[np.searchsorted(own, number)] - number
    sizes = {
        tensors(inputs.signatures[which])[0] for which in np.unique(inputs.number[products.entries]).tolist()
    }
    node = work.outer_op.name.matches(r"Backward\d*$") & (number != NULL_INT)
    product = (
        node & (behind == 0) & inputs.meets(lambda op: op.name == "aten::mul" and sizes & {*tensors(op)[:1]})
    )
    moved = (
        (behind > 0) & (behind <= _NEAR) & inputs.meets(lambda op: _moves(op) and sizes & {*tensors(op)[:1]})
    )
    found = work[product | node & moved]
    return found, np.where(product, _WRITTEN, 0.0)[found.entries]


def _moves(op: Signature) -> bool:
    """A copy that changes no type."""
    return op.name == "aten::copy_" and len(tensors(op)) > 1 and op.types[0] == op.types[1]


def _reached_ns(op: Signature, peaks: Peaks | None) -> float:
    """What such an op takes; endless where that is not known."""
    bound = bound_of(op)
    return math.inf if bound is None or peaks is None else float(reached_ns(bound, peaks, None))


def _hits(found: Work, needed_ns: Floats, made: Work, converted: Work, read: Work) -> Hits:
    parts = [
        f"{{{name}_of_step}} {text}"
        for name, text, part in (
            ("making", "to make them", made),
            ("converting", "to convert them", converted),
            ("reading", "to compute with them, in {readers:of this part}", read),
        )
        if len(part)
    ]
    return Hits(
        **quicker(found, needed_ns),
        message="making one-hot tensors takes {spent_a_step}{where}"
        if len(made) and len(parts) == 1
        else "one-hot tensors take {spent_a_step}{where}: " + ", ".join(parts),
        advice="Use the index itself. To pick or add along the classes: gather, scatter_add. As a target: "
        "cross_entropy takes class indices. For a product with a table: torch.nn.functional.embedding. "
        "For counts: torch.bincount. For sums of rows: index_add.",
        confidence=Confidence.MEDIUM if len(read) else Confidence.HIGH,
        evidence={
            **told(found),
            "spent_ns": found.total_ns,
            "making_ns": made.total_ns,
            "converting_ns": converted.total_ns,
            "reading_ns": read.total_ns,
            "readers": op_times(read),
        },
    )
