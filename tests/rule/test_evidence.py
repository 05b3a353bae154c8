"""The words that rules share for GPU work."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.evidence_texts import (
    conversion_of,
    gpu_time_evidence,
    kernel_times,
    largest_shapes,
    named_ops,
    op_times,
)
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


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (["c10::BFloat16", "float"], "from float32 to bfloat16"),
        (["long int", "c10::Half", "float"], "from float16 to long int"),
        (["float"], ""),
        ([], ""),
    ],
)
def test_a_conversion_is_from_the_second_to_the_first_tensor(types: list[str], said: str) -> None:
    assert conversion_of(types) == said


def test_kernels_of_one_short_name_are_joined_longest_first() -> None:
    """Of work without an op the op of the same kernel elsewhere, or else the kernel."""
    trace = TraceBuilder()
    for number, (op, kernel, dur) in enumerate(
        (
            ("aten::mm", "void gemm<float>(int)", 40),
            ("aten::add", "void plus<float, 1>(int)", 30),
            ("aten::add", "void plus<float, 2>(int)", 20),
            (None, "void plus<float, 2>(int)", 5),
            (None, "void other<float>(int)", 1),
        )
    ):
        if op is not None:
            trace.op(op, number * 10_000, 5_000)
            trace.launch("cudaLaunchKernel", number * 10_000 + 100, 1_000, number + 1)
        trace.kernel(100_000 + number * 50_000, dur * 1_000, number + 1, name=kernel)
    work = Analysis(trace.load()).index(Work)
    assert list(kernel_times(work).items()) == [("plus", 55_000), ("gemm", 40_000), ("other", 1_000)]
    assert list(op_times(work).items()) == [("aten::add", 50_000), ("aten::mm", 40_000)]
    assert list(named_ops(work).values()) == ["aten::mm", "aten::add", "aten::add", "aten::add", "other"]
    assert gpu_time_evidence(work[work.dur_ns < 10_000])["ops"] == {"plus": 5_000, "other": 1_000}


def test_recorded_shapes_and_lines_end_the_sentence() -> None:
    trace = TraceBuilder(record_shapes=1)
    trace.op(
        "aten::add", 0, 5_000, **{"Input Dims": [[8, 512], [8, 512]], "Call stack": "net.py(3): forward"}
    )
    trace.launch("cudaLaunchKernel", 100, 1_000, correlation=1)
    trace.kernel(10_000, 4_000, correlation=1)
    trace.op("aten::mul", 6_000, 5_000)
    trace.launch("cudaLaunchKernel", 6_100, 1_000, correlation=2)
    trace.kernel(20_000, 4_000, correlation=2)
    work = Analysis(trace.load()).index(Work)
    assert gpu_time_evidence(work[:1])["where"] == ", for inputs of shape 8x512, from net.py(3): forward"
    assert gpu_time_evidence(work[1:])["where"] == ""
