"""A matrix product works on rows that were copied several times before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.signatures import ITEM_BYTES, Signature, signatures_of
from traceanalyzer.roofline.tensor_types import tensors
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.timeline.names import VIEWING_OP

_GATHER = r"^aten::(index_select|index)$"
_CONVERTS = ("aten::copy_", "aten::_to_copy", "aten::clone")
_LAYERS = ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul")


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: int = limit(
        4,
        "each row must be copied at least this many times; fewer copies save less than gathering costs; chosen",
    )
    min_rows: int = limit(
        4_096, "the product must have at least this many rows; launching limits smaller ones; chosen"
    )
    min_gpu_share: float = limit(
        0.05, "products on copied rows must take at least this share of GPU time; chosen"
    )
    left_share: float = limit(
        0.25, "gathering and adding the results takes this share of the products' time; chosen"
    )


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits)
def product_of_copies(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """A linear layer is applied to copies of the same rows.

    What it looks for: copied rows, and then a linear layer on them. Rows are copied by a cat with a tensor that
    is expanded at least four times (by its strides), or by a gather (index_select, x[index]) of at least four
    times as many rows as its source has. The linear layer comes right after the gather, or a matrix product has
    exactly the numbers of rows and columns of the copy, forward or backward.
    Why it costs: all copies of a row give the same product.
    Bad: linear(torch.cat([x[:, None].expand(-1, k, -1), x[neighbours]], -1)). Good: the weight in two parts,
    each applied to x once; then gather and add the results. The result is the same.
    How sure: strides and numbers of rows show copied rows. That no op is between copy and product is concluded
    from order and shapes, so confidence is medium.
    When it is wrong: a non-linear op is between the copies and the product.
    Saving: the products' time minus a quarter for gathering and adding. The conversion of expanded rows after
    cat, and the split of their gradient, count as well.
    Source: algebra; measured on an H200 with torch 2.11.
    """
    if not any(op.dims for op in inputs.signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows which rows are copies")
    expanded = _copied(inputs, limits)
    copied = {**expanded, **_gathered(calls, limits)}
    chosen = inputs.meets(lambda op: _multiplies(op, copied) or _joined(op) in copied)
    passed = inputs.meets(lambda op: _passes(op, expanded)) | _taken_apart(work, inputs, expanded)
    for device, found in work[chosen & work.kind.one_of("compute")].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if not copied or share < limits.min_gpu_share:
            continue
        (rows, _), times = max(copied.items(), key=lambda item: item[0][0])
        spent = work[(chosen | passed) & work.kind.one_of("compute") & (work.device == device)]
        left = np.where(passed[spent.entries], 0.0, max(limits.left_share, 1 / times))
        yield Hits(
            **quicker(spent, spent.dur_ns * left),
            message="matrix products work on up to {rows} rows, which repeat the same numbers {copies} "
            "times: {gpu} of GPU time{where}",
            advice="Apply the linear layer before copying: split its weight into the parts that cat joins, "
            "multiply the rows once by each, then gather and add the results. The result is the same.",
            confidence=Confidence.MEDIUM,
            evidence={**told(found), "gpu_share": share, "rows": rows, "copies": times},
        )


def _copied(inputs: WorkInputs, limits: Limits) -> dict[tuple[int, int], int]:
    """(rows, width) of what cat makes of an expanded tensor -> how often it is expanded."""
    found = (_copied_by(op, limits) for op in inputs.signatures)
    return {one[:2]: one[2] for one in found if one is not None}


def _copied_by(op: Signature, limits: Limits) -> tuple[int, int, int] | None:
    """(rows, width, times) of a cat of an expanded tensor; None for other ops."""
    joined = _joined(op)
    if joined is None or not op.strides or not _parallel(op.dims[0], op.strides[0]):
        return None
    times = max(
        math.prod(size for size, step in zip(shape, steps, strict=True) if step == 0 and size > 1)
        for shape, steps in zip(op.dims[0], op.strides[0], strict=True)
    )
    return (*joined, times) if times >= limits.min_times and joined[0] >= limits.min_rows else None


def _joined(op: Signature) -> tuple[int, int] | None:
    """(rows, width) of what cat makes of tensors that differ in their last dimension only; None for other ops."""
    parts = tensors(op) if op.name == "aten::cat" else []
    if not parts or any(len(part) < 2 or part[:-1] != parts[0][:-1] for part in parts):
        return None
    return math.prod(parts[0][:-1]), sum(part[-1] for part in parts)


def _passes(op: Signature, copied: Mapping[tuple[int, int], int]) -> bool:
    """A conversion or copy of joined rows."""
    shape = next(iter(tensors(op)), ()) if op.name in _CONVERTS else ()
    return len(shape) > 1 and (math.prod(shape[:-1]), shape[-1]) in copied


def _taken_apart(work: Work, inputs: WorkInputs, copied: Mapping[tuple[int, int], int]) -> Mask:
    """Copies in the backward of cat of the parts of such rows; bool of shape (work,)."""
    rows = {one for one, _ in copied}
    parts = inputs.meets(
        lambda op: op.name == "aten::copy_" and any(math.prod(one[:-1]) in rows for one in tensors(op)[:1])
    )
    return parts & work.outer_op.name.matches(r"CatBackward")


def _gathered(calls: Calls, limits: Limits) -> dict[tuple[int, int], int]:
    """(rows, width) of gathered rows, or of what the next op joins them to -> how often each row is there."""
    ops = calls[calls.is_top_op & ~calls.name.meets(VIEWING_OP.search)]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    gathers = np.flatnonzero(ops.name.matches(_GATHER)[:-2])
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    in_order = (number[gathers + later].tolist() for later in range(3))
    found: dict[tuple[int, int], int] = {}
    for first, second, third in set(zip(*in_order, strict=True)):
        rows, width, times = _gather(signatures[first])
        reader, after = signatures[second], signatures[third]
        takes = (rows, width) in {(math.prod(one[:-1]), one[-1]) for one in tensors(reader) if one}
        if not takes or times < limits.min_times or rows < limits.min_rows:
            continue
        if reader.name in _LAYERS:
            found[rows, width] = times
        elif (joined := _joined(reader)) and after.name in _LAYERS:
            found[joined] = times
    return found


def _gather(op: Signature) -> tuple[int, int, int]:
    """(rows, width, times) of rows of a matrix that are gathered, zeros where the inputs do not say."""
    shapes = tensors(op)
    along_rows = op.name != "aten::index_select" or op.scalars[1:2] == ("0",)
    if len(shapes) != 2 or len(shapes[0]) != 2 or not along_rows or "bool" in op.types:
        return 0, 0, 0
    rows = math.prod(shapes[1])
    return rows, shapes[0][1], rows // max(shapes[0][0], 1)


def _parallel(shapes: object, strides: object) -> bool:
    """Lists of as many sizes as strides."""
    if not isinstance(shapes, list) or not isinstance(strides, list) or len(shapes) != len(strides):
        return False
    pairs = zip(shapes, strides, strict=True)
    return all(isinstance(a, list) and isinstance(b, list) and len(a) == len(b) for a, b in pairs)


def _multiplies(op: Signature, copied: Mapping[tuple[int, int], int]) -> bool:
    """A product with as many rows as copies, and as wide as they are, on either side of it."""
    needed = bound_of(op) if op.dims else None
    if needed is None or needed.kind != "matmul":
        return False
    shapes = [op.shape(i) for i, kind in enumerate(op.types) if kind in ITEM_BYTES and len(op.dims[i]) >= 2]
    sizes = {size for shape in shapes for size in shape}
    return any(rows in sizes and width in sizes for rows, width in copied)
