"""Embedding gradients as large as the table, while a step uses few rows."""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.edits import Drop, DropWork, Resize, Wait
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Unavailable, rule
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.names import OPTIMIZER_MARK

# Position of the number of rows among the inputs.
_ROWS_INPUT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_FILL = r"^aten::(zeros|zero_|fill_|new_zeros|zeros_like)$"
_LOOKUP = r"^aten::_?embedding(_bag)?(_forward_only)?$"
# A lookup reads and writes a row, a fill writes it.
_LOOKED_UP = 2
# What clipping, unscaling, zeroing and accumulating do to gradients, over lists of them or one by one.
_PASS = r"^aten::(_foreach_|_fused_|_amp_foreach_|(linalg_vector_)?norm$|mul_$)"
_LIST = r"^aten::(_amp)?_?(foreach|fused)_"
_ON_GRADIENTS = r"^Optimizer\.(step|zero_grad)#|^torch::autograd::AccumulateGrad$"
# Tensors that a pass reads and writes.
_TENSORS = (("_fused_", 5.0), ("addc", 4.0), ("lerp", 3.0), ("norm", 1.0), ("", 2.0))
_BACKWARD, _SUM = r"^autograd::engine::evaluate_function", r"^aten::add_?$"
_ROUNDING = 1e-9
_SPARSE = "Pass sparse=True to the embedding"
_ADVICE = {
    "SGD": f"{_SPARSE}: SGD (without momentum and weight decay) then updates the touched rows.",
    "Adagrad": f"{_SPARSE}: Adagrad then updates the touched rows only.",
}
_SPLIT = f"{_SPARSE} and give its table to torch.optim.SparseAdam, the rest to the present optimizer."
_NOT_FREE = "; sparse updates avoid this, but the CPU then needs about {} more in each optimizer step"


class Limits:
    max_touched_share: float = 0.20
    """a table is reported only if less than this share of its rows are looked up; if more rows are looked up,
    sparse updates save little; measured with Adagrad on an H200"""
    summed_fills: float = 27.0
    """used for the predicted saving: a sparse update of n rows is predicted to take this many times as long
    on the GPU as filling n rows with zeros; measured with Adagrad on an H200"""
    added_cpu_ns: int = 100_000
    """used for the predicted saving with SGD: a table's sparse backward pass and its update take this CPU
    time; measured on the host of an H200 with torch 2.11"""
    summed_cpu_ns: int = 370_000
    """used for the predicted saving with Adagrad and SparseAdam: sparse updates take this much more CPU time
    than dense updates; measured on the host of an H200 with torch 2.11"""


@rule(since="0.1", claims=Claims.WORK, min_share=0.02, limits=Limits)
def dense_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """An embedding's gradient is as large as its table, though a step uses few of its rows.

    What it looks for: embeddings that look up less than a fifth of their table's rows between two optimizer steps. The
    cost is the time to fill the gradient, and the time that gradient clipping and the optimizer spend on this table.
    Why it costs: the gradient has as many rows as the table, and most of these rows are zero. The whole
    gradient is written and read several times. The optimizer also reads and writes its states for all rows.
    Bad: nn.Embedding(8_000_000, 64). Good: nn.Embedding(8_000_000, 64, sparse=True), and an optimizer that
    supports sparse gradients.
    How sure: the numbers of rows are recorded. The rule counts a row each time it is looked up. So the true
    number of used rows may be smaller.
    Without shapes: the rule compares times, and confidence is medium. It reports a table if filling its
    gradient takes far longer than looking up its rows.
    When it is wrong: with momentum or weight decay, a dense update also changes unused rows. A sparse update
    does not change these rows, so the training result differs. Or the table is also the output layer's
    weight: then its gradient is dense anyway.
    Saving: the cost described above, minus the CPU and GPU time of sparse updates.
    Source: "Embedding" and "SparseAdam" in PyTorch's documentation; measured on an H200 with torch 2.11.
    """
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    gradients = calls[calls.is_op & calls.name.one_of(*_ROWS_INPUT)]
    gradients = gradients[np.argsort(gradients.start_ns, kind="stable")]
    if len(gradients) == 0:
        return
    steps = max(marks.name.sums(np.ones(len(marks), np.int64)).values(), default=1)
    tables, indices = tables_of(gradients)
    if any(tables):
        shares = looked_up_shares(calls, tables, indices, steps)
        few = {table: share for table, share in shares.items() if share < limits.max_touched_share}
        if not few:
            return
        gradients = gradients[np.array([table in few for table in tables], bool)]
        (rows, width), touched = max(few.items(), key=lambda table: math.prod(table[0]))
        details: dict[str, Any] = {"rows": rows, "width": width, "touched_share": touched}
        parts = _parts_by_shape(calls, work, few)
    else:
        touched = _touched_by_time(work, gradients, marks)
        if touched >= limits.max_touched_share:
            raise Unavailable("no shapes recorded")
        details = {"touched_share": touched}
        parts = _parts_by_time(calls, work, _fills_of(work, gradients), steps)
    yield from _hits(work, gradients, marks, parts, details, limits)


