"""CUDA graphs: what their inputs cost, and when one is to be advised."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import NVJET
from tests.rules.programs import US, found
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity


def waiting(times: int, *, steps: int = 5, gpu: str = H200["name"], kernel_us: int = 2) -> TraceBuilder:
    """Steps of 40 products, 22 µs apart, between which the CPU waits for the device so many times."""
    trace, number, at = TraceBuilder(devices=[{**H200, "name": gpu}]), 0, 0
    for step in range(steps):
        begin = at
        for product in range(40):
            number, at = number + 1, at + 22 * US
            trace.op("aten::mm", at - 22 * US, 20 * US)
            trace.launch("cudaLaunchKernel", at - 14 * US, 5 * US, number)
            trace.kernel(at - 8 * US, kernel_us * US, number, name=NVJET)
            if product % 8 == 3 and product // 8 < times:
                trace.launch("cudaStreamSynchronize", at - 1 * US, 2 * US, 100_000 + number)
                at += 4 * US
        trace.step(step, begin, at - begin)
    return trace


def close() -> TraceBuilder:
    """A step whose launches take about as long as its kernels without the profiler, where less is known of savings."""
    return waiting(0, steps=1, kernel_us=6, gpu="NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("kernel_us", "cause", "severity"),
    [(4, "graph", Severity.HIGH), (6, "graph", Severity.LOW), (7, "unsure", Severity.INFO)],
)
def test_gpu_idle_without_profiler_is_launch_bound(kernel_us: int, cause: str, severity: Severity) -> None:
    """The verdict says that the CPU is the limit: then no measurement is needed to see whether the GPU is idle."""
    trace = waiting(0, steps=1, kernel_us=kernel_us, gpu="NVIDIA A100-SXM4-80GB")
    report = diagnose(trace.load(), select=["launch-bound"])
    (one,) = report.findings
    assert (one.cause, one.severity) == (cause, severity)
    assert report.traces[0].step is not None
    assert report.traces[0].step.open == ("Measure the step" in one.advice) == (cause == "unsure")


@pytest.mark.parametrize(("times", "said"), [(0, False), (1, True)])
def test_a_wait_within_the_step_cuts_its_graph_in_two(times: int, *, said: bool) -> None:
    """A capture fails where the CPU asks for a value: one graph of the whole step is not to be had."""
    (one,) = found(waiting(times), "launch-bound")
    assert (one.cause, one.evidence["remedy"]) == ("graph", "graph")
    assert ("in two graphs, one before and one after" in one.advice) == said


@pytest.mark.parametrize(
    ("region", "cause"), [("Torch-Compiled Region: 0/0", "graph-inputs"), ("step", "copies")]
)
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


def paced(kernel_us: int) -> TraceBuilder:
    """Steps of 200 kernels, launched by a profiled CPU every 6 µs: without the profiler it may be as quick as they."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(5):
        begin = at
        for _ in range(200):
            number += 1
            trace.op("aten::mm", at, 5 * US)
            trace.launch("cudaLaunchKernel", at + 1 * US, 2 * US, number)
            trace.kernel(at + 5 * US, kernel_us * US, number, name=NVJET)
            at += 6 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(
    ("kernel_us", "cause", "severity"), [(2, "graph", Severity.HIGH), (4, "profiled-only", Severity.INFO)]
)
def test_pauses_between_queued_kernels_are_the_graphs_as_well(
    kernel_us: int, cause: str, severity: Severity
) -> None:
    """Whether the GPU waits for launches or not: a graph also saves the pause that a launched kernel begins with."""
    (one,) = diagnose(paced(kernel_us).load(), select=["launch-bound"]).findings
    assert (one.cause, one.severity) == (cause, severity)
