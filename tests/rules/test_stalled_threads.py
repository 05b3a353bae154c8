"""A view that takes long computes nothing: its thread stood still. And what comes after the last launch."""

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose

US = 1_000
MS = 1_000 * US


def launches(trace: TraceBuilder, at: int, first: int) -> None:
    for i in range(20):
        trace.op("aten::mm", at + (10 + 40 * i) * US, 30 * US)
        trace.launched((at + (20 + 40 * i) * US, 5 * US), (at + (32 + 40 * i) * US, 10 * US), first + i)
        trace.op("aten::transpose", at + (41 + 40 * i) * US, 3 * US)


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
        trace.launched((at + 10 * US, 5 * US), (at + 20 * US, 60 * US), 100 + i)
    trace.step(0, 0, 42 * MS)
    return trace


def test_preparing_a_scripted_function_is_a_cold_start() -> None:
    for name, rule in (("fused_gelu", "cold-start"), ("aten::gelu", "host-gap")):
        found = diagnose(paused(name).load()).findings
        said = {one.rule for one in found if one.severity.value == "high"}
        assert said & {"cold-start", "host-gap"} == {rule}
