"""Stretches in which nothing begins or ends on a thread, against a slow reference."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.builder import TraceBuilder
from tests.examples import examples
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.stalled_calls import LONG_NS, StalledCalls

_TENTH = LONG_NS // 10  # so that edges tie, touch and are just far enough from one another
_OTHERS = 100 * LONG_NS  # after all that is drawn
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=8)


@examples(200)
@given(spans)
def test_long_stretches_lie_between_neighbouring_edges(rows: list[tuple[int, int]]) -> None:
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", _OTHERS - 1_000, 1_000, 1)
    trace.kernel(_OTHERS, 1_000, 1)
    calls = [(start * _TENTH, (start + dur) * _TENTH) for start, dur in rows]
    for number, (start, end) in enumerate(calls):
        trace.launch("cudaFuncGetAttributes", start, end - start, 2 + number)
    for number in range(2 * len(rows)):  # so quick it usually is: every long stretch within one stands out
        trace.launch("cudaFuncGetAttributes", _OTHERS + 2_000 * number, 1_000, 100 + number)
    still = Analysis(trace.load()).index(StalledCalls)
    edges = sorted({edge for call in calls for edge in call})
    expected = [
        (left, right)
        for left, right in pairwise(edges)
        if right - left >= LONG_NS and any(start <= left and right <= end for start, end in calls)
    ]
    assert list(zip(still.start_ns.tolist(), still.end_ns.tolist(), strict=True)) == expected
