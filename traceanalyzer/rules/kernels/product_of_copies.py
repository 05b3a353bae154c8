"""A matrix product works on rows that were copied several times before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.op_model import ITEM_BYTES, Signature
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: int = limit(4, "minimum copies of each row; fewer save less than gathering costs; chosen")
    min_rows: int = limit(
        4_096, "minimum rows of the product; smaller products are bound by launches; chosen"
    )
    min_gpu_share: float = limit(0.05, "minimum share of GPU time in products on copied rows; chosen")
    left: float = limit(
        0.25, "share of the products' time that gathering and adding the results takes; chosen"
    )


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits)
def product_of_copies(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """A linear layer is applied to copies of the same rows.

    What it looks for: cat of a tensor that is expanded four times or more, by its strides, and matrix products of as
    many rows as that has, forward and backward.
    Why it costs: the product of a row is the same for each of its copies.
    Bad: linear(torch.cat([x[:, None].expand(-1, k, -1), x[neighbours]], -1)). Good: the weight in two parts, each
    applied to x once; the results are gathered and added, which is the same.
    How sure: strides show that rows are copies; that no op lies between copy and product is told by shapes: medium.
    When it is wrong: what lies between the copies and the product is not linear.
    Saving: what the products take, less a quarter for gathering and adding.
    Source: algebra; measured on an H200 with torch 2.11.
    """
    if not any(op.strides for op in inputs.signatures):
        raise Unavailable("no strides recorded: record_shapes=True records them from torch 2.5 on")
    copied = _copied(inputs, limits)
    chosen = inputs.meets(lambda op: _multiplies(op, copied) or _copied_by(op, limits))
    for device, found in work[chosen & work.kind.one_of("compute")].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if not copied or share < limits.min_gpu_share:
            continue
        (rows, _), times = max(copied.items(), key=lambda item: item[0][0])
        yield Hits(
            **quicker(found, np.asarray(found.dur_ns * max(limits.left, 1 / times))),
            message="matrix products work on up to {rows} rows, {copies} copies each of the same numbers, which cat "
            "put beside others: {gpu} of GPU time{where}",
            advice="Apply the linear layer before copying: split its weight into the parts that cat joins, multiply "
            "the rows once by each, then gather and add the results.",
            confidence=Confidence.MEDIUM,
            evidence={**told(found), "gpu_share": share, "rows": rows, "copies": times},
        )


def _copied(inputs: WorkInputs, limits: Limits) -> dict[tuple[int, int], int]:
    """(rows, width) of what cat makes of an expanded tensor -> how often it is expanded."""
    found = (_copied_by(op, limits) for op in inputs.signatures)
    return {one[:2]: one[2] for one in found if one is not None}


def _copied_by(op: Signature, limits: Limits) -> tuple[int, int, int] | None:
    """(rows, width, times) of a cat of an expanded tensor; None for other ops."""
    if op.name != "aten::cat" or not op.dims or not op.strides or not _alike(op.dims[0], op.strides[0]):
        return None
    shapes, strides = op.dims[0], op.strides[0]
    times = max(
        math.prod(size for size, step in zip(shape, steps, strict=True) if step == 0 and size > 1)
        for shape, steps in zip(shapes, strides, strict=True)
    )
    rows, width = math.prod(shapes[0][:-1]), sum(shape[-1] for shape in shapes)
    return (rows, width, times) if times >= limits.min_times and rows >= limits.min_rows else None


def _alike(shapes: object, strides: object) -> bool:
    """Lists of as many sizes as strides, of tensors that differ in their last dimension only."""
    if (
        not isinstance(shapes, list)
        or not isinstance(strides, list)
        or len(shapes) != len(strides)
        or not shapes
    ):
        return False
    pairs = zip(shapes, strides, strict=True)
    fit = all(isinstance(a, list) and isinstance(b, list) and len(a) == len(b) > 1 for a, b in pairs)
    return fit and all(shape[:-1] == shapes[0][:-1] for shape in shapes)


def _multiplies(op: Signature, copied: Mapping[tuple[int, int], int]) -> bool:
    """A product with as many rows as copies, and as wide as they are, on either side of it."""
    needed = bound_of(op) if op.dims else None
    if needed is None or needed.kind != "matmul":
        return False
    shapes = [op.shape(i) for i, kind in enumerate(op.types) if kind in ITEM_BYTES and len(op.dims[i]) >= 2]
    sizes = {size for shape in shapes for size in shape}
    return any(rows in sizes and width in sizes for rows, width in copied)
