"""How many steps findings are measured against."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.built_findings import MS, STEP, findings, kernels, scope
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.report.summary import scope_of
from traceanalyzer.timeline.steps import Steps


def test_findings_do_not_count_launchless_end_steps() -> None:
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


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [(0, 4 * STEP, "2.50 ms a step"), (0, 2 * STEP, "1.50 ms a step"), (STEP, 2 * STEP, "2.00 ms in total")],
)
def test_rule_totals_scale_to_the_requested_window(start: int, end: int, said: str) -> None:
    """Of 10 ms in four steps, the first two have 3."""
    places = [(number * STEP + MS, dur * MS) for number, dur in enumerate((1, 2, 3, 4))]
    hits = kernels(*places, message="{spent_a_step}", evidence={"spent_ns": 10 * MS})
    chosen = replace(scope(end - start, (end - start) // STEP), start_ns=start, end_ns=end, asked=True)
    (found,) = findings([hits], chosen)
    assert found.message == said
    assert found.evidence["spent_ns"] == 10 * MS
