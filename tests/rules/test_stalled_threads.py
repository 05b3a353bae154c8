"""A view that takes long computes nothing: its thread stood still. And what comes after the last launch."""

from __future__ import annotations

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose

US = 1_000
MS = 1_000 * US


def launches(trace: TraceBuilder, at: int, first: int) -> None:
    for i in range(20):
        trace.op("aten::mm", at + (10 + 40 * i) * US, 30 * US)
        trace.launch("cudaLaunchKernel", at + (20 + 40 * i) * US, 5 * US, first + i)
        trace.kernel(at + (32 + 40 * i) * US, 10 * US, first + i)
        trace.op("aten::transpose", at + (41 + 40 * i) * US, 3 * US)


def test_a_view_of_28_ms_is_a_stalled_thread() -> None:
    trace = TraceBuilder()
    for step in range(4):
        trace.step(step, step * 40 * MS, 40 * MS)
        launches(trace, step * 40 * MS, 100 * step + 1)
        trace.op("aten::transpose", step * 40 * MS + 900 * US, 28 * MS)
    (one,) = [one for one in diagnose(trace.load()).findings if one.rule == "host-hotspot"]
    assert one.cause == "stalled"
    assert one.count == 3  # nothing is launched after the last one
    assert "takes up to 28.0 ms, once a step, instead of 3.00 µs" in one.message
    assert "its thread was stalled" in one.message
    assert "cores" in one.advice
    assert "on the device" not in one.advice


def test_stalled_view_reports_longest_and_usual_time() -> None:
    """Of 28, 36, 28 and 28 ms; nothing is launched after the last one."""
    trace = TraceBuilder()
    for step, stall in enumerate((28, 36, 28, 28)):
        trace.step(step, step * 40 * MS, 40 * MS)
        launches(trace, step * 40 * MS, 100 * step + 1)
        trace.op("aten::transpose", step * 40 * MS + 900 * US, stall * MS)
    (one,) = [one for one in diagnose(trace.load()).findings if one.rule == "host-hotspot"]
    assert (one.count, one.by, one.confidence) == (3, "aten::transpose", "medium")
    assert {name: one.evidence[name] for name in ("host_ns", "longest_ns", "usual_ns")} == {
        "host_ns": 92 * MS,
        "longest_ns": 36 * MS,
        "usual_ns": 3 * US,
    }


def test_what_follows_the_last_launch_in_a_mark_is_named_so() -> None:
    trace = TraceBuilder()
    launches(trace, 0, 1)
    trace.op("aten::empty", 9 * MS, 5 * US)
    trace.step(0, 0, 10 * MS)
    verdict = diagnose(trace.load()).traces[0].verdict
    assert ", mostly after the last recorded launch" in str(verdict)


def test_without_mark_a_step_ends_with_its_last_launch() -> None:
    trace = TraceBuilder()
    launches(trace, 0, 1)
    trace.op("aten::empty", 9 * MS, 5 * US)
    report = diagnose(trace.load())
    (head,) = report.traces
    assert head.window.length_ns < MS
    assert [one.rule for one in report.findings if one.severity.value != "info"] == ["launch-bound"]


def paused(name: str) -> TraceBuilder:
    """40 ms without any row before the op's first call, and none before the others."""
    trace = TraceBuilder()
    launches(trace, 0, 1)
    for i in range(4):
        at = 41 * MS + 100 * US * i
        trace.op(name, at, 50 * US)
        trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, 100 + i)
        trace.kernel(at + 20 * US, 60 * US, 100 + i)
    trace.step(0, 0, 42 * MS)
    return trace


def test_preparing_a_scripted_function_is_a_cold_start() -> None:
    for name, rule in (("fused_gelu", "cold-start"), ("aten::gelu", "host-gap")):
        found = diagnose(paused(name).load()).findings
        said = {one.rule for one in found if one.severity.value == "high"}
        assert said & {"cold-start", "host-gap"} == {rule}
