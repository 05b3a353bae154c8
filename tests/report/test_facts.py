"""Facts with their rates, and what bounds a step."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.short_names import short_op
from traceanalyzer.report.costs import largest_costs
from traceanalyzer.report.facts import Fact, facts_of, rates, what_bounds
from traceanalyzer.roofline.gpus import Peaks

US = 1_000
Shared = Callable[[str], Path]


def analysis(path: Path) -> Analysis:
    return Analysis(load(path))


def named(facts: tuple[Fact, ...], name: str) -> list[Fact]:
    return [fact for fact in facts if fact.name == name]


# -- facts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slug", "kind"), [("layout-conversion", "conv"), ("hand-written-attention", "attention")])
def test_nothing_reaches_more_than_is_achievable(slug: str, kind: str) -> None:
    rates = named(facts_of(analysis(FIXTURES / slug / "good.json.gz")), "rate")
    one = next(fact for fact in rates if fact.values["kind"] == kind)
    assert one.values["tflops"] == one.values["achievable_tflops"]
    assert "all that is achievable" in one.text


@pytest.mark.parametrize(
    ("kernel_us", "call", "said"),
    [
        (50, "cudaLaunchKernel", ""),
        (51, "cudaLaunchKernel", "; Nsight Compute shows why its kernels take so long"),
        (51, "hipLaunchKernel", "; rocprof-compute shows why its kernels take so long"),
        (51, "urEnqueueKernelLaunch", "; VTune shows why its kernels take so long"),
    ],
)
def test_a_profiler_of_kernels_is_named_where_they_take_most(kernel_us: int, call: str, said: str) -> None:
    """Beside a copy of 50 us."""
    trace = TraceBuilder()
    trace.op("aten::to", 0, 30 * US)
    trace.launch(call, 5 * US, 5 * US, 1, category="xpu_runtime" if call.startswith("ur") else "cuda_runtime")
    trace.launch("cudaMemcpyAsync", 15 * US, 5 * US, 2)
    trace.kernel(20 * US, kernel_us * US, 1)
    trace.memcpy(100 * US, 50 * US, 2)
    (one,) = named(facts_of(Analysis(trace.load())), "hotspot")
    assert one.text.endswith(f"in 1 step{said}")
    assert (one.values["calls"], one.values["kernels"], one.values["gpu_ns"]) == (1, 2, (kernel_us + 50) * US)


def test_float32_with_tf32_is_told_from_float32_without() -> None:
    rates = [named(facts_of(analysis(FIXTURES / "no-tensor-cores" / f"{variant}.json.gz")), "rate")[0]
             for variant in ("bad", "good")]  # fmt: skip
    assert [one.values["peak_tflops"] for one in rates] == [67.0, 494.5]
    assert ["by TF32" in one.text for one in rates] == [False, True]


# -- costs ---------------------------------------------------------------------------------------------------


def test_the_largest_costs_of_the_unprofiled_step(shared: Shared) -> None:
    (first, *_) = largest_costs(analysis(shared("pairs/clean_gemm.fixed")))
    assert (first.name, first.kind) == ("aten::matmul", "gpu")
    (first, *_) = largest_costs(analysis(shared("pairs/dataloader.bad")))
    assert (first.name, first.kind) == ("while data is loaded", "idle")
    assert first.share > 0.8


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0"),
        ("aten::mm", "aten::mm"),
        ("void at::native::reduce_kernel<512, 1, x>(x)", "reduce_kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32>(Params)", "cutlass_80_simt_sgemm_128x32"),
        ("void at::native::(anonymous namespace)::distribution<x>(y)", "distribution"),
    ],
)  # fmt: skip
def test_names_are_short(name: str, short: str) -> None:
    assert short_op(name) == short


@pytest.mark.parametrize(
    ("unclear", "bound", "said"),
    [
        (True, "cpu", "bound by the CPU or the device, not clear"),
        (False, "cpu", "overhead-bound"),
        (False, "gpu", "bound by the device"),
        (False, "communication", "bound by communication"),
        (False, "wait", "bound by waiting"),
    ],
)
def test_bound_of_a_step_is_stated_unless_open(unclear: bool, bound: str, said: str) -> None:
    step = SimpleNamespace(open=unclear, bound=bound, unprofiled_ns=3e6)
    # The others are of the ends of the interval.
    slowdowns = [SimpleNamespace(cpu_ns=ns, gpu_ns=ns / 2) for ns in (2e6, 1e6, 4e6)]
    forecast = SimpleNamespace(step=step, base=slowdowns)
    given: Any = SimpleNamespace(index=lambda _: forecast)
    (one,) = what_bounds(given)
    assert one.text.startswith(said)
    assert one.text.endswith("(2.00 ms of CPU and 1.00 ms of GPU time in a step of 3.00 ms)")
    assert one.values == {"bound": bound, "cpu_ns": 2_000_000, "gpu_ns": 1_000_000, "step_ns": 3_000_000}


BF16 = "c10::BFloat16"
H200 = Peaks("H200", {"fp32": 60.0, "tf32": 500.0, "bf16": 1_000.0}, 4_800.0, "data sheet")
V100 = Peaks("V100", {"fp32": 15.0}, 900.0, "data sheet")
COLUMNS = ("kind", "dtypes", "device", "peak_tflops", "tflops", "gpu_ns")


def rates_of(*shapes: tuple[str, str, int, float | None, float | None, int]) -> list[Fact]:
    """Of shapes as `OpWork` has them; device 0 is an H200, device 1 a V100, and device 2 is not known."""
    frame = pd.DataFrame(shapes, columns=list(COLUMNS)).astype({"peak_tflops": float, "tflops": float})
    work = SimpleNamespace(shapes=frame, peaks={0: H200, 1: V100, 2: None})
    given: Any = SimpleNamespace(index=lambda _: work)
    return list(rates(given))


def test_a_rate_of_several_shapes_is_that_of_all_their_time() -> None:
    """100 TFLOP/s during 30 ns and 20 during 10 are 80; what has no count of operations is no part of it."""
    (one,) = rates_of(
        ("matmul", BF16, 0, 1_000.0, 100.0, 30),
        ("matmul", BF16, 0, 1_000.0, 20.0, 10),
        ("matmul", BF16, 0, 1_000.0, None, 99),
    )
    assert (one.values["tflops"], one.values["gpu_ns"]) == (80.0, 40)
    assert one.text.startswith("matmul in c10::BFloat16: 80 TFLOP/s, 8 % of the peak of 1,000")


def test_a_shape_counts_as_its_first_input_s_type() -> None:
    """A product whose bias, or mask, has another type."""
    (one,) = rates_of(("matmul", f"{BF16}, float", 0, 1_000.0, 100.0, 10), ("matmul", BF16, 0, 1_000.0, 200.0, 10))
    assert (one.values["dtypes"], one.values["tflops"]) == (BF16, 150.0)


@pytest.mark.parametrize(
    ("other", "values"),
    [
        (("conv", "float", 0, 60.0, 3.0, 7), ("conv", "float", 60.0)),
        (("matmul", BF16, 0, 1_000.0, 3.0, 7), ("matmul", BF16, 1_000.0)),
        (("matmul", "float", 0, 500.0, 3.0, 7), ("matmul", "float", 500.0)),
        (("matmul", "float", 1, 15.0, 3.0, 7), ("matmul", "float", 15.0)),
        (("matmul", "float", 2, None, 3.0, 7), ("matmul", "float", None)),
    ],
)
def test_other_work_type_peak_or_device_has_another_rate(other: Any, values: tuple[str, str, float | None]) -> None:
    first, second = rates_of(("matmul", "float", 0, 60.0, 30.0, 10), other)
    assert (first.values["tflops"], first.values["gpu_ns"]) == (30.0, 10)
    assert (second.values["tflops"], second.values["gpu_ns"]) == (3.0, 7)
    assert tuple(second.values[name] for name in ("kind", "dtypes", "peak_tflops")) == values


def test_two_devices_of_one_peak_have_a_rate_each() -> None:
    """What is achievable is that of the device, and unknown where the device is."""
    first, second = rates_of(("matmul", "float", 0, 60.0, 30.0, 10), ("matmul", "float", 2, 60.0, 20.0, 10))
    assert first.values["achievable_tflops"] == H200.reached_tflops("matmul", "fp32")
    assert (second.values["tflops"], second.values["achievable_tflops"]) == (20.0, None)


def test_work_that_takes_no_time_has_a_rate_of_nothing() -> None:
    (one,) = rates_of(("matmul", "float", 0, 60.0, 30.0, 0))
    assert (one.values["tflops"], one.values["gpu_ns"]) == (0.0, 0)
