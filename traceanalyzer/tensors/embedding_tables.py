"""Tables of embeddings, and which part of them a step of the optimizer needs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.calls_and_work import Calls, Work

DENSE_GRADIENT = r"^aten::_?embedding(_bag)?_dense_backward$"
_FILL = r"^aten::(zeros|zero_|fill_|new_zeros|zeros_like)$"
# What clipping, unscaling, zeroing and accumulating do to gradients, over lists of them or one by one.
_PASS = r"^aten::(_foreach_|_fused_|_amp_foreach_|(linalg_vector_)?norm$|mul_$)"
_SUM = r"^aten::add_?$"  # of the gradients of several look-ups, which autograd adds to one another
_ON_GRADIENTS = r"^Optimizer\.(step|zero_grad)#|^torch::autograd::AccumulateGrad$"


_ROWS_INPUT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_PRODUCT = r"^aten::(addmm|mm|bmm|baddbmm|matmul|linear|einsum)$"


def rarely_touched(calls: Calls, marks: Calls, most: float) -> tuple[Calls, dict[Shape, float]]:
    """(dense gradients of tables of which a step looks up few rows, by start; table -> share of rows looked up).

    Args:
        marks: steps of the optimizers.
        most: share of a table's rows up to which they are few.

    Raises:
        Unavailable: there are such gradients, and no shapes.
    """
    gradients = calls[calls.is_op & calls.name.matches(DENSE_GRADIENT)]
    gradients = gradients[np.argsort(gradients.start_ns, kind="stable")]
    tables, indices = tables_of(gradients)
    if len(gradients) and not any(tables):
        raise Unavailable("no shapes recorded")
    steps = max(marks.name.sums(np.ones(len(marks), np.int64)).values(), default=1)
    shares = looked_up_shares(calls, tables, indices, steps) if len(gradients) else {}
    few = {table: share for table, share in shares.items() if share < most}
    return gradients[np.array([table in few for table in tables], bool)], few


def tables_of(gradients: Calls) -> tuple[list[Shape | None], Rows]:
    """(rows, width) of the table of each dense gradient, None where not recorded, and its indices, int64."""
    number, signatures = signatures_of(gradients.events.trace, gradients.rows)
    tables = [_table(signature) for signature in signatures]
    indices = [
        math.prod(signature.shape(1)) if table else 0
        for signature, table in zip(signatures, tables, strict=True)
    ]
    return [tables[which] for which in number.tolist()], np.array(indices, np.int64)[number]


def _table(gradient: Signature) -> Shape | None:
    try:
        rows, width = int(gradient.scalars[_ROWS_INPUT[gradient.name]]), gradient.shape(0)[-1]
        return (rows, width) if rows > 0 and gradient.shape(1) else None
    except (LookupError, ValueError):
        return None


def looked_up_shares(
    calls: Calls, tables: list[Shape | None], indices: Rows, steps: int
) -> dict[Shape, float]:
    """Table -> share of its rows that are looked up in one step, at most.

    Tables with as many rows as some matrix product has rows or columns are left out: an output layer may use them.
    """
    result: dict[Shape, int] = {}
    for table, count in zip(tables, indices.tolist(), strict=True):
        if table is not None:
            result[table] = result.get(table, 0) + count
    products = calls[calls.is_op & calls.name.matches(_PRODUCT)]
    _, signatures = signatures_of(calls.events.trace, products.rows)
    tied = {size for signature in signatures for tensor in tensors(signature) for size in tensor}
    return {table: count / steps / table[0] for table, count in result.items() if table[0] not in tied}


def needless_parts(calls: Calls, work: Work, at: Calls, shares: Mapping[Shape, float]) -> tuple[Mask, Floats]:
    """(which work fills a dense gradient, the part of each piece of work that is for rows nobody looked up).

    Args:
        at: dense gradients of the tables in `shares`.
    """
    fills = fills_of(work, at)
    passes = (passes_of(calls, work) | work.op.name.matches(_SUM)) & ~fills
    return fills, np.where(fills, 1.0, parts_of(calls, work.op, passes, shares))


def fills_of(work: Work, at: Calls) -> Mask:
    """Which work fills the gradients that these ops make."""
    return work.op.name.matches(_FILL) & (work.launch.index_of_enclosing(at) >= 0)


def passes_of(calls: Calls, work: Work) -> Mask:
    """Which work passes over gradients: the optimizer's, accumulation, clipping, zeroing."""
    around = calls[calls.name.matches(_ON_GRADIENTS)]
    return work.op.name.matches(_PASS) | (work.launch.index_of_enclosing(around) >= 0)


def looked_up_ns(fills: Work, at: Calls, shares: Mapping[Shape, float]) -> float:
    """Time that filling the looked-up rows alone would take.

    Args:
        fills: of dense gradients.
        at: these gradients, of the tables in `shares`.
    """
    looked_up = np.array([shares[table] if table else 0.0 for table in tables_of(at)[0]])
    return float((fills.dur_ns * looked_up[fills.launch.index_of_enclosing(at)]).sum())


def parts_of(calls: Calls, ops: Calls, chosen: Mask, shares: Mapping[Shape, float]) -> Floats:
    """Part of the elements of each chosen op's tensors that belongs to rows nobody looked up; 0 of other ops.

    Long lists of tensors are not recorded: they are taken to be all parameters that get a gradient.
    """
    leaves = calls[calls.is_op & calls.name.one_of("torch::autograd::AccumulateGrad")]
    number, signatures = signatures_of(calls.events.trace, leaves.rows)
    gradients = [tensors(signatures[signature]) for signature in number.tolist()]
    every = needed_part([shape for shapes in gradients for shape in shapes], shares)
    number, signatures = signatures_of(ops.events.trace, np.where(chosen, ops.rows, -1))
    unknown = [not any(signature.dims) and "TensorList" in signature.types for signature in signatures]
    parts = [needed_part(tensors(signature), shares) for signature in signatures]
    return np.where(unknown, every, np.array(parts, np.float64))[number]


def needed_part(passed: list[tuple[int, ...]], shares: Mapping[Shape, float]) -> float:
    needless: float = sum(math.prod(one) * (1 - shares.get(one, 1.0)) for one in passed)
    return needless / max(sum(map(math.prod, passed)), 1)
