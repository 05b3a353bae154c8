"""Which forward op recorded the node of backward that work belongs to."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work


def recorders(calls: Calls, ops: Calls, work: Work) -> Rows:
    """The op that recorded the node of backward that each piece of work belongs to; -1 for none."""
    sequence = ints(calls.events.trace.lanes.cpu, "sequence")
    numbered = calls[calls.is_op & (pick(sequence, calls.rows, NULL_INT) != NULL_INT)]
    backward = numbered.name.matches(r"Backward\d*$")
    nodes, forward = numbered[backward], numbered[~backward]
    if len(nodes) == 0 or len(np.unique(forward.thread)) != 1:
        return np.full(len(work), -1, np.int64)
    # An op shows the number of the next node: the last op with a number is the one that recorded it.
    order = np.lexsort((forward.start_ns, sequence[forward.rows]))
    numbers, wanted = sequence[forward.rows][order], sequence[nodes.rows]
    last = np.searchsorted(numbers, wanted, side="right") - 1
    known = (last >= 0) & (numbers[last] == wanted)
    recorder = np.where(known, forward.index_of_enclosing(ops)[order[last]], -1)
    return pick(recorder, work.op.index_of_enclosing(nodes))
