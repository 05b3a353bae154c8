"""A product is computed for all rows, and a few of them, or their mean, are used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.roofline.results import product_of
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
_SCALE = re.compile(  # what gives each row of a result of that row alone
    r"^aten::(to|_to_copy|type_as|contiguous|clone|add|sub|mul|div|true_divide|(div|mul|tanh)_|neg|tanh|sigmoid|silu|gelu|relu"
    r"|exp|log|clamp(_min|_max)?|dropout|softmax|_softmax|log_softmax|_log_softmax|rms_norm|layer_norm)$"
)
_WHOLE_ROWS = re.compile(r"softmax|norm")


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.25,
        "at most this share of the result may be used; with more, a smaller product gains too little; chosen",
    )
    near_ops: int = limit(
        8, "the readers of a product are searched among this many ops after it, views not counted; chosen"
    )
    calls: int = limit(
        4,
        "for each op and its shapes this many calls are checked, and all of them must be used only in part; "
        "chosen",
    )
    min_gpu_share: float = limit(0.05, "such products must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("averaged",))
def partly_used(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A matrix product is computed for all rows, and then a slice of it is taken.

    What it looks for: a product of known shapes whose first reader takes at most a quarter of the result
    (select, slice, an index of rows). A second case (cause `averaged`) is a product whose rows are only
    averaged or summed right after it. Ops that handle every row independently (casts, scaling, softmax) may be
    between the product and the slice, and their time counts, too; nothing may be between the product and a mean
    or sum. No other op, except views, takes a tensor of the whole shape before the next such product.
    Why it costs: the rest of the product is computed for nothing. For `averaged`: the mean of the products
    equals the product of the mean, so one row is enough.
    Bad: lm_head(hidden).float()[:, -1]; linear(x).mean(1). Good: lm_head(hidden[:, -1:]).float();
    linear(x.mean(1)). With sum(1) instead of mean(1), a bias must be multiplied by the number of rows.
    How sure: shapes and slice bounds are recorded. That the slice is of this result follows from its shape, so
    confidence is medium.
    When it is wrong: another tensor of the same shape is sliced, and this one is read by code without recorded
    ops.
    Saving: the time of the product, and of the ops up to the slice, in proportion to the unused part.
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
    readers = _Readers.of(number, signatures, ops.name.meets(VIEWING_OP.search))
    for which in np.unique(number[products]).tolist():
        result, same = product_of(signatures[which]), readers.places[which]
        if result is not None:
            tried = same[: limits.calls].tolist()
            kept = [_used(result, at, readers, limits) for at in tried]
            if _batched(
                signatures[which]
            ):  # a mean over products of different matrices is none of their mean
                kept = [(1.0, mean, []) if mean else (part, mean, rest) for part, mean, rest in kept]
            between = [at - tried[0] for at in kept[0][2]]
            if any([at - begin for at in one[2]] != between for begin, one in zip(tried, kept, strict=True)):
                continue
            part = max(one[0] for one in kept)
            every = (same[:, None] + [0, *between]).ravel()
            every = every[every < len(ops)]
            used[every], averaged[every] = part, all(one[1] for one in kept)
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
        more = not few.name.matches(_PRODUCTS).all()
        yield Hits(
            **quicker(found, found.dur_ns * part),
            cause=cause,
            message="matrix products"
            + (", and what scales or converts their results," if more else "")
            + " are computed for all rows {times_a_step}, "
            + ("and then averaged over them" if cause else "but only {kept} of the result is used")
            + ": {spent} of GPU time{where}",
            advice="Average the rows before the product: linear(x.mean(1)) instead of linear(x).mean(1). For a sum, "
            "multiply a bias by the number of rows."
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


def _batched(op: Signature) -> bool:
    """Whether it multiplies by several matrices."""
    return op.name != "aten::linear" and any(len(shape) > 2 for shape in tensors(op)[1:])


@dataclass(frozen=True, slots=True)
class _Readers:
    """Ops in order, and which of them read a tensor of some size.

    Attributes:
        number, signatures: of each op, and what the numbers stand for.
        places: positions of the ops of each signature.
        views: whether an op only views; `passed`: how many before each do more.
        by_size: signatures by columns and elements of an input.
    """

    number: Rows
    signatures: Sequence[Signature]
    places: Sequence[Rows]
    views: Mask
    passed: Rows
    by_size: Mapping[tuple[int, int], set[int]]

    @classmethod
    def of(cls, number: Rows, signatures: Sequence[Signature], views: Mask) -> Self:
        """Of all ops."""
        ends = np.cumsum(np.bincount(number, minlength=len(signatures)))
        by_size: dict[tuple[int, int], set[int]] = {}
        for which, op in enumerate(signatures):
            for shape in _inputs(op):
                by_size.setdefault((shape[-1], math.prod(shape)), set()).add(which)
        places = np.split(np.argsort(number, kind="stable"), ends[:-1])
        return cls(number, signatures, places, views, np.append(0, np.cumsum(~views)), by_size)

    def after(self, at: int, whole: Shape) -> Rows:
        """Positions of the ops that read so many rows and columns, before the next op like this one."""
        alike = self.places[self.number[at]]
        following = alike[np.searchsorted(alike, at, side="right") :][:1]
        end = int(following[0]) if len(following) else len(self.number)
        found = [np.zeros(0, np.int64)]
        for which in self.by_size.get((whole[-1], math.prod(whole)), ()):
            own = self.places[which]
            low, high = np.searchsorted(own, (at + 1, end))
            found.append(own[low:high])
        return np.sort(np.concatenate(found))


def _used(whole: Shape, at: int, ops: _Readers, limits: Limits) -> tuple[float, bool, list[int]]:
    """(share of a result that the next ops take, whether as a mean, the ops between); 1 where nothing shows it.

    The ops between are positions; they give each row of the whole result of that row alone.
    """
    part, mean, columns = 0.0, False, True
    between: list[int] = []
    for later in ops.after(at, whole).tolist():
        seen = int(ops.passed[later] - ops.passed[at + 1])
        near = seen < limits.near_ops * (_GATED if mean else 1) and later <= at + 8 * limits.near_ops
        if not (near or (part and not mean)):
            break
        op = ops.signatures[ops.number[later]]
        reads = _reads(op, whole)
        kept = _kept(op, reads, columns=columns)
        if kept is not None:
            part += kept
        elif ops.views[later]:
            pass
        elif part:
            return 1.0, False, []
        elif not between and (part := _averaged(op, whole)):
            mean = True
        elif not _row_by_row(op, reads):
            return 1.0, False, []
        else:
            between.append(later)
            columns &= not _WHOLE_ROWS.search(op.name)
    return (min(part, 1.0), mean, between) if part else (1.0, False, [])


def _inputs(op: Signature) -> Iterator[Shape]:
    """Shapes of an op's own inputs, those in lists left out."""
    flat = (tuple(_flat(dims)) for dims in op.dims if isinstance(dims, list))
    return (shape for shape in flat if shape)


