"""The ops view as people read it: rates with their peaks, and what is summed up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.matmul_traces import matmuls
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.text.ops import KERNELS, SHAPES, ops_markdown, rate_text, render_ops
from traceanalyzer.roofline.op_rates import Inputs, OpWork
from traceanalyzer.roofline.peaks import Peaks

RATES = {"tflops": 12.34, "gbps": 1_234.5, "peak_tflops": 989.5, "peak_gbps": 4_800.0, "why": "no shapes"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"limit": "compute", "peak_share": 0.5},
            "12.3 TFLOP/s, 1,234 GB/s, 50.0 % of the compute peak of 989.5 TFLOP/s",
        ),
        (
            {"limit": "memory", "peak_share": 0.5},
            "12.3 TFLOP/s, 1,234 GB/s, 50.0 % of the memory peak of 4,800 GB/s",
        ),
        (
            {"limit": "memory", "peak_share": 1.0, "tflops": None},
            "1,234 GB/s, 100.0 % of the memory peak of 4,800 GB/s",
        ),
        (
            {"limit": "memory", "peak_share": 1.25, "tflops": None},
            "1,234 GB/s, 125.0 % of the memory peak of 4,800 GB/s; more than memory gives, so some came from the cache",
        ),
        ({"limit": None, "peak_share": None, "gbps": None}, "12.3 TFLOP/s, peak n/a: no shapes"),
        ({"limit": None, "peak_share": None, "gbps": None, "tflops": None}, "peak n/a: no shapes"),
    ],
)
def test_a_rate_is_told_with_the_peak_that_limits_it(changes: dict[str, Any], said: str) -> None:
    assert rate_text({**RATES, **changes}) == said


@pytest.mark.parametrize(
    ("steps", "said"), [(0, ""), (1, ", 1 step"), (2, ", 2 steps of 500 µs"), (4, ", 4 steps of 250 µs")]
)
def test_the_window_is_told_with_its_steps(steps: int, said: str) -> None:
    work = replace(Analysis(matmuls().load()).index(OpWork), window_ns=1_000_000, steps=steps)
    first = render_ops(work).splitlines()[0]
    assert first == f"GPU time by op; shares are of the window of 1.00 ms{said}"


def ops(*kernels: int, shapes: int = 1) -> OpWork:
    """An op for each number, of so many kernels with different names in each of its calls, each of 1 us."""
    trace = TraceBuilder(record_shapes=1)
    number = 0
    for at, count in enumerate(kernels):
        for call in range(shapes):
            begin = 1_000_000 * at + 50_000 * call
            dims = {"Input Dims": [[call + 1, 8]], "Input type": ["float"], "Concrete Inputs": [""]}
            trace.op(f"aten::op{at}", begin, 40_000, **dims)
            for kind in range(count):
                number += 1
                trace.launch("cudaLaunchKernel", begin + 1_000 * kind, 500, number)
                trace.kernel(begin + 1_000 * kind + 600, 1_000, number, name=f"kernel_{kind}")
    return Analysis(trace.load()).index(OpWork)


@pytest.mark.parametrize("more", [0, 1, 2])
def test_kernels_and_inputs_beyond_the_first_are_counted(more: int) -> None:
    lines = [line.strip() for line in render_ops(ops(KERNELS + more)).splitlines()]
    assert sum(line.startswith("kernel_") for line in lines) == KERNELS
    assert [line for line in lines if line.startswith("and ")] == [f"and {more} more"] * (more > 0)
    lines = [line.strip() for line in render_ops(ops(1, shapes=SHAPES + more)).splitlines()]
    assert sum(line.startswith("[") for line in lines) == SHAPES
    others = [line for line in lines if line.startswith("other inputs")]
    assert others == [f"other inputs ({more}): {more}.00 µs"] * (more > 0)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_ops_beyond_the_limit_are_one_line(limit: int) -> None:
    lines = render_ops(ops(1, 3, 2), limit=limit).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("aten::")] == [
        "aten::op1",
        "aten::op2",
        "aten::op0",
    ][:limit]
    others = [line for line in lines if line.startswith("other ops")]
    assert [line.rpartition(",")[0] for line in others] == {
        1: ["other ops (2): 3.00 µs"],
        2: ["other ops (1): 1.00 µs"],
    }.get(limit, [])


def test_the_share_of_the_other_ops_is_that_of_all_of_them() -> None:
    """Of 10 us the first op takes 3, the others 2 and 1."""
    lines = render_ops(replace(ops(1, 3, 2), window_ns=10_000), limit=1).splitlines()
    assert next(line for line in lines if line.startswith("aten::op1")).endswith("3.00 µs  30.0 %")
    assert "other ops (2): 3.00 µs, 30.0 %" in lines


def test_calls_are_counted_and_the_time_of_one_is_told() -> None:
    lines = render_ops(ops(2, shapes=1)).splitlines()
    assert " 1 call " in next(line for line in lines if line.startswith("aten::op0"))
    lines = render_ops(ops(2, shapes=2)).splitlines()
    assert " 2 calls " in next(line for line in lines if line.startswith("aten::op0"))
    assert next(line for line in lines if "[1x8] float" in line or "[[1, 8]]" in line).endswith(
        " 1 x 2.00 µs"
    )
    assert all(len(line) <= 100 for line in lines)


def work_of(*inputs: Inputs, kernels: tuple[tuple[str, str, str, str, int, int], ...] = ()) -> OpWork:
    return OpWork(inputs, kernels, 100_000, 0, {})


MM = Inputs(
    "aten::mm", "8x8", "float", 0, 4, 8_000, None, None, None, None, None, None, None, None, None, "why"
)


def test_kernels_stand_below_inputs_of_their_shapes() -> None:
    half = replace(MM, dtypes="half", calls=2, gpu_ns=6_000)
    other = replace(MM, shapes="4x4", calls=1, gpu_ns=1_000)
    kernels = (
        ("aten::mm", "8x8", "float", "sgemm", 4, 8_000),
        ("aten::mm", "8x8", "half", "hgemm", 3, 6_000),
        ("aten::mm", "4x4", "float", "small", 1, 1_000),
        ("aten::add", "8x8", "float", "add", 1, 1_000),
    )
    lines = [
        " ".join(line.split()) for line in render_ops(work_of(MM, half, other, kernels=kernels)).splitlines()
    ]
    assert lines[2:] == [
        "aten::mm 7 calls 15.0 µs 15.0 %",
        "[8x8] float 4 x 2.00 µs",
        "peak n/a: why",
        "sgemm 4 x 2.00 µs",
        "[8x8] half 2 x 3.00 µs",
        "peak n/a: why",
        "hgemm 3 x 2.00 µs",
        "[4x4] float 1 x 1.00 µs",
        "peak n/a: why",
        "small 1 x 1.00 µs",
        "",
    ]


def test_where_peaks_are_from_is_said_of_every_device() -> None:
    h200 = Peaks("H200", {}, 4_800.0, "its datasheet")
    lines = render_ops(replace(work_of(MM), peaks={1: h200, 0: None})).splitlines()
    assert lines[-2:] == [
        "Peaks of device 0: not in the table of peaks",
        "Peaks of device 1: H200, its datasheet",
    ]


def test_pull_request_table_has_longest_inputs_first() -> None:
    """Shares are of the window; what is not known is empty."""
    add = replace(MM, op="aten::add", shapes="", dtypes="", calls=1_200, gpu_ns=50_000, why=None)
    add = replace(add, tflops=0.25, gbps=1_234.5, peak_share=0.5, limit="memory")
    rows = ops_markdown(work_of(MM, add)).splitlines()
    assert rows[2:4] == [
        "| aten::add | shapes not recorded | 1,200 | 50.0 µs | 50.0 % | 0.2 | 1,234 | 50.0 % |",
        r"| aten::mm | \[8x8\] float | 4 | 8.00 µs | 8.0 % |  |  |  |",
    ]
    assert len(ops_markdown(work_of(MM, add), limit=1).splitlines()) == len(rows) - 1
