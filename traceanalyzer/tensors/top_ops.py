"""The ops that the user's code called, in order of execution, with their recorded inputs."""

from collections.abc import Iterable

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.timeline.calls_and_work import Calls

Sequence = tuple[Calls, Rows, list[Signature]]


def require_shapes(signatures: Iterable[Signature], shows: str) -> None:
    """Raise Unavailable unless inputs of some op were recorded; `shows` ends the sentence: "shows what is sliced"."""
    if not any(op.dims for op in signatures):
        raise Unavailable(f"no shapes recorded: record_shapes=True {shows}")


def with_inputs(ops: Calls) -> Sequence:
    """(the ops, position of each op's inputs in the signatures as int64 (ops,), the distinct signatures)."""
    return (ops, *signatures_of(ops.events.trace, ops.rows))


def top_ops(calls: Calls, shows: str, *, in_steps: bool = True, views: bool = True) -> Sequence:
    """Ops in no other op, sorted by thread and start, with their inputs: see `with_inputs`.

    Args:
        shows: what recorded shapes show, as for `require_shapes`, which raises Unavailable.
        in_steps: leave out ops that began outside of steps.
        views: keep ops that only view a tensor.
    """
    ops = calls[calls.is_top_op & ((calls.step >= 0) | (not in_steps))]
    ops = ops if views else without_views(ops)
    sequence = with_inputs(ops.in_order())
    require_shapes(sequence[2], shows)
    return sequence


def without_views(ops: Calls) -> Calls:
    """The ops that make or change a tensor."""
    return ops[~ops.name.meets(is_view)]
