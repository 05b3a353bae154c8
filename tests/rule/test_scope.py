"""How many steps findings are measured against."""

from __future__ import annotations

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.report.summary import scope_of
from traceanalyzer.timeline.steps import Steps


def test_steps_at_the_ends_that_launch_nothing_are_not_counted_by_findings() -> None:
    trace = TraceBuilder()
    for number in range(5):
        trace.step(number, 1_000 * number, 900)
        if number in (1, 3):
            trace.launch("cudaLaunchKernel", 1_000 * number + 10, 5, number)
            trace.kernel(1_000 * number + 20, 700, number)
    analysis = Analysis(trace.load())
    assert (len(analysis.index(Steps)), analysis.index(Steps).working, scope_of(analysis, None).steps) == (
        5,
        3,
        3,
    )
