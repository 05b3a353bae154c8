"""A sparse tensor is coalesced again by each op that takes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, starts_of_runs
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule

_COALESCES = "aten::_coalesce"  # is called only where the tensor is not coalesced yet
_MAKES = r"^aten::_sparse_coo_tensor_(with_dims_and_tensors|with_dims|unsafe)$"


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        3.0,
        "reported only if tensors are coalesced at least this many times as often as sparse tensors are "
        "made. Up to two times is normal: one op may make two tensors, and each may be coalesced once; chosen",
    )


@rule(since="0.2", claims=Claims.EVENT, specificity=1, min_share=0.02, limits=Limits)
def uncoalesced_sparse(calls: Calls, work: Work, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Each op that gets a sparse tensor coalesces the tensor again.

    What it looks for: ops that coalesce a sparse COO tensor: they sort its entries and sum up duplicates. The
    first such op on a new tensor is not reported.
    Why it costs: each such op sorts a copy and then drops the copy. The sort takes many times as long as a
    sparse product. The CPU also waits for the sort.
    Bad: a = torch.sparse_coo_tensor(index, values, size), then a @ x in each iteration. Good: a =
    a.coalesce() once, or a.to_sparse_csr().
    How sure: the trace shows the call that coalesces. For a tensor that is already coalesced there is no such call.
    When it is wrong: the program changes entries in place between the ops. Even then, coalesce once, and
    write the new values into the coalesced tensor.
    Saving: the time of all sorts, except one for each new tensor, which is necessary. Products with a
    coalesced tensor may also be faster; this is not included.
    Source: "Uncoalesced sparse COO tensors" in torch.sparse's documentation.
    """
    every = calls[calls.name.one_of(_COALESCES) & (calls.step >= 0)]
    made = calls[calls.name.matches(_MAKES) & (calls.step >= 0)]
    made = made[made.index_of_enclosing(every) < 0]  # coalescing makes one itself
    for _, of_shape in every.by(every.text("input_dims")):
        of_shape = of_shape[np.argsort(of_shape.start_ns, kind="stable")]
        before: Rows = np.searchsorted(np.sort(made.start_ns), of_shape.start_ns)
        needed = starts_of_runs(before) & (before > 0)
        if len(of_shape) >= limits.min_times * max(int(needed.sum()), 1):
            yield _hits(of_shape[~needed], work, idle)


def _hits(again: Calls, work: Work, idle: IdleTime) -> Hits:
    owner = work.launch.index_of_enclosing(again)
    waited = idle.waited()
    waiting = waited.call.index_of_enclosing(again)
    spent = work[owner >= 0]
    lines = again.line.sums(again.dur_ns)
    return Hits(
        occurrences=again,
        lost=LostTime.joined(
            [
                LostTime.all_of(spent, owner[owner >= 0]),
                LostTime.all_of(waited[waiting >= 0], waiting[waiting >= 0]),
            ]
        ),
        fix=Drop(again.rows),
        message="a sparse tensor is not coalesced, so its entries are sorted and added again {times_a_step}, in "
        "{callers}: {spent} of GPU time in all, and the CPU waits each time"
        + (", at {lines}" if lines else ""),
        advice="Call coalesce() once where the tensor is assembled and keep its result, or convert it to CSR.",
        evidence={
            "callers": again.outer_op.name.sums(again.dur_ns),
            "spent_ns": spent.total_ns,
            "lines": lines,
        },
    )
