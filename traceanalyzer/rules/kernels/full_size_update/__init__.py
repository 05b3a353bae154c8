"""Small parts that are spread over a tensor of full size before they are added to another."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import not_below, quicker
from traceanalyzer.rules.kernels.full_size_update.updates import Update, updates_of
from traceanalyzer.tensors.signatures import Shape, tensors

_FRESH = re.compile(r"^aten::(fill_|zero_|copy_)$")
_WHOLE = re.compile(r"^aten::(fill_|zero_|copy_|add_?|sub_?|mul_?|where|index_\w+|b?mm|(badd|add)[bm]mm?)$")
_TOUCHED = {False: 4, True: 2}  # fill: written; sum: two read, one written. A copy: read and written
_NEEDED = {False: 3, True: 0}
_SCALED = 2  # times that scaling passes over a factor, in fills
_COPIES = re.compile(
    r"^aten::(clone|index_(add|copy|fill|put)|scatter(_add|_reduce)?|(slice|select)_scatter)$"
)


_MESSAGE = {
    "diagonal": "a diagonal ({part}) is written into a matrix of zeros ({whole}) and multiplied as if the matrix were "
    "full: {gpu} of all GPU work, in {ops}{where}",
    "added": "a part ({part}) is spread over a tensor of full size ({whole}), which an op then reads in full: this "
    "moves {touched} where {needed} would do; {gpu} of all GPU work, in {ops}{where}",
    "gradient": "backward spreads the gradient of a part ({part}) over a tensor of full size ({whole}) and adds it in "
    "full, for each part: this moves {touched} where {needed} would do; {gpu} of all GPU work, in {ops}{where}",
    "copied": "a tensor ({whole}) is copied in full to change a part of it ({part}), several times a step: {gpu} of "
    "GPU time, in {ops}{where}; each copy moves {touched}",
}
_ADVICE = {
    "diagonal": "Scale rows or columns instead: d[:, None] * x for torch.diag(d) @ x, x * d for x @ torch.diag(d).",
    "added": "Update the part alone, in place: total[..., z : z + depth] += part, total.index_add_(0, index, part). "
    "In place of a product with a mask: x[index] = 0.",
    "gradient": "Cut the tensor once, with unbind, split or chunk: their backward writes each part once.",
    "copied": "Change the part in place, with the op's form that ends in an underscore (index_copy_, scatter_) or an "
    "assignment to a slice, if nothing reads the old tensor afterwards.",
}


@dataclass(frozen=True, slots=True)
class Limits:
    max_part_share: float = limit(
        0.35,
        "reported only if at most this share of the tensor gets other values; if the part is larger, "
        "updating only this part saves too little; chosen",
    )
    min_gpu_share: float = limit(
        0.04,
        "reported only if ops on such tensors take at least this share of GPU time; chosen",
    )
    min_copies: int = limit(
        2,
        "for `copied`: reported only if at least this many tensors of one shape are copied in a step, as in"
        " a loop; chosen",
    )
    floor_ns: int = limit(
        2_000,
        "used for the predicted saving: no kernel is predicted to take less than this time, even with few "
        "bytes; measured on an H200 with torch 2.11",
    )


@rule(
    since="0.2",
    claims=Claims.WORK,
    specificity=2,
    min_share=0.03,
    limits=Limits,
    causes=("added", "gradient", "copied", "diagonal"),
)
def full_size_update(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """A small part is written into a tensor of full size, and then all of that tensor is read.

    What it looks for: three ops one after the other. First, a tensor is filled, usually with zeros. Then a
    small part of it gets other values (F.pad, a slice, an index, scatter). Then an op reads the whole tensor:
    an addition, a multiplication or torch.where.
    Cause `gradient`: a tensor is sliced several times. The backward pass of each slice then fills a full
    tensor.
    Cause `copied`: index_copy, scatter and similar ops copy a whole tensor, only to change a small part of
    it. Ops with an underscore, such as index_copy_, work in place.
    Cause `diagonal`: torch.diag of a vector is multiplied by a matrix.
    Why it costs: the fill and the addition read and write full tensors, although only a small part changes.
    Bad: total = total + F.pad(part, ...). Good: total[..., z : z + depth] += part. For `gradient`:
    x.unbind(1) once instead of x[:, t] for each t.
    How sure: shapes and the order of ops are recorded. The tensors themselves are not recorded, so confidence
    is medium.
    When it is wrong: the program needs the old values of the tensor again. Then one copy must remain.
    Saving: the time of the fill or the copy, and most of the addition's time. For `diagonal`: the time of
    torch.diag and of the product, minus the time to scale the matrix.
    Source: measured on an H100 with torch 2.11; "In-place operations with autograd" in PyTorch's
    documentation.
    """
    if not any(one.dims for one in inputs.signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows the sizes of tensors")
    wholes = _large(work, inputs, limits)
    updates = [one for one in updates_of(calls, wholes) if _is_small(one, limits)] if wholes else []
    for cause, found in _by_cause(updates, calls, limits):
        yield from _hits(cause, found, work, limits)


def _large(work: Work, inputs: WorkInputs, limits: Limits) -> set[Shape]:
    """Shapes on which fills, copies and sums together take long enough."""
    spent = np.bincount(inputs.number, work.dur_ns, len(inputs.signatures))
    by_shape: dict[Shape, float] = {}
    for op, ns in zip(inputs.signatures, spent.tolist(), strict=True):
        for shape in set(tensors(op)) if _WHOLE.match(op.name) else ():
            by_shape[shape] = by_shape.get(shape, 0.0) + ns
    least = limits.min_gpu_share / 2 * work.total_ns / max(len(np.unique(work.device)), 1)
    fresh = {tensors(op)[0] for op in inputs.signatures if _FRESH.match(op.name) and tensors(op)}
    return {shape for shape, ns in by_shape.items() if ns >= least and shape in fresh}


def _is_small(update: Update, limits: Limits) -> bool:
    few = 0 < update.part <= limits.max_part_share * math.prod(update.whole)
    return few and bool(update.copied or update.added)


def _by_cause(updates: Sequence[Update], calls: Calls, limits: Limits) -> Iterator[tuple[str, list[Update]]]:
    ops = calls[np.isin(calls.rows, [one.row for one in updates])]
    step = dict(zip(ops.rows.tolist(), ops.step.tolist(), strict=True))
    backward = ops.outer_op.name.matches("^autograd::engine::evaluate_function")
    behind = set(ops.rows[backward].tolist())
    copying = set(ops.rows[ops.outer_op.name.meets(_COPIES.search)].tolist())
    sums = [one for one in updates if one.added and not one.multiplied]
    yield "added", [one for one in sums if one.row not in behind]
    yield "gradient", [one for one in sums if one.row in behind]
    yield "diagonal", [one for one in updates if one.multiplied]
    copies = [one for one in updates if not one.added and one.row in copying]
    often = Counter((one.whole, step[one.row]) for one in copies)
    yield "copied", [one for one in copies if often[one.whole, step[one.row]] >= limits.min_copies]


def _hits(cause: str, updates: Sequence[Update], work: Work, limits: Limits) -> Iterator[Hits]:
    if not updates:
        return
    needed = _needed_shares(updates, work)
    rows = work.op.rows
    shares = np.array([needed.get(row, -1.0) for row in rows.tolist()])
    largest = max(updates, key=lambda one: math.prod(one.whole))
    for device, found in work[shares >= 0].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        part = shares[found.entries]
        needed_ns = not_below(found.dur_ns * part, found, limits.floor_ns)
        yield Hits(
            **quicker(found, np.where(part > 0, needed_ns, 0.0)),
            cause=cause,
            message=_MESSAGE[cause],
            advice=_ADVICE[cause],
            confidence=Confidence.LOW if largest.copied else Confidence.MEDIUM,
            evidence={
                **told(found),
                "gpu_share": share,
                "whole": _shape(largest.whole),
                "part": _shape(largest.part_shape),
                "updates": len(updates),
                "touched_bytes": _TOUCHED[largest.copied] * math.prod(largest.whole) * largest.item_bytes,
                "needed_bytes": _NEEDED[largest.copied] * largest.part * largest.item_bytes,
            },
        )


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _needed_shares(updates: Sequence[Update], work: Work) -> dict[int, float]:
    """Row of an op on a whole tensor -> the share of its time that the part needs."""
    rows, which = np.unique(work.op.rows, return_inverse=True)
    spent = dict(zip(rows.tolist(), np.bincount(which, work.dur_ns).tolist(), strict=True))
    needed: dict[int, float] = {}
    for one in updates:
        needed.update(dict.fromkeys(one.made, 0.0))
        needed.update(dict.fromkeys(one.added, one.part / math.prod(one.whole)))
        if one.multiplied:  # what scales the other factor reads and writes it
            filled_ns = sum(spent.get(row, 0.0) for row in one.made)
            scaled = _SCALED * _other(one) / math.prod(one.whole) * filled_ns
            needed[one.added[-1]] = min(scaled / max(spent.get(one.added[-1], 0.0), 1.0), 1.0)
    return needed


def _other(update: Update) -> int:
    """Elements of the factor that the whole tensor is multiplied with."""
    other = next((shape for shape in update.multiplied if shape != update.whole), update.whole)
    return math.prod(other)
