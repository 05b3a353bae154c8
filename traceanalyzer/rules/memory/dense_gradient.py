"""Embeddings whose gradient is as large as the table although a step touches few of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropWork, Edit, Resize
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.embedding_tables import DENSE_GRADIENT, Shape, looked_up_shares, parts_of, tables_of
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    max_touched_share: float = limit(
        0.10, "of the table's rows: a sparse gradient sorts rows and updates them by scattered writes"
    )


_FILL = r"^aten::(zeros|zero_|fill_|new_zeros|zeros_like)$"
_PASS = r"^aten::(_foreach_|_fused_|_amp_foreach_|linalg_vector_norm$)"
_ROUNDING = 1e-9
_ADVICE = {
    "SGD": "Pass sparse=True to the embedding: SGD (without momentum and weight decay) then updates the touched rows.",
    "Adagrad": "Pass sparse=True to the embedding: Adagrad then updates the touched rows only.",
    "": "Pass sparse=True to the embedding and give its table to torch.optim.SparseAdam, the rest to the optimizer "
    "that it has.",
}


@rule(since="0.2", claims=Claims.WORK, min_share=0.02, limits=Limits)
def dense_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """An embedding's gradient fills its whole table for a few rows.

    What it looks for: backward of embeddings (and embedding bags) between two optimizer steps that look up less than a
    tenth of the table's rows, with the fill of the gradient and the table's part, by elements, of each pass that the
    optimizer, gradient clipping or zeroing makes over lists of tensors.
    Why it costs: the gradient of 8 million rows is written and read several times, and the optimizer's states with
    it, for some thousand rows that are not zero.
    Bad: nn.Embedding(8_000_000, 64). Good: nn.Embedding(8_000_000, 64, sparse=True), and an optimizer that takes it.
    How sure: numbers of rows are recorded; repeated indices are counted each, so fewer rows are touched than said.
    When it is wrong: tables that are the output layer's weight as well have dense gradients, and are left out, as is
    every table that has as many rows as a matrix product has rows or columns. Momentum and weight decay change rows
    that a step does not touch; sparse updates do not. Gradients of table[index] are not looked at.
    Source: "Embedding" and "SparseAdam" in PyTorch's documentation; measured on an H200 with torch 2.11.
    """
    gradients = calls[calls.is_op & calls.name.matches(DENSE_GRADIENT)]
    if len(gradients) == 0:
        return
    gradients = gradients[np.argsort(gradients.start_ns, kind="stable")]
    tables, indices = tables_of(gradients)
    if not any(tables):
        raise Unavailable("no shapes recorded")
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    steps = max(marks.name.sums(np.ones(len(marks), np.int64)).values(), default=1)
    shares = looked_up_shares(calls, tables, indices, steps)
    shares = {table: share for table, share in shares.items() if share < limits.max_touched_share}
    at = gradients[np.array([table in shares for table in tables])]
    if len(at):
        yield _hits(work, at, marks, shares)


def _hits(work: Work, at: Calls, marks: Calls, shares: Mapping[Shape, float]) -> Hits:
    op, start = work.op, work.launch.start_ns
    fills = op.name.matches(_FILL) & (work.launch.owner(at) >= 0)
    passes = op.name.matches(_PASS) | (work.launch.owner(marks) >= 0)
    needless = np.where(passes & ~fills, parts_of(op, passes, shares), fills)
    spent, needless, start = work[needless > 0], needless[needless > 0], start[needless > 0]
    excess = Lost.excess(spent, (spent.dur_ns * needless).astype(np.int64))
    owner = np.maximum(np.searchsorted(at.start_ns, start, side="right") - 1, 0)
    kinds = [name.split("#")[1].split(".")[0] for name in marks.name.distinct()]
    (rows, width), share = max(shares.items(), key=lambda table: math.prod(table[0]))
    filling_ns = work[fills].total_ns
    return Hits(
        at=at,
        by="embedding",
        lost=replace(excess, owner=owner[excess.owner]),
        fix=_fewer(spent, needless),
        message="backward makes a dense gradient of an embedding of {rows} rows {times_a_step}, of which {touched} at "
        "most are looked up: filling it takes {filling}, and passes over it {passes} in all",
        advice=_ADVICE.get(kinds[0] if len(kinds) == 1 else "", _ADVICE[""]),
        confidence=Confidence.MEDIUM if len(work.of_kind("communication")) else Confidence.HIGH,
        evidence={
            "rows": rows,
            "width": width,
            "touched": f"{share:.2%}",
            "filling_ns": filling_ns,
            "passes_ns": int((excess.end_ns - excess.start_ns).sum()) - filling_ns,
            "ops": spent.op.name.sums(spent.dur_ns),
            "lines": at.line.sums(at.dur_ns),
        },
    )


def _fewer(spent: Work, needless: NDArray[np.float64]) -> tuple[Edit, ...]:
    """A pass over large lists is many launches: as many go as the needless part has, the others take what is left."""
    rows = spent.op.rows
    order = np.argsort(rows, kind="stable")
    _, first, op, count = np.unique(rows[order], return_index=True, return_inverse=True, return_counts=True)
    gone = np.floor(count[op] * needless[order] + _ROUNDING)
    goes = np.arange(len(rows)) - first[op] < gone
    left = spent.dur_ns[order] * (1 - needless[order]) * count[op] / np.maximum(count[op] - gone, 1)
    entries = spent.entries[order]
    return DropWork(entries[goes]), Resize(entries[~goes], left[~goes])
