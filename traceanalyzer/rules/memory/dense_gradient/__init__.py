"""Embeddings whose gradient is as large as the table although a step touches few of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.replay.edits import Drop, Wait
from traceanalyzer.roofline.tensor_types import Shape
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Work, limit, rule
from traceanalyzer.rule.embedding_tables import looked_up_ns, needless_parts, rarely_touched
from traceanalyzer.rules.memory.dense_gradient.redundant_work import reduce_redundant_work
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    max_touched_share: float = limit(
        0.20,
        "at most this share of a table's rows may be looked up; with more rows sparse updates save little; H200, "
        "Adagrad",
    )
    summed_fills: float = limit(
        27.0,
        "a sparse update takes this many times the GPU time of filling the looked-up rows once; Adagrad, H200",
    )
    added_cpu_ns: int = limit(
        100_000, "sparse backward and SGD's update of a table take this CPU time; H200 host, torch 2.11"
    )
    summed_cpu_ns: int = limit(
        370_000,
        "sparse updates of Adagrad and SparseAdam take this CPU time more than dense updates; H200 host, "
        "torch 2.11",
    )


_SPARSE = "Pass sparse=True to the embedding"
_ADVICE = {
    "SGD": f"{_SPARSE}: SGD (without momentum and weight decay) then updates the touched rows.",
    "Adagrad": f"{_SPARSE}: Adagrad then updates the touched rows only.",
}
_SPLIT = f"{_SPARSE} and give its table to torch.optim.SparseAdam, the rest to the present optimizer."


@rule(since="0.1", claims=Claims.WORK, min_share=0.02, limits=Limits)
def dense_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """An embedding's gradient is as large as its table, though a step uses few of its rows.

    What it looks for: embeddings (and embedding bags) that look up less than a fifth of their table's rows
    between two optimizer steps, and their backward pass. The cost is the time to fill the gradient, plus the
    table's share (by elements) of every pass over gradients: optimizer, accumulation, clipping, zeroing.
    Why it costs: a table of 8 million rows has a gradient of 8 million rows, of which a few thousand are not
    zero. The gradient is written and read several times, and so are the optimizer's states.
    Bad: nn.Embedding(8_000_000, 64). Good: nn.Embedding(8_000_000, 64, sparse=True), and an optimizer that
    supports sparse gradients.
    How sure: numbers of rows are recorded. Repeated indices count each time, so the true number of used rows is
    smaller. Ops on more than about 30 tensors (_foreach_*, fused optimizers) have no recorded shapes. The rule
    assumes that such an op handles all parameters with a gradient.
    When it is wrong: momentum and weight decay also change rows that a step does not use; sparse updates leave
    these rows as they are. A table that is also the output layer's weight has a dense gradient anyway. So the
    rule skips a table if its number of rows is also a dimension of a matrix product.
    Saving: the time of these parts, minus the CPU and GPU time of sparse updates.
    Source: "Embedding" and "SparseAdam" in PyTorch's documentation; measured on an H200 with torch 2.11.
    """
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    at, shares = rarely_touched(calls, marks, limits.max_touched_share)
    if not len(at):
        return
    fills, parts = needless_parts(calls, work, at, shares)
    spent, needless, filling = work[parts > 0], parts[parts > 0], work[fills]
    marks = _of_table(marks, spent, needless)
    optimizer = str(marks.name[0]).split("#")[1].split(".")[0] if len(marks) else ""
    # SGD adds rows as they are, and needs less of the CPU than before; others first sum equal rows, as backward did.
    plain = optimizer == "SGD"
    added_ns = 0.0 if plain else limits.summed_fills * looked_up_ns(filling, at, shares)
    saved = 1 - added_ns / max(float((spent.dur_ns * needless).sum()), 1.0)
    on_cpu = Drop(at.rows, limits.added_cpu_ns) if plain else Wait(marks.rows, limits.summed_cpu_ns)
    if saved > 0:
        yield replace(
            _hits(spent, needless, at, shares, filling.total_ns),
            fix=(*reduce_redundant_work(spent, needless * saved), on_cpu),
            advice=_ADVICE.get(optimizer, _SPLIT),
            confidence=Confidence.MEDIUM if len(work.of_kind("communication")) else Confidence.HIGH,
        )


def _of_table(marks: Calls, spent: Work, needless: Floats) -> Calls:
    """Steps of the optimizer whose work passes over the table longest."""
    inside = spent.launch.index_of_enclosing(marks)
    passes_ns = np.bincount(inside[inside >= 0], (spent.dur_ns * needless)[inside >= 0], len(marks))
    kinds = [(float(passes_ns[marks.name.one_of(name)].sum()), name) for name in marks.name.distinct()]
    return marks[marks.name.one_of(max(kinds)[1])] if kinds else marks


def _hits(spent: Work, needless: Floats, at: Calls, shares: Mapping[Shape, float], filling_ns: int) -> Hits:
    """What is measured, without what to do about it."""
    lost = LostTime.excess(spent, (spent.dur_ns * needless).astype(np.int64))
    owner = np.maximum(np.searchsorted(at.start_ns, spent.launch.start_ns, side="right") - 1, 0)
    (rows, width), share = max(shares.items(), key=lambda table: math.prod(table[0]))
    return Hits(
        occurrences=at,
        named_by="embedding",
        lost=replace(lost, owner=owner[lost.owner]),
        message="backward makes a dense gradient for an embedding of {rows} rows {times_a_step}, though at most "
        "{touched} of them are looked up: filling this gradient and passing over it take {per_step} more a "
        "step",
        advice="",
        evidence={
            "rows": rows,
            "width": width,
            "touched_share": share,
            "filling_ns": filling_ns,
            "passes_ns": int((lost.end_ns - lost.start_ns).sum()) - filling_ns,
            "ops": spent.op.name.sums(spent.dur_ns),
            "lines": at.line.sums(at.dur_ns),
        },
    )
