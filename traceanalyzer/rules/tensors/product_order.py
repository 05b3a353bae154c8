"""Two matrix products in a row, whose other order takes far fewer operations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from traceanalyzer.rule import Claims, Hits, Work, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import require_shapes

_PRODUCTS = ("aten::mm", "aten::bmm")
_SCALINGS = ("aten::mul", "aten::mul_", "aten::div", "aten::div_", "aten::copy_")


class Limits:
    max_operations_share: float = 0.25
    """reported only if the other order needs at most this share of the operations; chosen"""


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


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def product_order(work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Two matrix products in a row take far fewer operations in the other order.

    What it looks for: two matrix products (mm, bmm) in a row, (A B) C or A (B C). The other order takes at
    most a quarter of the operations.
    Why it costs: both orders give the same result, but one order computes a large matrix first. A B is large
    if A has many rows and B many columns.
    Bad: (q @ k.T) @ v for linear attention without softmax. Good: q @ (k.T @ v).
    How sure: the rule concludes from shapes and the order of ops that the second product reads the first
    product's result. So confidence is medium. With an execution trace that shows it, confidence is high.
    When it is wrong: the second product reads another matrix of the same shape.
    Saving: the time of these products, minus the time of the other order.
    Source: torch.linalg.multi_dot in PyTorch's documentation, on the order of products.
    """
    require_shapes(inputs.signatures, "shows what is multiplied")
    forward = work[work.kind.one_of("compute") & ~work.outer_op.name.matches("^autograd::")]
    ordered = forward[np.lexsort((forward.start_ns, forward.stream, forward.device))]
    number = inputs.number[ordered.entries]
    number = number[~np.array([_scales(op) for op in inputs.signatures])[number]]
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
        matrices = "{}, {} and {}".format(*map(shape_text, pair.matrices))
        yield from slow_work(
            work,
            np.where(inputs.meets(partial(_works_on, pair=pair)), pair.share, 1.0),
            flow=flow,
            named_by=shape_text(pair.between),
            message=f"products of {matrices} first make {{by}}, with {{times}} times the operations of the other "
            "order: {gpu} of all GPU work{where}",
            advice="Multiply in the other order: q @ (k.T @ v) instead of (q @ k.T) @ v. The result is the same.",
            evidence={"times": 1 / pair.operations},
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
