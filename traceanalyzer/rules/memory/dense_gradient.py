"""Embedding gradients as large as the table, while a step uses few rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.edits import Drop, DropWork, Edit, Resize, Wait
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, limit, rule
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.names import OPTIMIZER_MARK

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


_ROUNDING = 1e-9
_LOOKUP = r"^aten::_?embedding(_bag)?(_forward_only)?$"
_BACKWARD = r"^autograd::engine::evaluate_function"
_LIST = r"^aten::(_amp)?_?(foreach|fused)_"
_LOOKED_UP = 2  # a lookup reads and writes a row, a fill writes it
# Tensors read and written.
_PASSES = (("_fused_", 5.0), ("addc", 4.0), ("lerp", 3.0), ("norm", 1.0), ("", 2.0))
_SUMMED = 2.0  # fills that adding a second gradient of a table takes at least
_SPARSE = "Pass sparse=True to the embedding"
_ADVICE = {
    "SGD": f"{_SPARSE}: SGD (without momentum and weight decay) then updates the touched rows.",
    "Adagrad": f"{_SPARSE}: Adagrad then updates the touched rows only.",
}
_NOT_FREE = "; sparse updates avoid this, but the CPU then needs about {} more in each optimizer step"
_SPLIT = f"{_SPARSE} and give its table to torch.optim.SparseAdam, the rest to the present optimizer."


@dataclass(frozen=True, slots=True)
class Limits:
    max_touched_share: float = limit(
        0.20,
        "a table is reported only if less than this share of its rows are looked up; if more rows are "
        "looked up, sparse updates save little; measured with Adagrad on an H200",
    )
    summed_fills: float = limit(
        27.0,
        "used for the predicted saving: a sparse update of n rows is predicted to take this many times as "
        "long on the GPU as filling n rows with zeros; measured with Adagrad on an H200",
    )
    added_cpu_ns: int = limit(
        100_000,
        "used for the predicted saving with SGD: a table's sparse backward pass and its update take this "
        "CPU time; measured on the host of an H200 with torch 2.11",
    )
    summed_cpu_ns: int = limit(
        370_000,
        "used for the predicted saving with Adagrad and SparseAdam: sparse updates take this much more CPU "
        "time than dense updates; measured on the host of an H200 with torch 2.11",
    )


@rule(since="0.1", claims=Claims.WORK, min_share=0.02, limits=Limits)
def dense_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """An embedding's gradient is as large as its table, though a step uses few of its rows.

    What it looks for: embeddings that look up less than a fifth of their table's rows between two optimizer
    steps. The cost is the time to fill the gradient, and the time that gradient clipping and the optimizer
    spend on this table.
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
    sure = Confidence.MEDIUM if len(work.of_kind("communication")) else Confidence.HIGH
    try:
        gradients, shares = rarely_touched(calls, marks, limits.max_touched_share)
    except Unavailable:
        if (details := by_time(calls, work, marks, limits.max_touched_share)) is None:
            raise
        needless = _Needless(
            details.at, work[details.parts > 0], details.parts[details.parts > 0], work[details.fills]
        )
        yield from needless.hits(
            marks, details.touched * needless.fills.total_ns, limits, **_evidence_by_time(details)
        )
        return
    if not len(gradients):
        return
    fills, parts = needless_parts(calls, work, gradients, shares)
    needless = _Needless(gradients, work[parts > 0], parts[parts > 0], work[fills])
    row_fills_ns = looked_up_ns(needless.fills, gradients, shares)
    yield from needless.hits(marks, row_fills_ns, limits, confidence=sure, **_told(shares))


@dataclass(frozen=True, slots=True)
class _Needless:
    """Dense gradients, the work on them, and the needless part of each piece of work."""

    at: Calls
    spent: Work
    parts: Floats
    fills: Work

    def hits(self, marks: Calls, row_fills_ns: float, limits: Limits, **details: Any) -> Iterator[Hits]:
        """What is measured, with what sparse gradients change; nothing where they take as long.

        Args:
            row_fills_ns: what filling the looked-up rows once would take.
            details: message, evidence and confidence.
        """
        marks = _of_table(marks, self.spent, self.parts)
        optimizer = str(marks.name[0]).split("#")[1].split(".")[0] if len(marks) else ""
        # SGD adds rows as they are, and needs less of the CPU than before; others first sum equal rows, as backward
        # did.
        plain = optimizer == "SGD"
        added_ns = 0.0 if plain else limits.summed_fills * row_fills_ns
        saved = 1 - added_ns / max(float((self.spent.dur_ns * self.parts).sum()), 1.0)
        if saved <= 0:
            return
        on_cpu = Drop(self.at.rows, limits.added_cpu_ns) if plain else Wait(marks.rows, limits.summed_cpu_ns)
        lost = LostTime.excess(self.spent, (self.spent.dur_ns * self.parts).astype(np.int64))
        owner = np.maximum(np.searchsorted(self.at.start_ns, self.spent.launch.start_ns, side="right") - 1, 0)
        yield Hits(
            occurrences=self.at,
            named_by="embedding",
            lost=lost.owned_by(owner),
            fix=(*reduce_redundant_work(self.spent, self.parts * saved), on_cpu),
            message=details["message"] + ("" if plain else _NOT_FREE.format(format_ns(limits.summed_cpu_ns))),
            advice=_ADVICE.get(optimizer, _SPLIT),
            confidence=details["confidence"],
            evidence={
                **details["evidence"],
                "filling_ns": self.fills.total_ns,
                "passes_ns": max(int((lost.end_ns - lost.start_ns).sum()) - self.fills.total_ns, 0),
                "ops": self.spent.op.name.sums(self.spent.dur_ns),
                "lines": self.at.line.sums(self.at.dur_ns),
            },
        )


