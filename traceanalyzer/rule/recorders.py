"""Which forward op recorded a node of backward, and the work of that node."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work

_MOST = 0.95  # of a thread's nodes: the recording may begin amid a step


def recorders(calls: Calls, ops: Calls, work: Work) -> Rows:
    """Position in `ops` of the op that recorded the node that each piece of work belongs to; -1 for none."""
    nodes, recorder = recorded_nodes(calls, ops)
    return pick(recorder, work.op.index_of_enclosing(nodes))


def recorded_nodes(calls: Calls, ops: Calls) -> tuple[Calls, Rows]:
    """(nodes of backward, position in `ops` of the op that recorded each; -1 where that is not known).

    Each thread counts its ops by itself. Where several have numbers, as where gradients are differentiated, nodes of
    one forward thread belong to the first thread that has nearly all of their numbers, each before its node.
    """
    cpu = calls.events.trace.lanes.cpu
    sequence = ints(cpu, "sequence")
    numbered = calls[calls.is_op & (pick(sequence, calls.rows, NULL_INT) != NULL_INT)]
    backward = numbered.name.matches(r"Backward\d*$")
    nodes, forward = numbered[backward], numbered[~backward]
    found = np.full(len(nodes), -1, np.int64)
    threads = np.unique(forward.thread)
    if len(nodes) == 0 or len(threads) == 0:
        return nodes, found
    position = forward.index_of_enclosing(ops)
    if len(threads) == 1:
        at = _recording(sequence, nodes, forward)
        return nodes, pick(position, at)
    origin = ints(cpu, "fwd_thread")[nodes.rows]
    left = sorted(threads.tolist(), key=lambda one: int(forward.start_ns[forward.thread == one].min()))
    for one in np.unique(origin[(origin != NULL_INT) & (origin > 0)]).tolist():
        own = np.flatnonzero(origin == one)
        for thread in left:
            among = np.flatnonzero(forward.thread == thread)
            at = _recording(sequence, nodes[own], forward[among])
            known = at >= 0
            known[known] = forward.start_ns[among[at[known]]] < nodes.start_ns[own[known]]
            if known.mean() >= _MOST:
                found[own[known]] = position[among[at[known]]]
                left.remove(thread)
                break
    return nodes, found


def _recording(sequence: Rows, nodes: Calls, forward: Calls) -> Rows:
    """Position in `forward` of the op that has each node's number: the last, as an op shows the number of the next
    node; -1 of none."""
    order = np.lexsort((forward.start_ns, sequence[forward.rows]))
    numbers, wanted = sequence[forward.rows][order], sequence[nodes.rows]
    last = np.searchsorted(numbers, wanted, side="right") - 1
    known = (last >= 0) & (numbers[last] == wanted)
    return np.where(known, order[last], -1)
