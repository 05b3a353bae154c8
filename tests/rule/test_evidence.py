"""The words that rules share for GPU work."""

from __future__ import annotations

import pytest

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.evidence import largest_shapes
from traceanalyzer.rule.views import Work


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ([[8, 512], [8, 512]], "8x512"),
        ([[8, 512], [512], [8, 512]], "8x512, 512"),
        ([[4], [3], [4], [2], [1]], "4, 3, 2"),
        ([[], [8, 512]], "8x512"),
    ],
)
def test_equal_shapes_are_said_once_in_order(dims: list[list[int]], said: str) -> None:
    trace = TraceBuilder(record_shapes=1)
    trace.op("aten::add", 0, 5_000, external_id=1, **{"Input Dims": dims})
    trace.launch("cudaLaunchKernel", 100, 1_000, correlation=1, external_id=1)
    trace.kernel(10_000, 4_000, correlation=1, external_id=1)
    assert largest_shapes(Analysis(trace.load()).index(Work)) == said