def tables_of(gradients: Calls) -> tuple[list[Shape | None], Rows]:
    """(rows, width) of the table of each dense gradient, None where not recorded, and its indices, int64."""
    number, signatures = signatures_of(gradients.events.trace, gradients.rows)
    tables = [_table(op) for op in signatures]
    indices = [math.prod(op.shape(1)) if table else 0 for op, table in zip(signatures, tables, strict=True)]
    return [tables[which] for which in number.tolist()], np.array(indices, np.int64)[number]


def _table(gradient: Signature) -> Shape | None:
    try:
        rows, width = int(gradient.scalars[_ROWS_INPUT[gradient.name]]), gradient.shape(0)[-1]
        return (rows, width) if rows > 0 and gradient.shape(1) else None
    except (LookupError, ValueError):
        return None


def looked_up_shares(calls: Calls, tables: list[Shape | None], indices: Rows, steps: int) -> dict[Shape, float]:
    """Table -> share of its rows that a step looks up at most; without those that an output layer may use."""
    products = calls[calls.is_op & calls.name.meets(lambda name: op_row(name).kind is Kind.GEMM)]
    _, signatures = signatures_of(calls.events.trace, products.rows)
    tied = {size for op in signatures for tensor in tensors(op) for size in tensor}
    result = Counter[Shape]()
    for table, count in zip(tables, indices.tolist(), strict=True):
        if table is not None and table[0] not in tied:
            result[table] += count
    return {table: count / steps / table[0] for table, count in result.items()}


def _fills_of(work: Work, gradients: Calls) -> Mask:
    return work.op.name.matches(_FILL) & (work.launch.index_of_enclosing(gradients) >= 0)


def _touched_by_time(work: Work, gradients: Calls, marks: Calls) -> float:
    """Share of the rows that is looked up, at most, by the times of lookups and fills; 1 if unknown."""
    fills, lookups = work[_fills_of(work, gradients)], work[work.outer_op.name.matches(_LOOKUP)]
    sums = work[work.op.name.matches(_SUM) & work.outer_op.name.matches(_BACKWARD)]
    if not (len(fills) and len(lookups) and len(marks)):
        return 1.0
    # An output layer may share the weight of a table where backward adds tensors as large.
    added = (sums.dur_ns >= 2 * fills.dur_ns.max()).any()
    return 1.0 if added else lookups.total_ns / (_LOOKED_UP * fills.total_ns)


def _passes_of(calls: Calls, work: Work) -> Mask:
    """Which work passes over gradients: the optimizer's, accumulation, clipping, zeroing."""
    around = calls[calls.name.matches(_ON_GRADIENTS)]
    return work.op.name.matches(_PASS) | (work.launch.index_of_enclosing(around) >= 0)


def _parts_by_time(calls: Calls, work: Work, fills: Mask, steps: int) -> Floats:
    """Part of each pass that the tables take at the speed of their fills, float64 (work,)."""
    passes = _passes_of(calls, work)
    _, op = np.unique(work.op.rows, return_inverse=True)
    spent_ns = np.bincount(op, np.where(passes, work.dur_ns, 0))[op]
    moved = np.zeros(len(work))
    for text, count in _TENSORS:
        moved[(moved == 0) & work.op.name.matches(text)] = count
    of_lists = np.minimum(moved * work[fills].total_ns / steps / np.maximum(spent_ns, 1), 1.0)
    # A pass over a single tensor counts where it takes as long as one over the largest table.
    large = spent_ns >= moved * work[fills].dur_ns.max(initial=0)
    return np.where(passes, np.where(work.op.name.matches(_LIST), of_lists, large), 0.0)


