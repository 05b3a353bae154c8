"""Two matrix products in a row, whose other order takes far fewer operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import require_shapes

Shape = tuple[int, ...]

_PRODUCTS = ("aten::mm", "aten::bmm")
_ADDED_PRODUCTS, _LINEAR = (
    ("aten::addmm", "aten::baddbmm"),
    ("aten::add", "aten::sub", "aten::add_", "aten::mul"),
)
_SCALINGS = ("aten::mul", "aten::mul_", "aten::div", "aten::div_", "aten::copy_")


@dataclass(frozen=True, slots=True)
class Limits:
    max_operations_share: float = limit(
        0.25,
        "reported only if the other order needs at most this share of the operations; chosen",
    )
    min_sides: float = limit(
        2.0,
        "for `long-side`: reported only if the long side of the matrix is at least this many times the "
        "short side; chosen",
    )
    near_ops: int = limit(
        6,
        "for `long-side`: reported only if the Gram matrix is squared and multiplied within this many "
        "ops; chosen",
    )
    min_gpu_share: float = limit(0.05, "such products must take at least this share of GPU time; chosen")
    floor_ns: int = limit(
        2_000,
        "for the saving: no kernel is predicted to take less than this time; H200, torch 2.11",
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two products in a row: the shapes of three matrices in their order, and what the first makes.

    Attributes:
        between: shape of the first product's result.
        operations, share: of the other order, over those of this; share is of operations or of bytes, if that is more.
    """

    matrices: tuple[Shape, Shape, Shape]
    between: Shape
    operations: float
    share: float


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("long-side",))
def product_order(work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Two matrix products in a row take far fewer operations in the other order.

    What it looks for: two matrix products (mm, bmm) in a row, (A B) C or A (B C). The other order takes at
    most a quarter of the operations.
    A second case (cause `long-side`, named in the finding's title): the program computes (X X')(X X') X, as
    in Newton-Schulz iterations, and X has at least twice as many rows as columns. X' is the transpose of X.
    Why it costs: both orders give the same result, but one order computes a large matrix first. A B is large
    if A has many rows and B many columns. X X' is larger than X' X.
    Bad: (q @ k.T) @ v for linear attention without softmax. Good: q @ (k.T @ v). For `long-side`: X (X' X)(X'
    X) instead of (X X')(X X') X.
    How sure: the rule concludes from shapes and the order of ops that the second product reads the first
    product's result. So confidence is medium. With an execution trace that shows it, confidence is high.
    When it is wrong: the second product reads another matrix of the same shape.
    Saving: the time of these products, minus the time of the other order.
    Source: torch.linalg.multi_dot in PyTorch's documentation, on the order of products.
    """
    require_shapes(inputs.signatures, "shows what is multiplied")
    forward = work[work.kind.one_of("compute") & ~work.outer_op.name.matches("^autograd::")]
    ordered = forward[np.lexsort((forward.start_ns, forward.stream, forward.device))]
    scaling = np.array([_scales(op) for op in inputs.signatures])[inputs.number[ordered.entries]]
    number = inputs.number[ordered[~scaling].entries]
    yield from _long_sides(ordered[~scaling], number, inputs.signatures, work, limits)
    # A view has another shape of as many elements.
    readers: dict[int, set[int]] = {}
    for which in set(number.tolist()):
        for shape in tensors(inputs.signatures[which]):
            readers.setdefault(math.prod(shape), set()).add(which)
    pairs = {}
    for first, second in set(zip(number[:-1].tolist(), number[1:].tolist(), strict=True)):
        pair = _pair(inputs.signatures[first], inputs.signatures[second])
        # no other op of the forward pass may read what the first product makes
        only_reader = pair is not None and readers[math.prod(pair.between)] == {second}
        if pair is not None and only_reader and pair.operations <= limits.max_operations_share:
            pairs[pair.between] = pair
    for pair in pairs.values():
        chosen = work.kind.one_of("compute") & inputs.meets(partial(_works_on, pair=pair))
        for pieces, share in work[chosen].device_shares(limits.min_gpu_share):
            needed = clamp_to_floor(np.asarray(pieces.dur_ns * pair.share), pieces, limits.floor_ns)
            yield _hits(pair, pieces, needed, share, flow)


def _long_sides(
    ordered: Work, number: Rows, signatures: Sequence[Signature], work: Work, limits: Limits
) -> Iterator[Hits]:
    """Gram matrices over the long side, with what is computed from them alone."""
    parts: dict[Shape, dict[int, float]] = {}
    grams = np.array([_gram(op, limits.min_sides) is not None for op in signatures], bool)
    for position in np.flatnonzero(grams[number]).tolist():
        shape = _gram(signatures[number[position]], limits.min_sides)
        following = [
            signatures[which] for which in number[position + 1 : position + 1 + limits.near_ops].tolist()
        ]
        if shape is not None and (shares_after := _used_as_gram(shape, following)):
            shares = {
                position: shape[-1] / shape[-2],
                **{position + 1 + place: part for place, part in shares_after.items()},
            }
            parts.setdefault(shape, {}).update(shares)
    for shape, shares in parts.items():
        chosen, part = ordered[np.array(list(shares))], np.array(list(shares.values()))
        for pieces, share in chosen.device_shares(limits.min_gpu_share):
            needed = clamp_to_floor(
                pieces.dur_ns * part[chosen.device == pieces.device[0]], pieces, limits.floor_ns
            )
            yield _long_side(shape, pieces, needed, share)


def _long_side(shape: Shape, pieces: Work, needed: np.ndarray, share: float) -> Hits:
    rows, columns = shape[-2:]
    return Hits(
        **reduce_to(pieces, needed),
        cause="long-side",
        named_by=shape_text(shape),
        message=f"the Gram matrix of {{by}} over the long side is {rows}x{rows}; it is squared and multiplied by "
        f"{{by}} again: {{gpu}} of all GPU work{{where}}; over the short side it is {columns}x{columns}",
        advice="Transpose the matrix first, and transpose the result back: p(A A') A = A p(X' X) for each "
        "polynomial p.",
        confidence=Confidence.MEDIUM,
        evidence={**gpu_time_evidence(pieces), "gpu_share": share, "sides": rows / columns},
    )


def _gram(op: Signature, sides: float) -> Shape | None:
    """Shape of A in a product A A' that may be a Gram matrix over the longer side; None for others."""
    shapes = tensors(op)
    if op.name not in _PRODUCTS or len(shapes) != 2 or shapes[1] != (*shapes[0][:-2], *shapes[0][:-3:-1]):
        return None
    return shapes[0] if shapes[0][-2] >= sides * shapes[0][-1] else None


def _used_as_gram(shape: Shape, following: list[Signature]) -> dict[int, float]:
    """Share of the time that each of the ops needs over the short side; empty if it is not squared and applied."""
    large, ratio = (*shape[:-1], shape[-2]), shape[-1] / shape[-2]
    part: dict[int, float] = {}
    squared = False
    for place, op in enumerate(following):
        shapes = tensors(op)
        if large not in shapes:
            continue
        squares = op.name == "aten::mul" and shapes.count(large) > 1
        if op.name in _LINEAR and set(shapes) == {large} and not squares:
            part[place] = ratio**2
        elif op.name not in (*_PRODUCTS, *_ADDED_PRODUCTS):
            return {}
        elif shapes[-2:] == [large, large]:
            part[place], squared = ratio**3, True
        elif shapes[-2:] in ([large, shape], [(*shape[:-2], *shape[:-3:-1]), large]):
            return {**part, place: ratio} if squared else {}
        else:
            return {}
    return {}


def _hits(pair: _Pair, pieces: Work, needed: np.ndarray, share: float, flow: Flow | None) -> Hits:
    first, second, third = (shape_text(shape) for shape in pair.matrices)
    return Hits(
        **reduce_to(pieces, needed),
        named_by=shape_text(pair.between),
        message=f"products of {first}, {second} and {third} first make {{by}}, with {{times}} times the operations "
        f"of the other order: {{gpu}} of all GPU work{{where}}",
        advice="Multiply in the other order: q @ (k.T @ v) instead of (q @ k.T) @ v. The result is the same.",
        confidence=confidence_of(flow, pieces.op),
        evidence={**gpu_time_evidence(pieces), "gpu_share": share, "times": 1 / pair.operations},
    )


def _sizes(op: Signature) -> tuple[int, int, int, int] | None:
    """(batch, rows, inner, columns) of a product; None for other ops."""
    shapes = tensors(op) if op.name in _PRODUCTS else []
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or shapes[0][-1] != shapes[1][-2]:
        return None
    return math.prod(shapes[0][:-2]), shapes[0][-2], shapes[0][-1], shapes[1][-1]


def _pair(first: Signature, second: Signature) -> _Pair | None:
    """The second product reads what the first makes, as far as shapes tell; None where it does not."""
    first_size, two = _sizes(first), _sizes(second)
    if first_size is None or two is None or first_size[0] != two[0] or first.types != second.types:
        return None
    batch, rows, inner, columns = first_size
    (left, right), (head, tail) = tensors(first), tensors(second)
    between = (*left[:-1], columns)
    if head == between:
        now, other, result = (left, right, tail), two[3], rows * two[3]
    elif tail == between:
        now, other, result = (head, left, right), two[1], columns * two[1]
    else:
        return None
    share = inner * other * (rows + columns) / (rows * columns * (inner + other))
    always = sum(math.prod(shape) for shape in now) + batch * result
    moved = (always + 2 * batch * inner * other) / (always + 2 * batch * rows * columns)
    return _Pair(now, between, share, min(max(share, moved), 1.0))


def _scales(op: Signature) -> bool:
    """A copy, or all elements times one number."""
    shapes = [shape for shape in tensors(op) if math.prod(shape) > 1]
    return op.name in _SCALINGS and (len(shapes) == 1 or (op.name == "aten::copy_" and len(set(shapes)) == 1))


def _works_on(op: Signature, pair: _Pair) -> bool:
    """Work on the large matrix, or a product that makes it; also transposed."""
    large = {pair.between, (*pair.between[:-2], pair.between[-1], pair.between[-2])}
    sizes = _sizes(op)
    makes = sizes is not None and (*tensors(op)[0][:-1], sizes[3]) in large
    return makes or bool(large & set(tensors(op)))
