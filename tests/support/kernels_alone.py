"""Recorded kernels that run alone."""

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace

US = 1_000


def recorded(*, op_us: int, waits_us: tuple[int, ...], kernel_us: int = 5) -> Trace:
    """Steps of 200 ops with a kernel each, then an all-reduce of 100 us that waits, and the CPU for it.

    Args:
        op_us: what an op takes; a tenth of it is a pause.
        waits_us: one per step.
    """
    trace, at, number = TraceBuilder(), 0, 0
    for step, wait in enumerate(waits_us):
        begun = at
        for _ in range(200):
            number += 1
            trace.op("aten::add", at, op_us * US * 9 // 10)
            trace.launched((at + US, US), (at + 3 * US, kernel_us * US), number)
            at += op_us * US
        number += 1
        trace.op("c10d::allreduce_", at, 10 * US)
        trace.launch("cudaLaunchKernel", at + US, US, number)
        done = at + (103 + wait) * US
        trace.kernel(at + 3 * US, done - at - 3 * US, number, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        trace.launch("cudaStreamSynchronize", at + 12 * US, done - at - 10 * US, 100_000 + number)
        at = done + 5 * US
        trace.step(step, begun, at - begun)
    return trace.load()
