"""Collectives that the CPU carries out: gradients that go through Gloo, and values that lie on the CPU."""

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity, Trace, diagnose
from traceanalyzer.model.finding import Finding

US = 1_000
MS = 1_000 * US
GLOO = 7  # the thread that carries out collectives


def program(*, name: str = "gloo:all_reduce", copied: bool = True, meanwhile: int = 0) -> Trace:
    """Steps of 2 ms of compute and a collective of 6 ms, in which another thread may run ops for so many ms."""
    trace = TraceBuilder()
    for step in range(5):
        at, number = step * 9_520 * US, 10 * step
        trace.step(step, at, 9_520 * US)
        trace.op("aten::mm", at + 10 * US, 30 * US)
        trace.launched((at + 20 * US, 5 * US), (at + 30 * US, 2 * MS), number + 1)
        trace.op("c10d::allreduce_", at + 60 * US, 40 * US)
        if copied:
            trace.launch("cudaMemcpyAsync", at + 70 * US, 10 * US, number + 2)
            trace.memcpy(at + 2_040 * US, 400 * US, number + 2, name="Memcpy DtoH (Device -> Pinned)", size=8 << 20)
        trace.annotation(name, at + 100 * US, 8_390 * US, tid=GLOO)
        if copied:
            trace.launch("cudaMemcpyAsync", at + 8_050 * US, 10 * US, number + 3, tid=GLOO)
            trace.memcpy(at + 8_070 * US, 400 * US, number + 3, name="Memcpy HtoD (Pinned -> Device)", size=8 << 20)
        if meanwhile:
            trace.op("aten::sort", at + 3 * MS, meanwhile * MS)
        trace.op("aten::add", at + 8_500 * US, 30 * US)
        trace.launched((at + 8_510 * US, 5 * US), (at + 8_520 * US, 1 * MS), number + 4)
    return trace.load()


def found(trace: Trace) -> list[Finding]:
    return [one for one in diagnose(trace).findings if one.rule == "host-collectives"]


def test_host_gradients_rank_before_their_gaps() -> None:
    report = diagnose(program())
    first = report.findings[0]
    assert (first.rule, first.severity, first.by) == ("host-collectives", Severity.HIGH, "gloo:all_reduce")
    # From the end of the copy to the host to the start of the copy back.
    assert first.cost_ns == pytest.approx(5 * 5_630 * US, rel=0.02)
    assert "1 gloo:all_reduce a step" in first.message
    assert "8.00 MiB copied to the host and back" in first.message
    assert "init_process_group('nccl')" in first.advice
    assert "Gloo copies" in first.advice
    assert "host-gap" not in [one.rule for one in report.findings if one.severity is not Severity.INFO]


def test_tensors_on_the_cpu_are_to_stay_on_the_gpu() -> None:
    (one,) = found(program(copied=False))
    assert "of tensors on the CPU" in one.message
    assert "'cpu:gloo,cuda:nccl'" in one.advice


def test_other_threads_work_is_not_the_collectives() -> None:
    alone, beside = (found(program(copied=False, meanwhile=ms))[0].cost_ns for ms in (0, 4))
    assert alone - beside == pytest.approx(5 * 4 * MS, rel=0.02)


@pytest.mark.parametrize("name", ["nccl:all_reduce", "ucc:all_reduce"])
def test_what_other_backends_do_the_gpus_may_do_themselves(name: str) -> None:
    assert found(program(name=name)) == []


def test_copies_belong_to_the_collective_that_asked_for_them() -> None:
    (one,) = found(program(name="gloo:broadcast"))
    assert "of tensors on the CPU" in one.message


def test_what_is_copied_is_told_a_step_and_not_a_call() -> None:
    """Two all-reduces a step, each of a tensor of 8 MiB on the GPU."""
    trace = TraceBuilder()
    for step in range(4):
        trace.step(step, step * 10 * MS, 10 * MS)
        for part in range(2):
            at, number = step * 10 * MS + part * 5 * MS, 10 * step + 2 * part
            trace.op("c10d::allreduce_", at + 10 * US, 40 * US)
            trace.launch("cudaMemcpyAsync", at + 20 * US, 10 * US, number + 1)
            trace.memcpy(at + 40 * US, 400 * US, number + 1, name="Memcpy DtoH (Device -> Pinned)", size=8 << 20)
            trace.annotation("gloo:all_reduce", at + 50 * US, 4_000 * US, tid=GLOO)
            trace.op("aten::add", at + 4_100 * US, 30 * US)
            trace.launched((at + 4_110 * US, 5 * US), (at + 4_120 * US, 500 * US), number + 2)
    (one,) = found(trace.load())
    assert "2 gloo:all_reduce a step run on the CPU, with 16.0 MiB copied to the host and back" in one.message
    assert one.evidence["copied_bytes"] == 4 * 2 * (8 << 20)
