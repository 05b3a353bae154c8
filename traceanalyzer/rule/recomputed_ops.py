"""Forward ops that a node of backward runs again: checkpoints."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, distinct, pick
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.selection import Events

_NODE = r"Backward\d*$"
_CHECKPOINT = r"Checkpoint\w*Backward"


def recomputed(events: Events) -> Calls:
    """Ops in nodes of backward that record gradients themselves, beside others that do not: a second forward.

    Recording gives ops a sequence number. Where all of a node have one, they are gradients of gradients.
    """
    return events.once("recomputed", lambda: _recomputed(events))


def _recomputed(events: Events) -> Calls:
    calls = Calls.build(events)
    name = calls.name
    inner = calls[calls.is_op & name.matches(r"::|^torch") & right_in(calls, name.matches(_NODE))]
    numbered = pick(ints(events.trace.lanes.cpu, "sequence"), inner.rows) != NULL_INT
    again = inner[numbered & ~inner.name.matches("^autograd::")]
    if len(again) == 0:
        return again
    plain = inner[~numbered]
    plain = plain[np.isin(plain.parent.rows, again.parent.rows)]
    owner = Work.build(events).launch.index_of_enclosing(plain)
    own = plain[distinct(owner[owner >= 0])].parent.rows  # nodes that compute gradients without recording any
    parent = again.parent
    return again[np.isin(parent.rows, own) | parent.name.matches(_CHECKPOINT)]


def right_in(calls: Calls, nodes: Mask) -> Mask:
    """Which of the calls lie right in one of those that are nodes."""
    marked = np.zeros(len(calls.events.nesting.parent) + 1, bool)
    marked[calls.rows[nodes]] = True
    return marked[calls.parent.rows]