def _reads(op: Signature, whole: Shape) -> Shape:
    """Shape of the first input that has as many rows and columns as a result."""
    return next(one for one in _inputs(op) if (one[-1], math.prod(one)) == (whole[-1], math.prod(whole)))


def _row_by_row(op: Signature, whole: Shape) -> bool:
    """Whether each row of what it makes is made of that row, and of numbers that hold for all rows."""
    if not _SCALE.match(op.name) or any(one not in (whole, whole[-1:]) for one in tensors(op)):
        return False
    try:
        if "softmax" in op.name:
            return int(op.scalar(1)) % len(whole) == len(whole) - 1
        return "norm" not in op.name or len(op.scalar(1)) == 1
    except (LookupError, TypeError, ValueError):
        return False


def _averaged(op: Signature, whole: Shape) -> float:
    """One over the rows that a mean or sum joins; 0 of other ops, and where it joins columns as well."""
    if op.name not in _MEANS:
        return 0.0
    try:
        joined = op.scalar(1)
        dims = {int(dim) % len(whole) for dim in (joined if isinstance(joined, list) else [joined])}
    except (LookupError, TypeError, ValueError):
        return 0.0
    return 0.0 if len(whole) - 1 in dims else 1 / math.prod(whole[dim] for dim in dims)


def _flat(dims: list[object]) -> list[int]:
    return [size for size in dims if type(size) is int]


def _kept(op: Signature, whole: Shape, *, columns: bool) -> float | None:
    """Share of its input that a select, slice or index of rows keeps, of columns too if asked; None of other ops."""
    name = op.name.removeprefix("aten::")
    try:
        if name == "index":
            chosen = [one for one in op.dims[1] if one]
            if any(len(one) > 1 for one in chosen) or len(chosen) >= len(whole):
                return None
            indexed = [size for size, one in zip(whole, op.dims[1], strict=False) if one]
            return max(int(one[0]) for one in chosen) / math.prod(indexed)
        dim = int(op.scalar(1))
        size = whole[dim]
        if name not in ("select", "slice", "narrow", "index_select", "gather"):
            return None
        if dim % len(whole) == len(whole) - 1 and (not columns or name == "gather"):
            return 1.0
        if name == "select":
            return 1 / size
        if name in ("index_select", "gather"):
            return math.prod(op.shape(2)) / (size if name == "index_select" else math.prod(whole))
        begin, end = (int(op.scalar(i)) if op.scalars[i] else None for i in (2, 3))
        if name == "narrow":
            return (end or size) / size
        return len(range(*slice(begin, end, int(op.scalar(4) or 1)).indices(size))) / size
    except (IndexError, LookupError, TypeError, ValueError):
        return None
