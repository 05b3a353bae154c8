"""Parameters that get a gradient, and what backward does for those that nothing uses."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.signatures import signatures_of, tensors

NODE = "autograd::engine::evaluate_function"
_CHANGES = r"^aten::(_foreach_|_fused_)?(add|sub|lerp|addcmul|addcdiv|copy|adam|adamw|sgd|adagrad)_$"
_NEVER = np.iinfo(np.int64).max
ENGINE = r"^autograd::engine|^torch::autograd|Backward\d*$"
OPAQUE = r"CompiledFunction|^triton_|^Torch-Compiled|^## Call"


def updates_are_recorded(calls: Calls, work: Work, marks: Calls) -> bool:
    """Whether all that changes parameters is by ops whose shapes were recorded; those of long lists are not."""
    own, lists = work[work.launch.index_of_enclosing(marks) >= 0], _writing(calls)
    lists = lists[lists.name.matches("^aten::_")]
    _, signatures = signatures_of(work.events.trace, np.append(own.op.rows, lists.rows))
    opaque = own.in_graph | own.op.name.matches(OPAQUE)
    return len(own) > 0 and all(any(one.dims) for one in signatures) and not opaque.any()


def used_by_optimizers(calls: Calls, leaves: Calls, marks: Calls) -> Mask:
    """Which gradients have a shape that an optimizer has, or that something outside of backward changes."""
    stepping = calls[calls.is_op & calls.inside(marks)]
    changing = calls.joined((_writing(calls), stepping))
    _, signatures = signatures_of(calls.events.trace, changing.rows)
    shapes = {shape for one in signatures for shape in tensors(one)}
    number, signatures = signatures_of(calls.events.trace, leaves.rows)
    used = [not tensors(one) or not shapes.isdisjoint(tensors(one)) for one in signatures]
    return np.array(used, bool)[number]


def passes_of(calls: Calls, marks: Calls, rows: Calls) -> Rows:
    """Number of the backward pass of each row, rising: what the optimizer's thread calls itself lies between two."""
    own = calls[calls.is_top_op & np.isin(calls.thread, marks.thread) & ~calls.name.matches(ENGINE)]
    return np.searchsorted(np.sort(own.start_ns), rows.start_ns)


def for_unused_alone(calls: Calls, leaves: Calls, used: Mask, marks: Calls) -> Calls:
    """What the engine does for unused gradients alone: after the last used one of its pass, up to the last of all."""
    nodes = calls[calls.name.matches(f"^{NODE}")]
    nodes = nodes[~nodes.parent.inside(nodes)]
    places = passes_of(calls, marks, leaves), passes_of(calls, marks, nodes)
    number, _ = grouped([np.concatenate(places), np.append(leaves.thread, nodes.thread)])
    of_leaf, of_node = number[: len(leaves)], number[len(leaves) :]
    last_used = np.full(number.max() + 1, _NEVER)
    last_used[of_leaf[used]] = -1
    np.maximum.at(last_used, of_leaf[used], leaves.start_ns[used])
    last = np.full(len(last_used), -1)
    np.maximum.at(last, of_leaf, leaves.start_ns)
    after = (nodes.start_ns > last_used[of_node]) & (nodes.start_ns <= last[of_node])
    return nodes[after | np.isin(np.arange(len(nodes)), leaves[~used].index_of_enclosing(nodes))]


def _writing(calls: Calls) -> Calls:
    """What the program itself calls to change tensors: a conversion's own copy_ changes nothing that was there."""
    return calls[calls.is_op & ~calls.parent.op.there & calls.name.matches(_CHANGES)]
