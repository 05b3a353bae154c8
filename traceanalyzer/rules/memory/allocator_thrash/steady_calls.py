"""Calls that come back in the steps of a loop, once each."""

from __future__ import annotations

import numpy as np

from traceanalyzer.idle.recurrence import standing_out
from traceanalyzer.model.arrays import distinct
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.names import ALLOCATOR
from traceanalyzer.timeline.steps import Steps


def driver_allocations(calls: Calls, work: Work) -> Calls:
    """Calls that ask the driver for memory or give it back, one after the other, by threads that launch work.

    cudaMallocAsync and its kin take from a pool, and stop nobody.
    """
    found = calls[calls.is_call & calls.name.matches(ALLOCATOR) & ~calls.name.matches("Async")]
    return (
        found if len(found) == 0 else one_by_one(found[np.isin(found.thread, distinct(work.launch.thread))])
    )


def one_by_one(found: Calls) -> Calls:
    """Without calls inside or beside an earlier one, as the driver's within the runtime's."""
    found = found[np.lexsort((-found.end_ns, found.start_ns))]
    least = np.iinfo(np.int64).min
    before = np.maximum.accumulate(np.append(least, found.end_ns))[:-1]
    return found[found.start_ns >= before]


def of_the_loop(found: Calls, steps: Steps, spike: float) -> Calls:
    """The calls of steps that do not stand out, and none unless most steps have such calls.

    Args:
        spike: a step stands out where they take more than this times the median step.
    """
    found = found[found.step >= 0]
    once = standing_out(np.zeros_like(found.step), found.step, found.dur_ns, len(steps), spike)
    left = found[~once.leading & ~once.alone]
    recurring = 2 * len(distinct(left.step)) > len(steps)
    return left if recurring else left[np.empty(0, np.int64)]