def _parts_by_shape(calls: Calls, work: Work, few: Collection[Shape]) -> Floats:
    """Part of the elements of each pass that belongs to the tables, float64 (work,)."""

    def part(shapes: list[Shape]) -> float:
        of_tables = sum(math.prod(shape) for shape in shapes if shape in few)
        return of_tables / max(sum(map(math.prod, shapes)), 1)

    # Long lists of tensors are not recorded: they are taken to be all parameters that get a gradient.
    number, leaves = signatures_of(calls.events.trace, calls.rows[calls.name.one_of("torch::autograd::AccumulateGrad")])
    every = part([shape for which in number.tolist() for shape in tensors(leaves[which])])
    number, signatures = signatures_of(work.events.trace, np.where(_passes_of(calls, work), work.op.rows, -1))
    parts = [every if "TensorList" in op.types and not any(op.dims) else part(tensors(op)) for op in signatures]
    return np.array(parts, np.float64)[number]


def _hits(
    work: Work, gradients: Calls, marks: Calls, parts: Floats, details: dict[str, Any], limits: Limits
) -> Iterator[Hits]:
    """What sparse gradients change, nothing if they take as long; of each pass `parts` is the share of the tables."""
    fills, touched = _fills_of(work, gradients), details["touched_share"]
    parts = np.where(fills, 1.0, parts) * (1 - touched)
    spent, needless = work[parts > 0], parts[parts > 0]
    excess_ns = (spent.dur_ns * needless).astype(np.int64)
    # Of several optimizers, the one with the longest passes has the table.
    inside = spent.launch.index_of_enclosing(marks)
    passes_ns = np.bincount(inside[inside >= 0], excess_ns[inside >= 0], len(marks)).astype(np.int64)
    name = next(iter(marks.name.sums(passes_ns)), "")
    optimizer = name.split("#")[-1].split(".")[0]
    # SGD adds rows as they are, and needs less of the CPU than before; others first sum equal rows, as backward did.
    plain, filling_ns = optimizer == "SGD", work[fills].total_ns
    added_ns = 0.0 if plain else limits.summed_fills * touched * filling_ns
    saved = 1 - added_ns / max(int(excess_ns.sum()), 1)
    if saved <= 0:
        return
    # A pass over large lists is many launches: as many go as the needless part has.
    left, order = 1 - needless * saved, np.argsort(spent.op.rows, kind="stable")
    gone = np.zeros(len(spent), bool)
    gone[order] = np.diff(np.floor(np.cumsum(1 - left[order]) + _ROUNDING), prepend=0) > 0
    factor = (spent.dur_ns * left).sum() / max(int(spent.dur_ns[~gone].sum()), 1)
    steps_of_it = marks[marks.name.one_of(name)].rows
    sparse_cpu = Drop(gradients.rows, limits.added_cpu_ns) if plain else Wait(steps_of_it, limits.summed_cpu_ns)
    owner = np.maximum(np.searchsorted(gradients.start_ns, spent.launch.start_ns, side="right") - 1, 0)
    certain = "rows" in details and not len(work.of_kind("communication"))
    yield Hits(
        occurrences=gradients,
        named_by="embedding",
        lost=LostTime.excess(spent, excess_ns).owned_by(owner),
        fix=(
            DropWork(spent[gone].entries),
            Resize(spent[~gone].entries, spent.dur_ns[~gone] * min(factor, 1)),
            sparse_cpu,
        ),
        message="backward makes a dense gradient for an embedding "
        + ("of {rows} rows " if "rows" in details else "")
        + "{times_a_step}, though at most {touched} of its rows are looked up; filling it and passing over the other "
        "rows takes {per_step} a step, in {ops}" + ("" if plain else _NOT_FREE.format(format_ns(limits.summed_cpu_ns))),
        advice=_ADVICE.get(optimizer, _SPLIT),
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        evidence={
            **details,
            "filling_ns": filling_ns,
            "passes_ns": max(int(excess_ns.sum()) - filling_ns, 0),
            "ops": spent.op.name.sums(spent.dur_ns),
            "lines": gradients.line.sums(gradients.dur_ns),
        },
    )
