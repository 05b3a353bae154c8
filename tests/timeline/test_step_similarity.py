"""Share of steps that launch the same kernels."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.repeated_kernels import same_steps
from traceanalyzer.timeline.steps import Steps

US = 1_000


def same_share(kernels: list[list[str]]) -> float:
    trace = TraceBuilder()
    number = 0
    for step, names in enumerate(kernels):
        trace.step(step, 1_000 * US * step, 1_000 * US)
        for place, name in enumerate(names):
            number += 1
            at = 1_000 * US * step + 20 * US * place
            trace.launch("cudaLaunchKernel", at, 5 * US, number)
            trace.kernel(at + 8 * US, 5 * US, number, name=name)
    analysis = Analysis(trace.load())
    return same_steps(analysis.trace, analysis.index(DeviceWork), analysis.index(Steps))


def test_same_steps_launch_equal_kernels_in_equal_order() -> None:
    assert same_share([["a", "b"]] * 4) == 1.0
    assert same_share([["a", "b"], ["b", "a"], ["a"], ["a", "b", "b"]]) == 0.25
    assert same_share([["a", "b"], ["a", "b"], ["a", "c"]]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("grid", "share"), [(132, 1.0), (133, 0.5)])
def test_same_steps_compare_grids_in_launch_order(grid: int, share: float) -> None:
    """Two streams, of which now the one and now the other begins first."""
    trace = TraceBuilder()
    for step in range(2):
        begin = step * 1_000 * US
        trace.step(step, begin, 1_000 * US)
        for at, name in enumerate("ab"):
            number = 2 * step + at + 1
            trace.launch("cudaLaunchKernel", begin + 10 * at * US, 5 * US, number)
            start = begin + (100 if at == step else 200) * US
            shape = (grid if step else 132, 1, 1)
            trace.kernel(start, 20 * US, number, name=name, stream=7 + at, grid=shape)
    analysis = Analysis(trace.load())
    assert same_steps(analysis.trace, analysis.index(DeviceWork), analysis.index(Steps)) == share
