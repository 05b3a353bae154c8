"""What nodes of backward hold beside the gradients that they compute: forward again, and checks for NaN."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, distinct, pick
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule.views import Calls, Work

_NODE = r"Backward\d*$"
_CHECKPOINT = r"Checkpoint\w*Backward"
_EVALUATION = f"^{ENGINE}"
_CHECKS = ("aten::ne", "aten::isnan", "aten::any", "aten::_is_any_true", "aten::item", "aten::is_nonzero")
_ASKS = ("aten::item", "aten::is_nonzero")
_NOTHING_TO_CHECK = r"AccumulateGrad|View|Expand|Transpose|Permute|^.*: T+Backward"


def recomputed(calls: Calls, work: Work) -> Calls:
    """Ops in nodes of backward that record gradients themselves, beside others that do not: a second forward.

    Recording gives ops a sequence number. Where all of a node have one, they are gradients of gradients.
    """
    name = calls.name
    inner = calls[calls.is_op & name.matches(r"::|^torch") & _right_in(calls, name.matches(_NODE))]
    numbered = pick(ints(calls.events.trace.lanes.cpu, "sequence"), inner.rows) != NULL_INT
    again = inner[numbered & ~inner.name.matches("^autograd::")]
    if len(again) == 0:
        return again
    plain = inner[~numbered]
    plain = plain[np.isin(plain.parent.rows, again.parent.rows)]
    owner = work.launch.index_of_enclosing(plain)
    own = plain[distinct(owner[owner >= 0])].parent.rows  # nodes that compute gradients without recording any
    parent = again.parent
    return again[np.isin(parent.rows, own) | parent.name.matches(_CHECKPOINT)]


def gradient_checks(calls: Calls) -> tuple[Calls, int, float]:
    """(checks for NaN right in the engine's nodes, how many ask for the answer, the same for each node to check)."""
    name = calls.name
    nodes = name.matches(_EVALUATION)
    checks = calls[calls.is_op & name.one_of(*_CHECKS) & _right_in(calls, nodes)]
    asks = int(checks.name.one_of(*_ASKS).sum())
    return checks, asks, asks / max(int((nodes & ~name.matches(_NOTHING_TO_CHECK)).sum()), 1)


def _right_in(calls: Calls, nodes: Mask) -> Mask:
    """Which of the calls lie right in one of those that are nodes."""
    marked = np.zeros(len(calls.events.nesting.parent) + 1, bool)
    marked[calls.rows[nodes]] = True
    return marked[calls.parent.rows]
