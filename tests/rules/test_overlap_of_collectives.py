"""Collectives that never overlap, and kernels that they slow down."""

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.model.report import Report

US = 1_000
MS = 1_000 * US


def named(report: Report, rule: str, cause: str = "") -> list[Finding]:
    return [one for one in report.findings if (one.rule, one.cause) == (rule, cause)]


def layers(kernel: str, *, waits: bool = False, ahead: bool = True) -> TraceBuilder:
    """Four steps of eight layers: a GEMM of 300 us, and a collective of 100 us on another stream after it."""
    trace, device, cpu, number = TraceBuilder(), 100 * US, 0, 0
    for step in range(4):
        begun = cpu
        for _ in range(8):
            for name, stream, dur in (("nvjet_tst_64x64", 7, 300), (kernel, 20, 100)):
                number += 1
                trace.op("aten::mm" if stream == 7 else "c10d::_reduce_scatter_base_", cpu, 8 * US)
                trace.launch("cudaLaunchKernelExC", cpu + 2 * US, 4 * US, number)
                start = device if ahead else max(device, cpu + 10 * US)
                trace.kernel(start, dur * US, number, name=name, stream=stream)
                device = start + dur * US + US
                cpu += 10 * US
                if waits:
                    trace.launch("cudaStreamWaitEvent", cpu - US, US // 2, 10_000 + number)
            if not ahead:
                cpu = device + 20 * US
        cpu = device - 2 * MS if ahead and device > cpu + 3 * MS else cpu
        trace.step(step, begun, cpu - begun)
    return trace


REDUCE = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize("kernel", [REDUCE, EXCHANGE])
def test_kernels_queued_behind_a_collective_are_serialised(kernel: str) -> None:
    """A quarter of the step is the collective: overlapped, it saves that."""
    (found,) = named(diagnose(layers(kernel).load()), "exposed-communication", "serialised")
    assert found.saving is not None
    assert found.saving.share == pytest.approx(0.25, abs=0.05)
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in found.advice


@pytest.mark.parametrize(("waits", "ahead"), [(True, True), (False, False)])
def test_recorded_waits_and_late_launches_serialise_nothing(waits: bool, ahead: bool) -> None:
    report = diagnose(layers(REDUCE, waits=waits, ahead=ahead).load())
    assert not named(report, "exposed-communication", "serialised")


def beside(times: float, *, kernels: int = 12) -> TraceBuilder:
    """GEMMs of 100 us, the first half alone, the other half during one long all-reduce and slower by that factor."""
    trace, cpu, device, number = TraceBuilder(), 0, 50 * US, 0
    for step in range(4):
        begun = cpu
        for place in range(kernels):
            number += 1
            if place == kernels // 2:
                during = round(kernels // 2 * (times * 100 + 1) * US)
                trace.op("c10d::allreduce_", cpu, 8 * US)
                trace.launch("cudaLaunchKernelExC", cpu + 2 * US, 4 * US, 5_000 + number)
                name = REDUCE.replace("ReduceScatter", "AllReduce")
                trace.kernel(device, during, 5_000 + number, name=name, stream=20)
                cpu += 10 * US
            trace.op("aten::mm", cpu, 8 * US)
            trace.launch("cudaLaunchKernelExC", cpu + 2 * US, 4 * US, number)
            dur = round((times if place >= kernels // 2 else 1) * 100 * US)
            trace.kernel(device, dur, number, name="nvjet_tst_64x64")
            device += dur + US
            cpu += 10 * US
        cpu = device - 30 * US
        trace.step(step, begun, cpu - begun)
    return trace


@pytest.mark.parametrize(("times", "said"), [(2.6, True), (2.0, True), (1.9, False)])
def test_kernels_that_take_twice_as_long_during_a_collective(times: float, said: bool) -> None:
    found = named(diagnose(beside(times).load()), "slowed-by-communication")
    assert bool(found) is said
    if said:
        evidence = found[0].evidence
        assert (evidence["alone_ns"], evidence["during_ns"]) == (100 * US, round(times * 100 * US))
        assert "during allreduce" in found[0].message
