"""Views of calls."""

from __future__ import annotations

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls


def test_outermost_calls_lie_in_no_other() -> None:
    trace = TraceBuilder()
    outer, inner, apart = (
        trace.op(name, start, dur) for name, start, dur in (("a", 0, 90), ("b", 10, 20), ("c", 100, 5))
    )
    calls = Analysis(trace.load()).index(Calls)
    assert calls.outermost().rows.tolist() == [outer, apart]
    assert calls[calls.rows == inner].outermost().rows.tolist() == [inner]
