"""Views of calls."""

from __future__ import annotations

import pytest

from tests.builder import TraceBuilder
from tests.rules.loops import Loop, loop_of
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls, IdleTime


def test_outermost_calls_lie_in_no_other() -> None:
    trace = TraceBuilder()
    outer, inner, apart = (
        trace.op(name, start, dur) for name, start, dur in (("a", 0, 90), ("b", 10, 20), ("c", 100, 5))
    )
    calls = Analysis(trace.load()).index(Calls)
    assert calls.outermost().rows.tolist() == [outer, apart]
    assert calls[calls.rows == inner].outermost().rows.tolist() == [inner]


@pytest.mark.parametrize(
    ("in_steps", "once"),
    [
        ({0, 1}, True),
        ({3, 4}, True),
        ({2, 3, 4}, False),
        ({0, 1, 5}, True),
    ],  # of steps 2 to 6, half are three
)
def test_what_half_of_the_steps_after_the_leading_third_have_is_not_once(
    in_steps: set[int], once: bool
) -> None:
    def body(loop: Loop, number: int) -> None:
        loop.pause(500_000 if number in in_steps else 1_000)

    idle = Analysis(loop_of(body, steps=7)).index(IdleTime)
    long = idle.dur_ns > 300_000
    assert sorted(set(idle[long].step.tolist())) == sorted(in_steps)
    kept = idle.happening_once(3)
    assert (kept.dur_ns > 300_000).any() == once
    assert len(idle.happening_once(8)) == len(idle)
