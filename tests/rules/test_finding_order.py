"""Order of findings: the fault ranks above what it causes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cached_reports import reported
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.model.finding import Severity

US = 1_000
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def said(trace: TraceBuilder) -> list[Finding]:
    return [one for one in diagnose(trace.load()).findings if one.severity is not Severity.INFO]


def adds(pause_ns: int) -> TraceBuilder:
    """Four steps of 40 adds, an op of 9 us each, with so much time between them."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(4):
        begin = at
        for _ in range(40):
            number += 1
            trace.op("aten::add", at, 9 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 4 * US, number)
            trace.kernel(at + 8 * US, 1 * US, number, name=POINTWISE)
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


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("slowdown/cnn.plain", "launch-bound"),  # 73 % beside 5 % in layout conversions
        ("seeds/64_bf16_warm_compile", "launch-bound"),  # 95 % beside the 14 % of a copy of 8 KiB
        ("pairs4/amp_scaler.bad", "launch-bound"),  # 67 % beside 12 % in gradient scaling
        ("sixth/ppo_rollout.bad", "implicit-sync"),  # 18 %, more than a quarter of 43 %
    ],
)
def test_launching_stands_before_what_is_worth_far_less(
    shared: Callable[[str], Path], name: str, first: str
) -> None:
    one, other = [one.rule for one in reported(shared(name)).findings[:2]]
    assert one == first
    assert "launch-bound" in (one, other)
