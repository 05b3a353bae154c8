"""Small parts that are spread over a tensor of full size before they are added to another."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import (
    Shape,
    Signature,
    number_bytes,
    shape_text,
    signatures_of,
    tensors,
)
from traceanalyzer.tensors.top_ops import require_shapes
from traceanalyzer.timeline.names import ALLOCATING_OP

_FRESH = re.compile(r"^aten::(fill_|zero_|copy_)$")
_WHOLE = re.compile(r"^aten::(fill_|zero_|copy_|add_?|sub_?|mul_?|where|index_\w+|b?mm|(badd|add)[bm]mm?)$")
# Memory passes: a fill writes, a sum reads two tensors and writes one; a copy reads and writes.
_TOUCHED = {False: 4, True: 2}
_NEEDED = {False: 3, True: 0}
# Passes over a factor to scale it, in units of a fill.
_SCALED = 2
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
_FILL = re.compile(r"^aten::(fill|zero)_$")
_CUT = re.compile(r"^aten::(slice|select|narrow|as_strided|diagonal|unfold)$")
_WRITE_PART = re.compile(r"^aten::(copy|fill|zero|add|sub|mul|div|index_put|masked_fill)_$")
_WRITE_AT = re.compile(r"^aten::(_?index_put(_impl)?|index_(add|copy|fill)|scatter(_add|_reduce)?)_$")
# Position of the values among the inputs; 3 for all other ops.
_VALUES_INPUT = {
    "index_put": 2,
    "_index_put_impl": 2,
    "slice_scatter": 1,
    "select_scatter": 1,
}
_WRITE_COPY = re.compile(r"^aten::(index_(add|copy|fill|put)|scatter(_add|_reduce)?|(slice|select)_scatter)$")
_SUM = re.compile(r"^aten::(add|sub|rsub|logical_or|bitwise_or)_?$")
# A product with ones changes only the part that differs.
_MASKED = re.compile(r"^aten::mul_?$")
_PRODUCT = re.compile(r"^aten::(mm|bmm|addmm|baddbmm)$")
_WRAPPER = re.compile(
    r"^aten::(to|_to_copy|clone|contiguous|type_as|zeros_like|new_zeros|full_like|new_full)$"
)


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
    require_shapes(inputs.signatures, "shows the sizes of tensors")
    wholes = _large(work, inputs, limits)
    updates = [update for update in updates_of(calls, wholes) if _is_small(update, limits)] if wholes else []
    for cause, of_cause in _by_cause(updates, calls, limits):
        yield from _hits(cause, of_cause, work, limits)


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
    ops = calls[np.isin(calls.rows, [update.row for update in updates])]
    step = dict(zip(ops.rows.tolist(), ops.step.tolist(), strict=True))
    backward = ops.outer_op.name.matches("^autograd::engine::evaluate_function")
    in_backward = set(ops.rows[backward].tolist())
    copying = set(ops.rows[ops.outer_op.name.meets(_COPIES.search)].tolist())
    sums = [update for update in updates if update.added and not update.multiplied]
    yield "added", [update for update in sums if update.row not in in_backward]
    yield "gradient", [update for update in sums if update.row in in_backward]
    yield "diagonal", [update for update in updates if update.multiplied]
    copies = [update for update in updates if not update.added and update.row in copying]
    copy_count = Counter((update.whole, step[update.row]) for update in copies)
    yield (
        "copied",
        [update for update in copies if copy_count[update.whole, step[update.row]] >= limits.min_copies],
    )


def _hits(cause: str, updates: Sequence[Update], work: Work, limits: Limits) -> Iterator[Hits]:
    if not updates:
        return
    needed = _needed_shares(updates, work)
    rows = work.op.rows
    shares = np.array([needed.get(row, -1.0) for row in rows.tolist()])
    largest = max(updates, key=lambda update: math.prod(update.whole))
    for pieces, share in work[shares >= 0].device_shares(limits.min_gpu_share):
        part = shares[pieces.entries]
        needed_ns = clamp_to_floor(pieces.dur_ns * part, pieces, limits.floor_ns)
        yield Hits(
            **reduce_to(pieces, np.where(part > 0, needed_ns, 0.0)),
            cause=cause,
            message=_MESSAGE[cause],
            advice=_ADVICE[cause],
            confidence=Confidence.LOW if largest.copied else Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "whole": shape_text(largest.whole),
                "part": shape_text(largest.part_shape),
                "updates": len(updates),
                "touched_bytes": _TOUCHED[largest.copied] * math.prod(largest.whole) * largest.item_bytes,
                "needed_bytes": _NEEDED[largest.copied] * largest.part * largest.item_bytes,
            },
        )


def _needed_shares(updates: Sequence[Update], work: Work) -> dict[int, float]:
    """Row of an op on a whole tensor -> the share of its time that the part needs."""
    rows, which = np.unique(work.op.rows, return_inverse=True)
    spent = dict(zip(rows.tolist(), np.bincount(which, work.dur_ns).tolist(), strict=True))
    needed: dict[int, float] = {}
    for update in updates:
        needed.update(dict.fromkeys(update.filled, 0.0))
        needed.update(dict.fromkeys(update.added, update.part / math.prod(update.whole)))
        # Scaling the other factor reads and writes it.
        if update.multiplied:
            filled_ns = sum(spent.get(row, 0.0) for row in update.filled)
            scaled = _SCALED * _elements_of_factor(update) / math.prod(update.whole) * filled_ns
            needed[update.added[-1]] = min(scaled / max(spent.get(update.added[-1], 0.0), 1.0), 1.0)
    return needed


def _elements_of_factor(update: Update) -> int:
    """Elements of the factor that the whole tensor is multiplied with."""
    other = next((shape for shape in update.multiplied if shape != update.whole), update.whole)
    return math.prod(other)


@dataclass(slots=True)
class Update:
    """A part that was written into a tensor of full size, which was then passed over.

    Attributes:
        whole: shape of the tensor.
        part: elements written, as far as known at most all of them.
        part_shape: of the largest write.
        item_bytes: of one element.
        filled: rows of `trace.cpu` of the ops that filled or copied the whole tensor.
        added: rows of the ops that added the whole tensor to another; none of a copy.
        copied: whether the tensor began as a copy of another, not as a fill.
        ones: whether it was filled with ones.
        diagonal: whether the part is its diagonal.
        multiplied: shapes of the product that the whole tensor is a factor of; none of other updates.
    """

    whole: Shape
    copied: bool
    filled: list[int]
    item_bytes: int = 4
    part: int = 0
    part_shape: Shape = ()
    added: list[int] = field(default_factory=list)
    viewed: bool = False
    ones: bool = False
    diagonal: bool = False
    multiplied: list[Shape] = field(default_factory=list)

    @property
    def row(self) -> int:
        """Of the op that finishes it: the sum, else the copy; -1 before it is made."""
        return (self.added or self.filled or [-1])[-1]

    def write(self, shape: Shape) -> None:
        """Note that so many more elements have been written."""
        self.part += math.prod(shape)
        self.viewed = False
        if math.prod(shape) > math.prod(self.part_shape or (0,)):
            self.part_shape = shape


def updates_of(calls: Calls, wholes: set[Shape]) -> Iterator[Update]:
    """Updates of tensors of the given shapes, thread by thread, in order of time."""
    ops = calls[calls.is_op & calls.name.matches(r"^aten::")]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    useful = np.array([_concerns(op, wholes) for op in signatures], bool)[number]
    ops, number = ops[useful], number[useful]
    for thread in np.unique(ops.thread).tolist():
        members = np.flatnonzero(ops.thread == thread)
        members = members[np.lexsort((-ops.end_ns[members], ops.start_ns[members]))]
        yield from _updates_of_thread(ops[members], number[members], signatures, wholes)


def _concerns(op: Signature, wholes: set[Shape]) -> bool:
    """Whether it reads a tensor of one of these shapes, or may write a part of one."""
    if ALLOCATING_OP.search(op.name) or _WRAPPER.match(op.name):
        return False
    return bool(_WRITE_PART.match(op.name)) or not wholes.isdisjoint(tensors(op))


def _updates_of_thread(
    ops: Calls, number: Rows, signatures: Sequence[Signature], wholes: set[Shape]
) -> Iterator[Update]:
    pending: dict[Shape, Update] = {}
    written_until = 0
    for row, which, start, end in zip(
        ops.rows.tolist(), number.tolist(), ops.start_ns.tolist(), ops.end_ns.tolist(), strict=True
    ):
        op = signatures[which]
        shapes = tensors(op)
        first = shapes[0] if shapes else ()
        if _WRITE_PART.match(op.name) and start >= written_until:
            parts = [
                last for last in pending.values() if last.viewed and math.prod(first) < math.prod(last.whole)
            ]
            for update in parts:
                update.write(first)
                # Ops inside this one write the same elements.
                written_until = end
        for whole in wholes.intersection(shapes):
            before = pending.pop(whole, None)
            after = _pending_after(before, op, row, whole, shapes)
            if after is not None:
                pending[whole] = after
            if before is not None and after is not before and before.part:
                yield before
    yield from (last for last in pending.values() if last.part)


def _pending_after(
    before: Update | None, op: Signature, row: int, whole: Shape, shapes: list[Shape]
) -> Update | None:
    """What is pending after an op on the whole tensor: the same update, a new one, or none."""
    if _WRITE_COPY.match(op.name) and shapes[0] == whole:
        return Update(whole, True, [], number_bytes(op), math.prod(_values(op)), _values(op))
    if _FILL.match(op.name):
        return _after_fill(before, op, row, whole)
    if op.name == "aten::copy_" and shapes[:2] == [whole, whole]:
        return _after_copy(before, op, row, whole)
    return None if before is None else _after_use(before, op, row, shapes)


def _after_fill(before: Update | None, op: Signature, row: int, whole: Shape) -> Update:
    # zero_ calls fill_: both rows belong to one fill
    if before is not None and not (before.copied or before.part or before.viewed):
        before.filled.append(row)
        return before
    return Update(whole, False, [row], number_bytes(op), ones=op.scalars[1:2] in (("1",), ("1.",)))


def _after_copy(before: Update | None, op: Signature, row: int, whole: Shape) -> Update | None:
    # a filled tensor is converted before it is added
    if before is not None and before.part and not before.copied:
        before.added.append(row)
        return before
    if before is not None and before.copied and not before.filled:
        before.filled.append(row)
        return before
    return Update(whole, True, [row], number_bytes(op)) if len(set(op.types[:2])) == 1 else None


def _after_use(update: Update, op: Signature, row: int, shapes: list[Shape]) -> Update | None:
    """The update after an op that writes to a part, views, adds or multiplies the tensor; None after other ops."""
    if _WRITE_AT.match(op.name) and shapes[0] == update.whole:
        update.part = max(update.part, math.prod(_values(op)))
        update.part_shape = update.part_shape or _values(op)
        return update
    if is_view(op.name):
        update.viewed |= bool(_CUT.match(op.name))
        update.diagonal |= op.name == "aten::diagonal"
        return update
    if not update.copied and _takes_all(update, op, shapes):
        update.added.append(row)
        update.multiplied = shapes[-2:] if _PRODUCT.match(op.name) else []
        return None
    # matmul calls the product that takes the whole tensor
    return update if op.name == "aten::matmul" and update.diagonal else None


def _takes_all(update: Update, op: Signature, shapes: list[Shape]) -> bool:
    """Whether an op passes over the whole tensor though only the part of it matters."""
    if update.diagonal and len(update.whole) > 1 and _PRODUCT.match(op.name):
        return True
    if op.name == "aten::where":
        return shapes.count(update.whole) > 1
    pointwise = _SUM.match(op.name) or (update.ones and _MASKED.match(op.name))
    return bool(pointwise) and shapes[:2] == [update.whole, update.whole]


def _values(op: Signature) -> Shape:
    """Shape of what an indexed write writes; of a single number that of its index."""
    place = _VALUES_INPUT.get(op.name.removeprefix("aten::").removesuffix("_"), 3)
    try:
        return op.shape(place) or op.shape(place - 1)
    except LookupError:
        return tensors(op)[-1]
