"""Which forward op recorded a node of backward, and the work of that node."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work


def recorders(calls: Calls, ops: Calls, work: Work) -> Rows:
    """Position in `ops` of the op that recorded the node that each piece of work belongs to; -1 for none."""
    nodes, recorder = recorded_nodes(calls, ops)
    return pick(recorder, work.op.index_of_enclosing(nodes))


def recorded_nodes(calls: Calls, ops: Calls) -> tuple[Calls, Rows]:
    """(nodes of backward, position in `ops` of the op that recorded each; -1 where that is not known)."""
    sequence = ints(calls.events.trace.lanes.cpu, "sequence")
    numbered = calls[calls.is_op & (pick(sequence, calls.rows, NULL_INT) != NULL_INT)]
    backward = numbered.name.matches(r"Backward\d*$")
    nodes, forward = numbered[backward], numbered[~backward]
    if len(nodes) == 0 or len(np.unique(forward.thread)) != 1:
        return nodes, np.full(len(nodes), -1, np.int64)
    # An op shows the number of the next node: the last op with a number is the one that recorded it.
    order = np.lexsort((forward.start_ns, sequence[forward.rows]))
    numbers, wanted = sequence[forward.rows][order], sequence[nodes.rows]
    last = np.searchsorted(numbers, wanted, side="right") - 1
    known = (last >= 0) & (numbers[last] == wanted)
    return nodes, np.where(known, forward.index_of_enclosing(ops)[order[last]], -1)
