"""Views of calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loops import Loop, loop_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls, IdleTime
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps


def test_outermost_calls_lie_in_no_other() -> None:
    trace = TraceBuilder()
    outer, inner, apart = (
        trace.op(name, start, dur) for name, start, dur in (("a", 0, 90), ("b", 10, 20), ("c", 100, 5))
    )
    calls = Analysis(trace.load()).index(Calls)
    assert calls.outermost().rows.tolist() == [outer, apart]
    assert calls[calls.rows == inner].outermost().rows.tolist() == [inner]


def test_what_is_missing_or_between_the_steps_is_in_no_step() -> None:
    trace = TraceBuilder()
    trace.step(0, 100, 100)
    trace.step(1, 300, 100)
    rows = [trace.op("aten::mm", start, 10) for start in (0, 100, 190, 290, 300, 390, 500)]
    calls = Analysis(trace.load()).index(Calls)
    at = calls[np.isin(calls.rows, rows)]
    assert at.step.tolist() == [-1, 0, 0, 0, 1, 1, 1]
    assert at.parent.step.tolist() == [-1, 0, 0, -1, 1, 1, -1]


@pytest.mark.parametrize(
    ("in_steps", "once"),
    [
        ({0, 1}, True),
        ({3, 4}, True),
        ({2, 3, 4}, False),
        ({0, 1, 5}, True),
    ],  # of steps 2 to 6, half are three
)
def test_half_of_the_later_steps_is_not_once(in_steps: set[int], once: bool) -> None:
    def body(loop: Loop, number: int) -> None:
        loop.pause(500_000 if number in in_steps else 1_000)

    idle = Analysis(loop_of(body, steps=7)).index(IdleTime)
    long = idle.dur_ns > 300_000
    assert sorted(set(idle[long].step.tolist())) == sorted(in_steps)
    kept = idle.happening_once(3)
    assert (kept.dur_ns > 300_000).any() == once
    assert len(idle.happening_once(8)) == len(idle)


@pytest.mark.parametrize(
    ("covered_us", "named"), [(1_000, "train.py(3): loop"), (1_001, "train.py(12): metrics")]
)
def test_pause_is_in_the_function_open_over_half_of_it(covered_us: int, named: str) -> None:
    """One pause of 1 ms, then four of 2 ms."""

    def body(loop: Loop, number: int) -> None:
        begin, length = loop.now - 3_000, 2_000_000 if number else 1_000_000
        loop.python("train.py(3): loop", begin - 2_000, length + 4_000, python_id=2 * number + 1)
        if number:
            loop.python("train.py(12): metrics", begin + 1_000, 1_000 * covered_us, python_id=2 * number + 2)
        loop.now = begin + length

    pauses = Analysis(loop_of(body, steps=5)).index(CallsAfterCpuGaps)
    assert pauses.dur_ns.tolist() == [1_000_000, *[2_000_000] * 4]
    assert [*pauses.line.values()] == ["train.py(3): loop", *[named] * 4]


@pytest.mark.parametrize(("longer_us", "pauses", "calls"), [(0, 5, 5), (55, 5, 5), (56, 5, 0), (0, 4, 0)])
def test_calls_of_a_function_are_the_pauses_where_each_is_one(
    longer_us: int, pauses: int, calls: int
) -> None:
    """One call of 500 us and more takes 10 % or more of its time beside its pause; one pause has no call."""

    def body(loop: Loop, number: int) -> None:
        begin, more = loop.now - 3_000, 1_000 * longer_us if number == 2 else 0
        if number < pauses:
            loop.python("train.py(3): f", begin, 500_000 + more, python_id=number + 1)
        loop.now = begin + 500_000

    found = Analysis(loop_of(body, steps=5)).index(CallsAfterCpuGaps)
    assert len(found.calls_ns("train.py(3): f", 0.9)) == calls
