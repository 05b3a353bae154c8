"""The stack of what the repeats of a loop made: one call for all of them makes it whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats
from traceanalyzer.tensors.signatures import signatures_of, tensors

_STACK, _ITS_BACKWARD = r"^aten::stack$", r": StackBackward0$"
_NEAR = 2  # ops after the loop, or before its backward


def stacked_results(loops: Sequence[Repeats], outer: Calls) -> tuple[DropSpans, ...]:
    """The ops that stack the results of each of the loops, and those that take their gradients apart, go.

    Args:
        outer: outermost ops.
    """
    stacks, backward = outer.name.matches(_STACK), outer.name.matches(_ITS_BACKWARD)
    if not (stacks.any() or backward.any()):
        return ()
    found = []
    for loop in loops:
        same = (outer.thread == loop.at.thread[0]) & (outer.step == loop.at.step[0])
        own = np.flatnonzero(same)
        own = own[np.argsort(outer.start_ns[own], kind="stable")]
        before, after = np.searchsorted(outer.start_ns[own], (loop.at.start_ns[0], loop.ends_ns[-1]))
        following, leading = own[after : after + _NEAR], own[max(before - _NEAR, 0) : before]
        found += [_of_so_many(outer[following[stacks[following]]], loop.count)]
        found += [outer.rows[leading[backward[leading]]]]
    ops = Calls(outer.events, distinct(np.concatenate(found)))
    return (DropSpans(ops.start_ns, ops.end_ns, stall=False),) if len(ops) else ()


def _of_so_many(stacks: Calls, count: int) -> Rows:
    """Those of so many tensors, as far as shapes are recorded."""
    number, signatures = signatures_of(stacks.events.trace, stacks.rows)
    fits = np.array([not tensors(one) or len(tensors(one)) == count for one in signatures], bool)
    return np.asarray(stacks.rows[fits[number]] if len(stacks) else stacks.rows, np.int64)
