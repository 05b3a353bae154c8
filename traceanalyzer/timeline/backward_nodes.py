"""Nodes of backward: the forward op that recorded each, and the forward ops that they run again (checkpoints)."""

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import NULL_INT, ints, matching
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.selection import Events, once_per_trace

_NODE = r"Backward\d*$"
_CHECKPOINT = r"Checkpoint\w*Backward"
_MOST = 0.95  # of a thread's nodes: the recording may begin amid a step


@once_per_trace
def hooks_of(events: Events) -> Mask:
    """Which rows of `trace.cpu` are nodes of backward whose hook calls backward; see `Nesting.op`."""
    engine = matching(events.trace.lanes.cpu, "name", lambda name: name.startswith(ENGINE))
    return np.asarray(engine & (events.nesting.op != np.arange(len(engine))))


def in_hooks(events: Events, rows: Rows) -> Mask:
    """Which rows of `trace.cpu` are, or lie in, such a node."""
    return np.asarray(nearest_marked(events.nesting.parent, hooks_of(events), rows) >= 0)


@once_per_trace
def recomputed_ops(events: Events) -> Calls:
    """Ops in nodes of backward that record gradients themselves, beside others that do not: a second forward.

    Recording gives ops a sequence number. Where all of a node have one, they are gradients of gradients.
    """
    calls = Calls.build(events)
    name = calls.name
    inner = calls[calls.is_op & name.matches(r"::|^torch") & directly_inside(calls, name.matches(_NODE))]
    numbered = pick(ints(events.trace.lanes.cpu, "sequence"), inner.rows) != NULL_INT
    again = inner[numbered & ~inner.name.matches("^autograd::")]
    if len(again) == 0:
        return again
    plain = inner[~numbered]
    plain = plain[np.isin(plain.parent.rows, again.parent.rows)]
    owner = Work.build(events).launch.index_of_enclosing(plain)
    # Nodes that compute gradients without recording any.
    plain_nodes, parent = plain[distinct(owner[owner >= 0])].parent.rows, again.parent
    return again[np.isin(parent.rows, plain_nodes) | parent.name.matches(_CHECKPOINT)]


def directly_inside(calls: Calls, nodes: Mask) -> Mask:
    """Which of the calls lie right in one of those that are nodes."""
    marked = np.zeros(len(calls.events.nesting.parent) + 1, bool)
    marked[calls.rows[nodes]] = True
    return marked[calls.parent.rows]


def recording_ops(calls: Calls, ops: Calls, work: Work) -> Rows:
    """Position in `ops` of the op that recorded the node that each piece of work belongs to; -1 for none."""
    nodes, recorder = backward_nodes_of(calls, ops)
    return pick(recorder, work.op.index_of_enclosing(nodes))


def lines_of(work: Work) -> Texts:
    """The user's line that launched each piece; of nodes of backward that of the forward op that recorded them."""
    line, calls = work.line, Calls.build(work.events)
    if line.there.all() or not work.events.user_code.recorded:
        return line
    nodes, recorder = work.events.once(lines_of, lambda: backward_nodes_of(calls, calls))
    node = work.op.index_of_enclosing(nodes)
    return line.or_else(Calls(work.events, pick(calls.rows, pick(recorder, node))).line)


def outer_nodes_of(calls: Calls, ops: Calls) -> tuple[Calls, Rows]:
    """(outermost ops of the nodes that these ops recorded, in time; position in `ops` of the op that recorded each)."""
    nodes, recorder = backward_nodes_of(calls, ops)
    outer, first = np.unique(nodes.outer_op.rows[recorder >= 0], return_index=True)
    nodes, recorder = Calls(calls.events, outer), recorder[recorder >= 0][first]
    order = np.argsort(nodes.start_ns, kind="stable")
    return nodes[order], recorder[order]


def backward_nodes_of(calls: Calls, ops: Calls) -> tuple[Calls, Rows]:
    """(nodes of backward, position in `ops` of the op that recorded each; -1 where that is not known).

    Each thread counts its ops by itself. Where several have numbers, as where gradients are differentiated, nodes of
    one forward thread belong to the first thread that has nearly all of their numbers, each before its node.
    """
    cpu = calls.events.trace.lanes.cpu
    sequence = ints(cpu, "sequence")
    numbered = calls[calls.is_op & (pick(sequence, calls.rows, NULL_INT) != NULL_INT)]
    backward = numbered.name.matches(_NODE)
    nodes, forward = numbered[backward], numbered[~backward]
    recorder = np.full(len(nodes), -1, np.int64)
    threads = distinct(forward.thread)
    if len(nodes) == 0 or len(threads) == 0:
        return nodes, recorder
    position = forward.index_of_enclosing(ops)
    if len(threads) == 1:
        return nodes, pick(position, _recording(sequence, nodes, forward))
    origin = ints(cpu, "fwd_thread")[nodes.rows]
    by_start = forward.thread[np.argsort(forward.start_ns, kind="stable")]
    unassigned = list(dict.fromkeys(by_start.tolist()))
    for number in distinct(origin[(origin != NULL_INT) & (origin > 0)]).tolist():
        of_origin = np.flatnonzero(origin == number)
        for thread in unassigned:
            among = np.flatnonzero(forward.thread == thread)
            place = _recording(sequence, nodes[of_origin], forward[among])
            matched = place >= 0
            matched[matched] = forward.start_ns[among[place[matched]]] < nodes.start_ns[of_origin[matched]]
            if matched.mean() >= _MOST:
                recorder[of_origin[matched]] = position[among[place[matched]]]
                unassigned.remove(thread)
                break
    return nodes, recorder


def _recording(sequence: Rows, nodes: Calls, forward: Calls) -> Rows:
    # An op shows the number of the next node: the last one of a number recorded it.
    order = np.lexsort((forward.start_ns, sequence[forward.rows]))
    numbers, wanted = sequence[forward.rows][order], sequence[nodes.rows]
    last = np.searchsorted(numbers, wanted, side="right") - 1
    matched = (last >= 0) & (numbers[last] == wanted)
    return np.where(matched, order[last], -1)
