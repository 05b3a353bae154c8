"""Deterministic algorithms are on."""

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, sums_of
from traceanalyzer.replay.edits import Drop, Scale
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Work, op_times, rule
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import signatures_of, tensors

_ALLOCATES = r"^aten::(new_)?empty(_like|_strided|_permuted)?$|^aten::resize_$"
_PUTS = ("aten::index_put_", "aten::_index_put_impl_")
_ADDS = r"^aten::(index_(add|copy|reduce)|scatter(_add|_reduce)?|put)_?$"
# What libraries write in place of bincount, which has no deterministic kernel: values, compared with every bin.
_COMPARES = ("aten::repeat", "aten::eq", "aten::sum")


class Limits:
    added_per_ns: float = 138.0
    """for the saving: elements that index_add adds in a nanosecond where it does not sort, float32; measured
    in two programs, H200, torch 2.11"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits)
def deterministic_algorithms(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Deterministic algorithms are on: new memory is filled, and indices are sorted before additions.

    What it looks for: ops that normally only allocate (aten::empty, resize_ and similar), but here also fill
    the memory. The rule also finds index_add, scatter_add and similar ops that sort their indices, and values that
    are compared with every bin (repeat, eq, sum) because bincount is not deterministic.
    Why it costs: the fill writes each new tensor once more. An op that sorts launches ten kernels or more
    instead of one. A comparison with every bin writes values x bins numbers.
    Bad: torch.use_deterministic_algorithms(True) left on after debugging. Good:
    torch.use_deterministic_algorithms(False). If results must repeat exactly, keep deterministic algorithms,
    but set torch.utils.deterministic.fill_uninitialized_memory = False.
    How sure: PyTorch fills such memory only if deterministic algorithms are on.
    When it is wrong: results must be bitwise reproducible. Then sorting is necessary.
    Saving: the time of the fills and of the comparisons. Of a sorted addition, what it takes above an addition
    without sorting; that may be nothing.
    Source: torch.use_deterministic_algorithms and torch.utils.deterministic in PyTorch's documentation;
    measured on an H200 with torch 2.11.
    """
    ops = calls[calls.is_op]
    fills = ops[ops.name.one_of("aten::fill_") & ops.parent.name.matches(_ALLOCATES)]
    sorts = ops[ops.name.one_of(*_PUTS) & ops.parent.name.matches(_ADDS)]
    counts = _compared_with_bins(calls[calls.is_top_op & (calls.step >= 0)]) if len(fills) else fills
    every = fills.joined([fills, counts, sorts])
    spent, owner = every.launched()
    if not len(spent):
        return
    needless = owner < len(fills) + len(counts)
    filling, counting = spent[owner < len(fills)], spent[needless & (owner >= len(fills))]
    sorting, sort = spent[~needless], owner[~needless] - len(fills) - len(counts)
    saved = 1 - np.minimum(_added_elements(sorts) / limits.added_per_ns / sums_of(sort, sorting.dur_ns, len(sorts)), 1)
    excess_ns = (sorting.dur_ns * saved[sort]).astype(np.int64)
    replaced = sorts.parent.name.sums(sorts.dur_ns)
    parts = []
    if len(fills):
        parts.append("filling newly allocated memory takes {filling_a_step}, for {fills}")
    if len(counting):
        parts.append("counting by comparison with every bin, instead of bincount, takes {counting_a_step}")
    if replaced:
        parts.append(
            "{replaced:of these ops' time} sort their indices and add in {kernels} kernels instead of one"
            + (", which takes {excess_a_step} more" if excess_ns.any() else "")
        )
    yield Hits(
        occurrences=every,
        lost=LostTime.joined(
            [LostTime.all_of(spent[needless], owner[needless]), LostTime.excess(sorting, excess_ns, owner[~needless])]
        ),
        fix=(Drop(np.concatenate([fills.rows, counts.rows])), Scale(sorting.entries, 1 - saved[sort]))
        if len(fills) or excess_ns.any()
        else (),
        message="deterministic algorithms are on: " + "; ".join(parts),
        advice="Remove torch.use_deterministic_algorithms(True) if results need not be bitwise "
        "reproducible, or set torch.utils.deterministic.fill_uninitialized_memory = False.",
        evidence={
            "filling_ns": filling.total_ns,
            "counting_ns": counting.total_ns,
            "fills": op_times(filling),
            "replaced": replaced,
            "kernels": round(len(sorting) / max(len(sorts), 1)),
            "sorting_ns": sorting.total_ns,
            "excess_ns": int(excess_ns.sum()),
            "lines": every.line.sums(every.dur_ns),
        },
    )


def _added_elements(sorts: Calls) -> Floats:
    """Elements that each op adds, infinite where no shapes are recorded or it does not add."""
    adds = sorts.parent.name.matches("_add")
    number, signatures = signatures_of(sorts.events.trace, sorts.parent.rows)
    elements = [max(map(math.prod, tensors(op)[1:]), default=0) or np.inf for op in signatures]
    return np.where(adds, np.array(elements, np.float64)[number], np.inf)


def _compared_with_bins(outer: Calls) -> Calls:
    """Ops that count values by comparison: bins are repeated for each value, compared with all, and summed."""
    ordered = outer[~outer.name.meets(is_view)].in_order()
    names = [ordered.name.one_of(name) for name in _COMPARES]
    compares = np.flatnonzero(names[0][:-2] & names[1][1:-1] & names[2][2:])
    number, signatures = signatures_of(ordered.events.trace, ordered.rows)
    chosen: list[int] = []
    for place in compares.tolist():
        bins, compared, added = (tensors(signatures[which]) for which in number[place : place + 3].tolist())
        whole = max(compared, key=math.prod, default=())
        if added[:1] == [whole] and math.prod(whole) > sum(map(math.prod, bins)) and len(whole) > 1:
            chosen += range(place, place + 3)
    return ordered[np.array(chosen, np.int64)]
