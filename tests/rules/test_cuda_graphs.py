"""CUDA graphs: what their inputs cost, and when one is to be advised."""

import pytest

from tests.rules.kernel_programs import NVJET
from tests.rules.programs import US, found
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity


def paced(kernel_us: int, *, steps: int, count: int, every_us: int, **device: str) -> TraceBuilder:
    """Steps of so many products, launched by a profiled CPU one after the other."""
    trace, at = TraceBuilder(devices=[H200 | device]), 0
    for step in range(steps):
        begin = at
        for _ in range(count):
            trace.op("aten::mm", at, (every_us - 1) * US)
            trace.launched((at + 1 * US, 2 * US), (at + 5 * US, kernel_us * US), name=NVJET)
            at += every_us * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(
    ("kernel_us", "cause", "severity"),
    [(4, "graph", Severity.HIGH), (6, "graph", Severity.LOW), (7, "unsure", Severity.INFO)],
)
def test_gpu_idle_without_profiler_is_launch_bound(kernel_us: int, cause: str, severity: Severity) -> None:
    """The verdict says that the CPU is the limit: then no measurement is needed to see whether the GPU is idle."""
    trace = paced(kernel_us, steps=1, count=40, every_us=22, name="NVIDIA A100-SXM4-80GB")
    report = diagnose(trace.load(), select=["launch-bound"])
    (one,) = report.findings
    assert (one.cause, one.severity) == (cause, severity)
    assert report.traces[0].step is not None
    assert report.traces[0].step.open == ("Measure the step" in one.advice) == (cause == "unsure")


@pytest.mark.parametrize(("region", "cause"), [("Torch-Compiled Region: 0/0", "graph-inputs"), ("step", "copies")])
def test_copies_into_graph_buffers_have_their_cause(region: str, cause: str) -> None:
    """torch.compile copies its inputs before it launches its graph: no other layout or dtype avoids that."""
    trace, number = TraceBuilder(), 0
    for step in range(5):
        at, number = 1_000 * US * step, number + 2
        trace.step(step, at, 1_000 * US)
        trace.op(region, at + 10 * US, 100 * US)
        trace.op("aten::_foreach_copy_", at + 20 * US, 30 * US)
        trace.launch("cudaLaunchKernel", at + 30 * US, 10 * US, number)
        trace.kernel(at + 50 * US, 200 * US, number, name="void multi_tensor_apply_kernel<UnaryOpFunctor>()")
        trace.launch("cudaGraphLaunch", at + 60 * US, 20 * US, number + 1)
        trace.kernel(at + 250 * US, 600 * US, number + 1, name="nvjet_tst_128x256")
    (one,) = found(trace, "data-movement")
    assert (one.by, one.cause, one.evidence["gpu_share"]) == ("aten::_foreach_copy_", cause, 0.25)
    assert ("mark_static_address" in one.advice) == (cause == "graph-inputs")


@pytest.mark.parametrize(
    ("kernel_us", "cause", "severity"), [(2, "graph", Severity.HIGH), (4, "profiled-only", Severity.INFO)]
)
def test_pauses_between_queued_kernels_are_the_graphs_as_well(kernel_us: int, cause: str, severity: Severity) -> None:
    """Whether the GPU waits for launches or not: a graph also saves the pause that a launched kernel begins with."""
    (one,) = diagnose(paced(kernel_us, steps=5, count=200, every_us=6).load(), select=["launch-bound"]).findings
    assert (one.cause, one.severity) == (cause, severity)
