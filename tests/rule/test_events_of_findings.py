"""Which events a finding names, in which order, and in which step they are."""

from __future__ import annotations

import numpy as np

from tests.support.built_findings import MS, STEP, findings
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.views import IdleTime, Work


def launching(*devices: int, steps: int = 4) -> tuple[TraceBuilder, list[tuple[int, int, int]]]:
    """A kernel of 2 ms every 10 ms on these devices; event ids of the op, call and kernel of each."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(number + 10, number * STEP, STEP)
    made = []
    for number, device in enumerate(devices):
        at = (10 * number + 1) * MS
        op = trace.op("aten::mm", at, 2_000)
        call = trace.launch("cudaLaunchKernel", at + 100, 1_000, number + 1)
        made.append((op, call, trace.kernel(at + 5_000, 2 * MS, number + 1, device=device)))
    return trace, made


def test_work_is_named_before_the_call_and_the_op_that_began_it() -> None:
    trace, ((op, call, kernel),) = launching(0)
    alone = trace.kernel(50 * MS, 2 * MS, 99)  # whose launch is not in the trace
    (found,) = findings([Hits(Analysis(trace.load()).index(Work), "m", "a.")])
    assert [one.event_ids for one in found.occurrences] == [(kernel, call, op), (alone,)]


def test_idle_time_is_named_by_work_before_then_after_it() -> None:
    trace, ((_, first, before), (op, call, after)) = launching(0, 0)
    idle = Analysis(trace.load()).index(IdleTime)
    between = idle[idle.has_next & (idle.before_entries >= 0)]
    (found,) = findings([Hits(between, "m", "a.")])
    for one in found.occurrences:
        assert one.event_ids[:3] == (before, after, call)
        assert set(one.event_ids[3:]) <= {op}
    (found,) = findings([Hits(idle[idle.before_entries < 0], "m", "a.")])
    assert found.occurrences[0].event_ids[:2] == (before, first)  # nothing is before the first


def test_related_events_are_those_of_the_occurrences() -> None:
    """Of each device a finding."""
    trace, made = launching(0, 1, 0)
    work = Analysis(trace.load()).index(Work)
    related = work[np.array([2, 0, 1])]
    first, second = findings([Hits(work, "m", "a.", related=[related])])
    ids = {one.start_ns: one.event_ids for found in (first, second) for one in found.occurrences}
    assert [ids[at] for at in sorted(ids)] == [
        (*made[own][::-1], *made[other][::-1]) for own, other in ((0, 2), (1, 0), (2, 1))
    ]


def test_a_step_is_told_by_its_number_where_steps_are_marked() -> None:
    numbers = []
    for steps in (4, 0):
        trace, _ = launching(0, 0, 0, steps=steps)
        (found,) = findings([Hits(Analysis(trace.load()).index(Work), "m", "a.")])
        numbers.append([one.step for one in found.occurrences])
    assert numbers == [[10, 10, 10], [None, None, None]]
