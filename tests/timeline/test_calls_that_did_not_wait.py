"""A synchronising call that found the device done explains a short gap around it, and no long one."""

from __future__ import annotations

import pytest

from tests.idle.one_gap import US, judged
from tests.support.trace_builder import TraceBuilder


@pytest.mark.parametrize(("idle", "cause"), [(100, "synchronisation"), (3_000, "dispatching")])
def test_a_call_that_did_not_wait(idle: int, cause: str) -> None:
    """The device runs dry at 100 us; the call comes in the middle of the gap, the rest is dispatch."""
    start, end = 100 * US, (100 + idle) * US
    trace = TraceBuilder()
    trace.step(0, 0, 10_000 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, start - 28 * US, 1)
    for at in range(
        1, idle // 2 - 1, 50
    ):  # short ops: a long one without a launch would be the CPU's own work
        trace.op("aten::flatten", start + at * US, min(50, idle // 2 - 1 - at) * US)
    trace.launch("cudaEventSynchronize", start + idle * US // 2, 2 * US, 9)
    for at in range(3, idle // 2, 50):
        trace.op("aten::add", start + (idle // 2 + at) * US, min(50, idle // 2 - at) * US)
    trace.launch("cudaLaunchKernel", end - 8 * US, 5 * US, 2)
    trace.kernel(end, 50 * US, 2)
    assert judged(trace)[0] == cause
