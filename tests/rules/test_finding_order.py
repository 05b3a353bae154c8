"""Order of findings: the fault ranks above what it causes."""

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.model.finding import Severity

US = 1_000
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def said(trace: TraceBuilder) -> list[Finding]:
    return [one for one in diagnose(trace.load()).findings if one.severity is not Severity.INFO]


def adds(pause_ns: int) -> TraceBuilder:
    """Four steps of 40 adds, an op of 9 us each, with so much time between them."""
    trace, at = TraceBuilder(), 0
    for step in range(4):
        begin = at
        for _ in range(40):
            trace.op("aten::add", at, 9 * US)
            trace.launched((at + 4 * US, 4 * US), (at + 8 * US, 1 * US), name=POINTWISE)
            at += 9 * US + pause_ns
        trace.step(step, begin, at - begin)
    return trace


def test_pointwise_ops_with_other_code_between_them_are_no_chain() -> None:
    assert "unfused-pointwise" in {one.rule for one in said(adds(2 * US))}
    assert "unfused-pointwise" not in {one.rule for one in said(adds(28 * US))}


def test_python_bound_loop_is_not_launch_bound() -> None:
    assert "launch-bound" in {one.rule for one in said(adds(2 * US))}
    assert "launch-bound" not in {one.rule for one in said(adds(28 * US))}


def test_a_synchronisation_after_the_last_work_idles_nothing() -> None:
    trace = adds(2 * US)
    trace.launch("cudaDeviceSynchronize", 4 * 40 * 11 * US, 20 * US, 1_000)
    assert "long-device-sync" not in {one.rule for one in diagnose(trace.load()).findings}
