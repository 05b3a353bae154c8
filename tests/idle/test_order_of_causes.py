"""Which of two proven causes has a stretch that both explain."""

from __future__ import annotations

from tests.idle.one_gap import US, pieces
from tests.support.trace_builder import TraceBuilder


def test_first_use_precedes_allocator_calls_of_other_threads() -> None:
    trace = TraceBuilder()
    for number in range(4):
        start = number * 2_000 * US
        trace.step(number, start, 2_000 * US)
        trace.launch("cudaMalloc", start + 120 * US, 600 * US, 80 + number, tid=77)
        trace.launch("cudaLaunchKernel", start + 950 * US, 5 * US, number + 1)
        trace.kernel(start + 960 * US, 900 * US, number + 1)
    trace.launch("cudaLaunchKernel", 7_940 * US, 5 * US, 70, tid=77)  # it launches work, too
    trace.kernel(7_950 * US, 10 * US, 70)
    trace.launch("cudaFuncSetAttribute", 4_100 * US, 700 * US, 90)
    for i in range(3):
        trace.launch("cudaFuncSetAttribute", (6_750 + 10 * i) * US, 5 * US, 91 + i)
    found = pieces(trace, work=2)
    assert found["first-use"] == 700 * US
    assert "allocator" not in found
