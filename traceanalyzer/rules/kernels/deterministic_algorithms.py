"""Deterministic algorithms are on."""

from __future__ import annotations

from collections.abc import Iterator

from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Work, rule
from traceanalyzer.rule.evidence_texts import op_times

_ALLOCATES = r"^aten::(new_)?empty(_like|_strided|_permuted)?$|^aten::resize_$"
_FILLS = ("aten::fill_",)
_PUTS = ("aten::index_put_", "aten::_index_put_impl_")
_ADDS = r"^aten::(index_(add|copy|reduce)|scatter(_add|_reduce)?|put)_?$"


@rule(since="0.1", claims=Claims.PATTERN)
def deterministic_algorithms(calls: Calls, work: Work) -> Iterator[Hits]:
    """Deterministic algorithms are on: new memory is filled, and indices are sorted before additions.

    What it looks for: ops that normally only allocate (aten::empty, resize_ and similar), but here also fill
    the memory. The rule also finds index_add, scatter_add and similar ops that sort their indices.
    Why it costs: the fill writes each new tensor once more. An op that sorts launches ten kernels or more
    instead of one.
    Bad: torch.use_deterministic_algorithms(True) left on after debugging. Good:
    torch.use_deterministic_algorithms(False). If results must repeat exactly, keep deterministic algorithms,
    but set torch.utils.deterministic.fill_uninitialized_memory = False.
    How sure: PyTorch fills such memory only if deterministic algorithms are on.
    When it is wrong: results must be bitwise reproducible. Then sorting is necessary.
    Saving: only the time of the fills. Without sorts, these ops run other kernels, which may take as long. So
    no saving is predicted for the sorts.
    Source: torch.use_deterministic_algorithms and torch.utils.deterministic in PyTorch's documentation;
    measured on an H200 with torch 2.11.
    """
    ops = calls[calls.is_op]
    fills = ops[ops.name.one_of(*_FILLS) & ops.parent.name.matches(_ALLOCATES)]
    sorts = ops[ops.name.one_of(*_PUTS) & ops.parent.name.matches(_ADDS)]
    filling_and_sorting = fills.joined([fills, sorts])
    spent, owner = filling_and_sorting.launched()
    if not len(spent):
        return
    filling, sorting = spent[owner < len(fills)], spent[owner >= len(fills)]
    replaced = sorts.parent.name.sums(sorts.dur_ns)
    yield Hits(
        occurrences=filling_and_sorting,
        lost=LostTime.all_of(filling, owner[owner < len(fills)]),
        fix=Drop(fills.rows) if len(fills) else (),
        message="deterministic algorithms are on: "
        + ("filling newly allocated memory takes {per_step} a step, for {fills}" if len(fills) else "")
        + ("; " if len(fills) and replaced else "")
        + (
            "{replaced:of these ops' time} sort their indices and add in {kernels} kernels instead of one"
            if replaced
            else ""
        ),
        advice="Remove torch.use_deterministic_algorithms(True) if results need not be bitwise "
        "reproducible, or set torch.utils.deterministic.fill_uninitialized_memory = False.",
        evidence={
            "filling_ns": filling.total_ns,
            "fills": op_times(filling),
            "replaced": replaced,
            "kernels": round(len(sorting) / max(len(sorts), 1)),
            "sorting_ns": sorting.total_ns,
            "lines": filling_and_sorting.line.sums(filling_and_sorting.dur_ns),
        },
    )
