"""What the optimizer has less to do when the layers of a loop become one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceanalyzer.replay.edits import ShrinkSpans
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats

_SUMS_UP = re.compile(r"AccumulateGrad$")  # runs once a step for each tensor of parameters
_OPTIMIZER = r"^Optimizer\.(step|zero_grad)#"  # marks of torch


def fewer_parameters(loops: Sequence[Repeats], calls: Calls) -> tuple[ShrinkSpans, ...]:
    """The optimizer's Python and ops take time for each tensor: those of the repeats that go take theirs along.

    Where the repeats share their parameters, the sum of their gradients is no part of the loop, and nothing changes.

    Args:
        loops: equal ones, of all steps.
        calls: all of them.
    """
    each = sum(bool(_SUMS_UP.search(name)) for name in loops[0].names)
    if not each:
        return ()
    marks = calls[calls.is_annotation & calls.name.matches(_OPTIMIZER)]
    sums = calls[calls.is_top_op & (calls.step >= 0)]
    parameters = int(sums.name.meets(_SUMS_UP.search).sum())
    if not len(marks) or not parameters:
        return ()
    gone = each * sum(loop.count - 1 for loop in loops)
    return (ShrinkSpans(marks.start_ns, marks.end_ns, max(1 - gone / parameters, 0.0)),)
