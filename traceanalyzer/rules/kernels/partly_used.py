"""A product is computed for all rows, and a few of them, or their mean, are used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import tensors
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.timeline.names import VIEWING_OP

Shape = tuple[int, ...]
_GATED = 3  # times as many ops: what is averaged for a gate is read whole after the gate's layers
_MEANS = ("aten::mean", "aten::sum")
_PRODUCTS = r"^aten::(linear|matmul|mm|addmm|bmm)$"


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.25, "at most this share of the result may be used; more is not worth another shape; chosen"
    )
    near_ops: int = limit(
        8, "the readers of a product are searched among this many ops after it, views not counted; chosen"
    )
    calls: int = limit(
        4, "this many calls per op and shapes are checked, and all must be used only in part; chosen"
    )
    min_gpu_share: float = limit(
        0.05, "such products must take at least this share of GPU time; less gains little; chosen"
    )


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits, causes=("averaged",))
def partly_used(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A matrix product is computed for all rows, and then a slice of it is taken.

    What it looks for: a product of known shapes whose first reader takes at most a quarter of the result (select,
    slice), or their mean or sum over rows (`averaged`). No other op, except views, takes a tensor of the whole shape
    before the next such product.
    Why it costs: the rest of the product is computed for nothing; the mean of products is the product of the mean.
    Bad: lm_head(hidden)[:, -1]; linear(x).mean(1). Good: lm_head(hidden[:, -1:]); linear(x.mean(1)).
    How sure: shapes and slice bounds are recorded; that the slice is of this result follows from its shape. So
    confidence is medium.
    When it is wrong: another tensor of the same shape is sliced, and this one is read by code without recorded ops.
    Saving: the product in proportion to the used part.
    Source: algebra: a row of a product needs only its own row of the input.
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True shows what is sliced")
    order = np.lexsort((ops.start_ns, ops.thread))
    ops = ops[order]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    products = np.flatnonzero(ops.name.matches(_PRODUCTS))
    used, averaged = np.ones(len(ops)), np.zeros(len(ops), bool)
    views = ops.name.meets(VIEWING_OP.search)
    for which in np.unique(number[products]).tolist():
        result, same = _result(signatures[which]), products[number[products] == which]
        if result is not None:
            tried = same[: limits.calls].tolist()
            kept = [_used(result, at, number, signatures, views, limits) for at in tried]
            if _batched(
                signatures[which]
            ):  # a mean over products of different matrices is none of their mean
                kept = [(1.0 if mean else part, mean) for part, mean in kept]
            used[same], averaged[same] = max(part for part, _ in kept), all(mean for _, mean in kept)
    for cause in ("", "averaged"):
        few = (used <= limits.max_used_share) & (averaged == bool(cause))
        if few.any():
            yield from _hits(cause, ops[few], used[few], work, limits)


def _hits(cause: str, few: Calls, used: np.ndarray, work: Work, limits: Limits) -> Iterator[Hits]:
    owner = work.op.index_of_enclosing(few)
    for device, found in work[(owner >= 0) & work.kind.one_of("compute")].by_device():
        part = used[owner[found.entries]]
        if found.total_ns < limits.min_gpu_share * work[work.device == device].total_ns:
            continue
        yield Hits(
            **quicker(found, found.dur_ns * part),
            cause=cause,
            message="matrix products are computed for all rows {times_a_step}, "
            + ("and then averaged over them" if cause else "but only {kept} of the result is used")
            + ": {spent} of GPU time{where}",
            advice="Average the rows before the product: linear(x.mean(1)) instead of linear(x).mean(1)."
            if cause
            else "Slice the rows before the product, not after it: head(hidden[:, -1:]) instead of "
            "head(hidden)[:, -1].",
            confidence=Confidence.MEDIUM,
            evidence={
                **told(found),
                "kept": f"{100 * float(np.median(part)):.2g} %",
                "spent_ns": found.total_ns,
            },
        )


def _result(op: Signature) -> Shape | None:
    """Shape of a product; None where the inputs do not say, or are no matrices."""
    name = op.name.removeprefix("aten::")
    try:
        if name == "linear":
            return (*op.shape(0)[:-1], op.shape(1)[0])
        left, right = (1, 2) if name == "addmm" else (0, 1)
        a, b = op.shape(left), op.shape(right)
        return (*a[:-1], b[-1]) if len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2] else None
    except (LookupError, ValueError):
        return None


def _batched(op: Signature) -> bool:
    """Whether it multiplies by several matrices."""
    return op.name != "aten::linear" and any(len(shape) > 2 for shape in tensors(op)[1:])


def _used(
    whole: Shape, at: int, number: Rows, signatures: list[Signature], views: np.ndarray, limits: Limits
) -> tuple[float, bool]:
    """(share of a result that the next ops take, whether as a mean); 1 where an op reads all, or nothing shows."""
    seen, part, mean = 0, 1.0, False
    for later in range(at + 1, min(at + 1 + 8 * limits.near_ops, len(number))):
        if mean and number[later] == number[at]:
            break
        op = signatures[int(number[later])]
        reads = any(isinstance(dims, list) and tuple(_flat(dims)) == whole for dims in op.dims)
        if reads and part == 1.0:
            part = _kept(op, whole) if views[later] else _averaged(op, whole)
            mean = not views[later]
            if mean and part == 1.0:
                return 1.0, False
        elif reads and not views[later]:
            return 1.0, False
        seen += not views[later]
        if seen >= limits.near_ops * (_GATED if mean else 1):
            break
    return part, mean


def _averaged(op: Signature, whole: Shape) -> float:
    """One over the rows that a mean or sum joins; 1 of other ops, and where it joins columns as well."""
    if op.name not in _MEANS:
        return 1.0
    try:
        joined = op.scalar(1)
        dims = {int(dim) % len(whole) for dim in (joined if isinstance(joined, list) else [joined])}
    except (LookupError, TypeError, ValueError):
        return 1.0
    return 1.0 if len(whole) - 1 in dims else 1 / math.prod(whole[dim] for dim in dims)


def _flat(dims: list[object]) -> list[int]:
    return [size for size in dims if type(size) is int]


def _kept(op: Signature, whole: Shape) -> float:
    """Share of its input that a select or slice keeps; 1 of other views."""
    name = op.name.removeprefix("aten::")
    try:
        size = whole[int(op.scalar(1))]
        if name == "select":
            return 1 / size
        if name in ("slice", "narrow"):
            begin, end = (int(op.scalar(i)) if op.scalars[i] else None for i in (2, 3))
            if name == "narrow":
                return (end or size) / size
            return len(range(*slice(begin, end, int(op.scalar(4) or 1)).indices(size))) / size
    except (LookupError, TypeError, ValueError):
        return 1.0
    return 1.0
