"""Calls that recur in each step, that happen once, and that belong to the start of a recording."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.stalled_calls import MANY_TIMES
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, median_of, medians
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import StepMarks

_MIN_STEPS = 3  # fewer cannot tell what recurs from what happens once
_QUARTERS = 4  # of a recording without steps
_NEARLY_ALL = 0.9  # of the kernels have run once: what is new after that is a rare branch
_MIN_WARM = 0.2  # share of the launches that must follow, else the recording is all start
_MOST = 0.5  # of the later parts; chosen


@dataclass(frozen=True, slots=True)
class StandingOut:
    """Per part, of steps that stand out for its key: all are in the first third (`leading`), or it is the only one."""

    leading: Mask
    alone: Mask


def standing_out(key: Rows, step: Rows, ns: Rows, steps: int, spike: float) -> StandingOut:
    """Which parts, by key and step (-1 before the first), lie where their key takes over `spike` times its median."""
    inside = step >= 0
    keys = int(key.max(initial=-1)) + 1
    sums = np.bincount(key[inside] * steps + step[inside], ns[inside], keys * steps).reshape(keys, steps)
    high = sums > spike * medians(sums)[:, None]
    last = np.where(high, np.arange(steps), -1).max(axis=1, initial=-1)
    high = np.append(high, np.zeros((len(high), 1), bool), axis=1)  # for parts before the first step
    stands = high[key, step]
    return StandingOut(stands & (last < max(1, steps // 3))[key], stands & (high.sum(axis=1) == 1)[key])


def recurring_calls(trace: Trace, nesting: Nesting, marks: StepMarks, work: DeviceWork, rows: Rows) -> Mask:
    """Which of these calls belong to what recurs, bool of the shape of `rows`.

    They recur where most of the later parts of the recording have one: its steps less the leading third, or quarters
    of the launches that follow when nearly all kernels have run once. Calls in the leading part that take many times
    their usual stay apart even then: that is the start of a library.
    """
    later = _later_parts(trace, marks, work)
    part = np.searchsorted(later, nesting.start_ns[rows], side="right") - 1
    if len(later) == 0 or len(distinct(part[part >= 0])) < _MOST * len(later):
        return np.zeros(len(rows), bool)
    took = nesting.end_ns[rows] - nesting.start_ns[rows]
    name, _ = grouped([codes_at(trace.lanes.cpu, "name", rows)])
    usual = median_of(name, took)[name]
    return np.asarray((part >= 0) | (took < MANY_TIMES * usual))


def _later_parts(trace: Trace, marks: StepMarks, work: DeviceWork) -> Rows:
    """Where each later part of the recording begins on the CPU; empty where it is too short to tell."""
    steps = len(marks.number)
    if steps >= _MIN_STEPS:
        return marks.cpu_start_ns[max(1, steps // 3) :]
    linked = np.flatnonzero(work.call >= 0)
    linked = linked[np.argsort(work.call_start_ns[linked], kind="stable")]
    if len(linked) == 0:
        return np.empty(0, np.int64)
    _, first = grouped([codes_at(trace.lanes.gpu, "name", work.row[linked])])
    warm = linked[int(np.quantile(first, _NEARLY_ALL, method="lower")) + 1 :]
    if len(warm) < max(_QUARTERS, _MIN_WARM * len(linked)):
        return np.empty(0, np.int64)
    return distinct(work.call_start_ns[warm[np.arange(_QUARTERS) * len(warm) // _QUARTERS]])
