"""What a rank's steps go to, as its peers' are held against it."""

from __future__ import annotations

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.step_breakdown import StepBreakdown
from traceanalyzer.timeline.device_work import DeviceWork

US = 1_000


def pausing(*pauses_us: int) -> StepBreakdown:
    """Steps of ten ops with a wait for data between the fifth and the sixth, and 10 us between the others."""
    trace, now, number = TraceBuilder(), 0, 0
    for step, pause in enumerate(pauses_us):
        begin = now
        for op in range(10):
            if op == 5:
                trace.annotation("enumerate(DataLoader)#_Iter.__next__", now, pause * US)
                now += pause * US
            number += 1
            trace.op("aten::mm", now, 20 * US)
            trace.launch("cudaLaunchKernel", now + 5 * US, 5 * US, number)
            trace.kernel(now + 12 * US, 5 * US, number)
            now += 30 * US
        trace.step(step, begin, now - begin)
    analysis = Analysis(trace.load())
    return StepBreakdown.of(analysis.trace, analysis.index(DeviceWork), analysis.index(Program))


def test_the_pause_of_a_step_is_that_of_the_median_step() -> None:
    """A loader that stalls every third step for 5 ms waits in the others as its peers do."""
    usual, some = pausing(200, 200, 200, 200, 200, 200), pausing(200, 200, 5_000, 200, 200, 5_000)
    assert (usual.pause, usual.pause_ns) == ("enumerate(DataLoader)#_Iter.__next__", 200 * US)
    assert (some.pause, some.pause_ns) == (usual.pause, usual.pause_ns)
    assert some.cpu_ns[some.pause] == (3 * 200 + 2 * 5_000) * US / 5  # the first step is not replayed
