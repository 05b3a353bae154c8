"""Ops and their kernels, end to end and as people read them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cached_reports import analysed
from tests.support.matmul_traces import BF16, F32, matmuls
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.render.text.views import KERNELS, SHAPES, ops_markdown, rate_text, render_ops
from traceanalyzer.roofline.gpus import Peaks, _known, device_peaks
from traceanalyzer.roofline.op_rates import NO_OP, Inputs, OpWork


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD Instinct MI250X", "MI250X, one die"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("AMD Radeon Graphics", None),
        (None, None),
    ],
)
def test_devices_by_the_name_in_the_trace(name: str | None, known: str | None) -> None:
    peaks = device_peaks(name)
    assert (peaks.name if peaks else None) == known


def test_every_device_has_a_source_and_rates() -> None:
    for _, peaks in _known():
        assert re.search("data sheet|brochure|white paper|guide", peaks.source)
        assert peaks.tflops["fp16"] > peaks.tflops["fp32"] >= peaks.tflops["fp64"] > 0
        assert peaks.gbps >= 250


def test_ops_shapes_and_kernels() -> None:
    work = Analysis(matmuls().load()).index(OpWork)
    assert work.ops["op"].tolist() == ["aten::mm", "aten::_softmax", "aten::copy_", NO_OP]
    assert work.ops["gpu_ns"].tolist() == [8_000, 1_000, 500, 200]
    assert work.ops["share"].sum() == pytest.approx(9_700 / work.window_ns)
    shapes = work.shapes.set_index("op")
    product = shapes.loc["aten::mm"]
    assert (product["shapes"], product["calls"]) == ("1024x1024, 1024x1024", 2)
    assert product["tflops"] == pytest.approx(2 * 1024**3 / 4_000 / 1e3)
    assert product["peak_share"] == pytest.approx(product["tflops"] / 989.5)
    assert product["limit"] == "compute"
    assert (shapes.loc["aten::_softmax", "kind"], shapes.loc["aten::_softmax", "limit"]) == ("softmax", "memory")
    assert shapes.loc["aten::copy_", "why"] == "copies between host and device"
    assert shapes.loc[NO_OP, "why"] == "not launched by an op"
    assert work.kernels["kernel"].tolist()[:2] == ["gemm", "softmax"]


@pytest.mark.parametrize(
    ("name", "source", "moved"),
    [
        ("Memcpy HtoD (Pageable -> Device)", F32, 4_096),
        ("Memcpy DtoH (Device -> Pageable)", F32, 4_096),
        ("Memcpy HtoD (Pinned -> Device)", BF16, 4_096),
        ("Memcpy DtoD (Device -> Device)", F32, 8_192),
    ],
)
def test_bytes_cross_the_link_once_and_memory_twice(name: str, source: str, moved: int) -> None:
    trace = matmuls()
    for event in trace.events:
        if event["name"].startswith("Memcpy"):
            event["name"] = name
        if event["name"] == "aten::copy_":
            event["args"]["Input type"] = [F32, source]
    row = Analysis(trace.load()).index(OpWork).shapes.set_index("op").loc["aten::copy_"]
    assert row["bytes"] == moved
    assert row["gbps"] == pytest.approx(moved / 500)


def test_the_text_says_what_was_reached_and_what_is_not_known() -> None:
    text = render_ops(Analysis(matmuls().load()).index(OpWork), limit=3)
    for part in ("aten::mm", "[1024x1024, 1024x1024] c10::BFloat16", "536.9 TFLOP/s", "54.3 % of the compute peak"):
        assert part in text
    assert "of the memory peak" in text
    assert "other ops (1)" in text
    assert "H200 SXM, NVIDIA H200 data sheet" in text
    for width in (60, 80, 120):
        text = render_ops(Analysis(matmuls().load()).index(OpWork), width=width)
        assert max(map(len, text.splitlines())) <= width


def test_markdown_has_a_row_per_op_and_inputs() -> None:
    work = Analysis(matmuls().load()).index(OpWork)
    lines = ops_markdown(work, limit=3).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {len(row) for row in rows} == {8}
    mm = next(row for row in rows if "aten::mm" in row[0])
    assert mm[1] == r"\[1024x1024, 1024x1024\] c10::BFloat16"
    assert (mm[5], mm[7]) == ("536.9", "54.3 % |")
    assert len(ops_markdown(work, limit=99).splitlines()) > len(lines)


def test_kernels_alone_belong_to_no_op() -> None:
    trace = TraceBuilder()
    trace.kernel(100, 50, 1, name="gemm")
    trace.kernel(200, 70, 2, name="gemm")
    loaded = trace.load()
    assert len(loaded.cpu) == 0
    work = Analysis(loaded).index(OpWork)
    assert work.ops[["op", "calls", "gpu_ns"]].to_dict("records") == [{"op": NO_OP, "calls": 2, "gpu_ns": 120}]


def test_many_inputs_and_kernels_are_summed_up() -> None:
    trace = TraceBuilder(record_shapes=1)
    trace.step(0, 0, 1_000_000, external_id=90)
    for number in range(1, 8):
        trace.op("aten::cumsum", number * 10_000, 5_000, external_id=number, **{"Input Dims": [[number]]})
        for kernel in range(6):
            correlation = number * 10 + kernel
            trace.kernel(100_000 + correlation * 100, 50, correlation, external_id=number, name=f"scan{kernel}")
            trace.launch("cudaLaunchKernel", number * 10_000 + kernel, 1, correlation, external_id=number)
    text = render_ops(Analysis(trace.load()).index(OpWork))
    assert "other inputs (2)" in text
    assert "and 2 more" in text


def test_a_device_that_is_not_in_the_table_is_said_to_be_so() -> None:
    trace = matmuls()
    trace.header["deviceProperties"][0]["name"] = "Some GPU"
    work = Analysis(trace.load()).index(OpWork)
    assert work.shapes.set_index("op").loc["aten::mm", "why"] == "device not in the table of peaks"
    assert "device 0: not in the table of peaks" in render_ops(work)


@pytest.mark.parametrize(("kernel", "share"), [("gemm_tf32f32", 494.5), ("ampere_sgemm", 67.0), ("nvjet", None)])
def test_float32_is_tf32_where_the_kernel_says_so(kernel: str, share: float | None) -> None:
    trace = matmuls()
    for event in trace.events:
        if "Input type" in event.get("args", {}):
            event["args"]["Input type"] = [F32, F32]
        if event["name"] == "gemm":
            event["name"] = kernel
    row = Analysis(trace.load()).index(OpWork).shapes.set_index("op").loc["aten::mm"]
    if share is None:
        assert row["why"] == "kernel names do not separate TF32 from FP32"
    else:
        assert row["peak_tflops"] == share


def test_a_kind_of_arithmetic_that_the_device_lacks_is_named() -> None:
    trace = matmuls()
    trace.header["deviceProperties"][0]["name"] = "Tesla V100-SXM2-32GB"
    assert (
        Analysis(trace.load()).index(OpWork).shapes.set_index("op").loc["aten::mm", "why"]
        == "no bf16 peak known for V100 SXM2"
    )


def test_without_shapes_it_says_so() -> None:
    trace = matmuls()
    for event in trace.events:
        event.get("args", {}).pop("Input Dims", None)
    row = Analysis(trace.load()).index(OpWork).shapes.set_index("op").loc["aten::mm"]
    assert row["why"] == "no shapes recorded"
    assert "shapes not recorded" in render_ops(Analysis(trace.load()).index(OpWork))


def test_a_trace_of_the_cpu_alone_has_no_gpu_ops() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10)
    with pytest.raises(Unavailable):
        Analysis(trace.load()).index(OpWork)


def test_rows_of_the_data_formats_are_per_kernel() -> None:
    frame = Analysis(matmuls().load()).index(OpWork).frame()
    assert len(frame) == 4
    assert frame.loc[frame["kernel"] == "gemm", "calls"].item() == 2


@pytest.mark.parametrize(
    ("name", "op", "least", "most"),
    [("real/gpt2_train.eager", "aten::mm", 0.5, 0.9), ("pairs/fp32_gemm.bad", "aten::addmm", 0.5, 0.9)],
)
def test_shares_of_the_peak_are_plausible_on_real_traces(
    shared: Callable[[str], Path], name: str, op: str, least: float, most: float
) -> None:
    work = analysed(shared(name)).index(OpWork)
    best = work.shapes.loc[work.shapes["op"] == op, "peak_share"].max()
    assert least < best < most
    assert work.kernels["gpu_ns"].sum() == work.ops["gpu_ns"].sum() == work.shapes["gpu_ns"].sum()


@pytest.mark.parametrize(
    ("name", "gbps", "bf16"),
    [
        ("NVIDIA H200", 4800.0, 989.5),
        ("NVIDIA H100 80GB HBM3", 3350.0, 989.5),
        ("NVIDIA H100 PCIe", 2000.0, 756.5),
        ("NVIDIA A100-SXM4-40GB", 1555.0, 312.0),
        ("NVIDIA A100-SXM4-80GB", 2039.0, 312.0),
        ("NVIDIA GH200 480GB", 4000.0, 989.5),
        ("NVIDIA GH200 144G HBM3e", 4800.0, 989.5),
        ("NVIDIA L40S", 864.0, 362.0),
        ("NVIDIA B200", 8000.0, 2250.0),
        ("NVIDIA GB200", 8000.0, 2500.0),
        ("NVIDIA B300 SXM6 AC", 8000.0, 2250.0),
        ("AMD Instinct MI210", 1638.4, 181.0),
        ("AMD Instinct MI250X", 1638.4, 191.5),
        ("AMD Instinct MI300X", 5300.0, 1307.4),
        ("AMD Instinct MI325X", 6000.0, 1307.4),
        ("AMD Instinct MI355X", 8000.0, 2500.0),
        ("Tesla V100-SXM2-16GB", 900.0, None),
    ],
)
def test_peaks_are_those_of_the_data_sheets(name: str, gbps: float, bf16: float | None) -> None:
    peaks = device_peaks(name)
    assert peaks is not None
    assert (peaks.gbps, peaks.tflops.get("bf16")) == (gbps, bf16)


RATES = {"tflops": 12.34, "gbps": 1_234.5, "peak_tflops": 989.5, "peak_gbps": 4_800.0, "why": "no shapes"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"limit": "compute", "peak_share": 0.5},
            "12.3 TFLOP/s, 1,234 GB/s, 50.0 % of the compute peak of 989.5 TFLOP/s",
        ),
        ({"limit": "memory", "peak_share": 0.5}, "12.3 TFLOP/s, 1,234 GB/s, 50.0 % of the memory peak of 4,800 GB/s"),
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
    assert [line.split()[0] for line in lines if line.startswith("aten::")] == ["aten::op1", "aten::op2", "aten::op0"][
        :limit
    ]
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
    assert next(line for line in lines if "[1x8] float" in line or "[[1, 8]]" in line).endswith(" 1 x 2.00 µs")
    assert all(len(line) <= 100 for line in lines)


def work_of(*inputs: Inputs, kernels: tuple[tuple[str, str, str, str, int, int], ...] = ()) -> OpWork:
    return OpWork(inputs, kernels, 100_000, 0, {})


MM = Inputs("aten::mm", "8x8", "float", 0, 4, 8_000, None, None, None, None, None, None, None, None, None, "why")


def test_kernels_stand_below_inputs_of_their_shapes() -> None:
    half = replace(MM, dtypes="half", calls=2, gpu_ns=6_000)
    other = replace(MM, shapes="4x4", calls=1, gpu_ns=1_000)
    kernels = (
        ("aten::mm", "8x8", "float", "sgemm", 4, 8_000),
        ("aten::mm", "8x8", "half", "hgemm", 3, 6_000),
        ("aten::mm", "4x4", "float", "small", 1, 1_000),
        ("aten::add", "8x8", "float", "add", 1, 1_000),
    )
    lines = [" ".join(line.split()) for line in render_ops(work_of(MM, half, other, kernels=kernels)).splitlines()]
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
    assert lines[-2:] == ["Peaks of device 0: not in the table of peaks", "Peaks of device 1: H200, its datasheet"]


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