def _told(shares: Mapping[Shape, float]) -> dict[str, Any]:
    (rows, width), share = max(shares.items(), key=lambda table: math.prod(table[0]))
    return {
        "message": "backward makes a dense gradient for an embedding of {rows} rows {times_a_step}, though at most "
        "{touched} of these rows are looked up; work on the other rows takes {per_step} a step",
        "evidence": {"rows": rows, "width": width, "touched_share": share},
    }


def _evidence_by_time(details: ByTime) -> dict[str, Any]:
    return {
        "message": "backward makes a dense gradient for an embedding {times_a_step}. Filling these gradients takes "
        "{filling} in total; looking up rows takes far less, so at most about {touched} of the rows are looked up. For "
        "the other rows, filling the gradients and passing over them ({ops}) take {per_step} a step",
        "evidence": {"touched_share": details.touched},
        "confidence": Confidence.MEDIUM,
    }


def _of_table(marks: Calls, spent: Work, needless: Floats) -> Calls:
    """Steps of the optimizer with the longest passes over the table."""
    inside = spent.launch.index_of_enclosing(marks)
    passes_ns = np.bincount(inside[inside >= 0], (spent.dur_ns * needless)[inside >= 0], len(marks))
    kinds = [(float(passes_ns[marks.name.one_of(name)].sum()), name) for name in marks.name.distinct()]
    return marks[marks.name.one_of(max(kinds)[1])] if kinds else marks


def reduce_redundant_work(spent: Work, needless: Floats) -> tuple[Edit, ...]:
    """The edits that remove the needless part of the work.

    A pass over large lists is many launches: as many go as the needless part has, the others take what is left.

    Args:
        needless: share of each piece (0 to 1), the same for all pieces of one op.
    """
    rows = spent.op.rows
    order = np.argsort(rows, kind="stable")
    _, first, op, count = np.unique(rows[order], return_index=True, return_inverse=True, return_counts=True)
    gone = np.floor(count[op] * needless[order] + _ROUNDING)
    goes = np.arange(len(rows)) - first[op] < gone
    rest = spent.dur_ns[order] * (1 - needless[order]) * count[op] / np.maximum(count[op] - gone, 1)
    entries = spent.entries[order]
    return DropWork(entries[goes]), Resize(entries[~goes], rest[~goes])


@dataclass(frozen=True, slots=True)
class ByTime:
    """What times tell of dense gradients of embeddings.

    Attributes:
        at: the ops that make the gradients.
        touched: share of the rows that is looked up, at most.
        fills: which work fills the gradients; parallel to all work.
        parts: the part of each piece of work that is for rows nobody looked up, at least; parallel to all work.
    """

    at: Calls
    touched: float
    fills: Mask
    parts: Floats


def by_time(calls: Calls, work: Work, marks: Calls, most: float) -> ByTime | None:
    """None where more may have been looked up, or another gradient is added to that of a table.

    Args:
        marks: steps of the optimizers.
        most: share of a table's rows up to which they are few.
    """
    gradients = calls[calls.is_op & calls.name.matches(DENSE_GRADIENT)]
    fills = fills_of(work, gradients)
    filled_ns = work[fills].total_ns
    looked_up_ns = work[work.outer_op.name.matches(_LOOKUP)].total_ns
    if not (filled_ns and looked_up_ns and len(marks)) or _is_summed(work, fills):
        return None
    touched = looked_up_ns / (_LOOKED_UP * filled_ns)
    if touched >= most:
        return None
    steps = max(marks.name.sums(np.ones(len(marks), np.int64)).values(), default=1)
    parts = _parts(work, passes_of(calls, work) & ~fills, work[fills], filled_ns / steps)
    return ByTime(gradients, touched, fills, np.where(fills, 1.0, parts) * (1 - touched))


def _is_summed(work: Work, fills: Mask) -> bool:
    """True if backward adds tensors as large as the largest table: an output layer may share its weight."""
    sums = work[work.op.name.matches(_SUM) & work.outer_op.name.matches(_BACKWARD)]
    return bool((sums.dur_ns >= _SUMMED * work[fills].dur_ns.max()).any())


def _parts(work: Work, passes: Mask, fills: Work, filled_ns: float) -> Floats:
    """Part of each pass over a list of tensors that the tables take at the speed of their fills.

    A pass over a single tensor counts where it takes as long as one over the largest table.
    """
    spent: Rows = np.zeros(len(work), np.int64)
    _, call = np.unique(work.op.rows, return_inverse=True)
    spent = np.bincount(call, np.where(passes, work.dur_ns, 0))[call].astype(np.int64)
    names = work.op.name
    tensors = np.zeros(len(work))
    for text, count in _PASSES:
        tensors = np.where((tensors == 0) & names.matches(text), count, tensors)
    lists = names.matches(_LIST)
    large = spent >= tensors * fills.dur_ns.max()
    part = np.minimum(tensors * filled_ns / np.maximum(spent, 1), 1.0)
    return np.where(passes & lists, part, np.where(passes & large, 1.0, 0.0))
