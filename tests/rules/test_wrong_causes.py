"""What was told wrongly of other people's programs: each on a small built trace, beside what is to be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, SGEMM, Op, found, program
from tests.rules.programs import US, Program
from tests.rules.programs import found as of_trace
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Severity
from traceanalyzer.timeline.device_work import DeviceWork

SOFTMAX_KERNEL = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, false>(int)"
)
BMM = Op("aten::bmm", NVJET, 200, [[64, 512, 64], [64, 64, 512]], [BF16, BF16])
SOFTMAX = Op("aten::_softmax", SOFTMAX_KERNEL, 200, [[64, 512, 512], [], []], [BF16, "Scalar", "Scalar"])
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor>(int)"


def test_attention_by_hand_is_found() -> None:
    scale = Op("aten::div", POINTWISE, 100, [[64, 512, 512], []], [BF16, "double"])
    assert found(program([BMM, scale, SOFTMAX, BMM]), "hand-written-attention")


@pytest.mark.parametrize(
    "ops",
    [
        [BMM, Op("aten::topk", "gatherTopK", 50), SOFTMAX, BMM],
        [BMM, SOFTMAX, Op("aten::index", "index_elementwise_kernel", 50), BMM],
    ],
)
def test_the_routing_of_experts_is_no_attention(ops: list[Op]) -> None:
    """The best experts are chosen, a softmax weighs them, their weights are looked up."""
    assert found(program(ops), "hand-written-attention") == []


def test_bias_looked_up_before_softmax_is_still_attention() -> None:
    table = Op("aten::index", "index_elementwise_kernel", 50)
    assert found(program([BMM, table, SOFTMAX, BMM]), "hand-written-attention")


@pytest.mark.parametrize(
    "kernel", ["volta_sgemm_128x64_nn", "f(BinaryFunctor<float, float, float, MulFunctor>)"]
)
def test_a_kernel_that_says_float_is_no_float64_work(kernel: str) -> None:
    ops = [Op("aten::mm", kernel, 100, [[512, 512], [512, 512]], [F64, F64])]
    assert found(program(ops), "float64-math") == []
    ops = [Op("aten::mm", "void dgemm_largek_lds64", 100, [[512, 512], [512, 512]], [F64, F64])]
    assert found(program(ops), "float64-math")


def test_double_inputs_of_a_graph_are_not_its_compute_type() -> None:
    trace = TraceBuilder(record_shapes=1)
    for step in range(4):
        at = 1_000 * US * step
        trace.step(step, at, 1_000 * US)
        inputs = {"Input Dims": [[8]] * 200, "Input type": [F32] * 198 + [F64] * 2}
        trace.op("CompiledFunction", at + 10 * US, 100 * US, **inputs)
        trace.launch("cudaGraphLaunch", at + 20 * US, 20 * US, step + 1)
        for kernel in range(4):
            trace.kernel(at + (50 + 200 * kernel) * US, 199 * US, step + 1, name="triton_poi_fused_add")
    assert of_trace(trace, "float64-math") == []


def test_a_message_holds_four_shapes_at_most() -> None:
    dims, types = [[16, 16]] * 90, [F32] * 80 + [F64] * 10
    ops = [Op("aten::_foreach_addcmul", "f(Functor<double>)", 500, dims, types)]
    (one,) = found(program(ops), "float64-math")
    assert "and 86 more" in one.message
    assert len(one.message) < 400


def test_cudnns_rounding_for_tf32_converts_no_layout() -> None:
    conv = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
    flat = "void cudnn::ops::convertTensor_kernel<float, float, float, 2>(float, float const*, float*, unsigned long)"
    ops = [Op("aten::cudnn_convolution", flat, 100), Op("aten::cudnn_convolution", conv, 200)]
    assert found(program(ops), "layout-conversion") == []
    ops[0] = replace(ops[0], kernel="void cudnn::ops::nchwToNhwcKernel<float, float, float, true, true>(int)")
    assert found(program(ops), "layout-conversion")


def test_depthwise_convolution_gets_no_tensor_core_advice() -> None:
    kernel = "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int)"
    conv = Op("aten::cudnn_convolution", kernel, 400, [[32, 96, 56, 56], [96, 1, 3, 3]], [F32, F32])
    assert found(program([conv]), "no-tensor-cores") == []
    assert found(program([replace(conv, dims=[[32, 96, 56, 56], [96, 96, 3, 3]])]), "no-tensor-cores")
    assert found(program([Op("aten::mm", SGEMM, 400)]), "no-tensor-cores")


def test_one_slow_call_of_ten_is_not_the_rate_of_the_op() -> None:
    add = Op("aten::add", POINTWISE, 60, [[4096, 4096], [4096, 4096]], [F32, F32])
    assert found(program([add] * 9 + [replace(add, dur=9_000)]), "far-from-bound") == []
    (one,) = found(program([replace(add, dur=900)] * 9 + [replace(add, dur=9_000)]), "far-from-bound")
    assert one.evidence["call_ns"] == 900 * US


@pytest.mark.parametrize(
    ("op", "kernel", "said"),
    [
        ("_flash", "void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(int)", "runs already"),
        ("_flash", "attn_fwd", "runs already"),
        ("_efficient", "softmax_warp", "Enable the flash"),
    ],
)
def test_the_flash_kernel_is_not_told_to_run_where_it_does(op: str, kernel: str, said: str) -> None:
    dims = [[8, 512, 8, 64]] * 3
    scalars = ["", "", "", "", "", "512", "512", "0.", "False", "False"]
    types = [BF16, BF16, BF16, "", "", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar"]
    ops = [Op(f"aten::{op}_attention_forward", kernel, 4_000, [*dims, *[[]] * 7], types, scalars=scalars)]
    (one,) = found(program(ops), "far-from-bound")
    assert said in one.advice


def emptying(*, off: bool) -> Program:
    """Each step makes ten tensors; every one, or one, asks the driver, and is freed."""
    made = Program()
    for step in range(5):
        made.step(step)
        for i in range(10):
            made.trace.op("aten::empty", made.now, 150 * US)
            if off or i == 0:
                made.trace.launch("hipMalloc", made.now + 5 * US, 140 * US, 10_000 + 100 * step + i)
            made.now += 155 * US
        made.kernel()
        made.trace.op("aten::add", made.now, 120 * US)
        made.trace.launch("hipFree", made.now + 5 * US, 100 * US, 20_000 + step)
        made.now += 125 * US
    return made


def test_emptied_cache_with_recorded_blocks_is_not_off() -> None:
    """Freed between ops, in both cases; only a cache writes down its blocks on the device."""
    for recorded_on, cause in ((1, "emptied"), (0, "off")):
        made = Program()
        for step in range(5):
            made.step(step)
            made.trace.op("aten::empty", made.now, 150 * US)
            made.trace.launch("hipMalloc", made.now + 5 * US, 140 * US, 10_000 + step)
            made.trace.memory(made.now + 10 * US, 1 << 20, device_type=recorded_on)
            made.now += 155 * US
            made.kernel()
            made.trace.launch("hipFree", made.now, 100 * US, 20_000 + step)
            made.now += 125 * US
        (one,) = of_trace(made.trace, "allocator-thrash")
        assert one.cause == cause


@pytest.mark.parametrize(("off", "cause"), [(True, "off"), (False, "full")])
def test_disabled_allocator_differs_from_full_memory(off: bool, cause: str) -> None:
    (one,) = of_trace(emptying(off=off).trace, "allocator-thrash")
    assert one.cause == cause
    assert ("PYTORCH_NO_CUDA_MEMORY_CACHING" in one.advice) is off
    assert one.severity is not Severity.INFO


def test_list_optimizer_that_exchanges_data_is_unchanged() -> None:
    for extra in ("ncclDevKernel_AllGather_RING_LL(args)", "nvjet_sm90_tst"):
        trace, correlation = TraceBuilder(), 0
        for step in range(4):
            at = 4_000 * US * step
            trace.step(step, at, 4_000 * US)
            trace.annotation("Optimizer.step#Muon.step", at + 10 * US, 3_000 * US)
            for i in range(30):
                correlation += 1
                name = "aten::_foreach_mul_" if i == 0 else "aten::mm"
                trace.op(name, at + (20 + 60 * i) * US, 50 * US)
                trace.launch("cudaLaunchKernel", at + (30 + 60 * i) * US, 5 * US, correlation)
                trace.kernel(at + (45 + 60 * i) * US, 5 * US, correlation, name=extra if i == 9 else "gemm")
        assert of_trace(trace, "unfused-optimizer") == []


def test_an_accelerator_without_rows_of_its_work_is_named() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 20 * US)
    for i in range(7):
        trace.event(
            ph="X",
            cat="mtia_ccp_events",
            name="CCP",
            ts=10 + i,
            dur=1,
            pid=0,
            tid=7,
            args={"device": 0, "stream": 7},
        )
    with pytest.raises(Unavailable, match=r"7 rows of MTIA \(mtia_ccp_events\)") as told:
        Analysis(trace.load()).index(DeviceWork)
    assert "ProfilerActivity.CUDA" not in str(told.value)


def test_compiled_region_is_known_by_its_kernels() -> None:
    trace, number = TraceBuilder(record_shapes=1), 0
    for step in range(5):
        at = 3_000 * US * step
        trace.step(step, at, 3_000 * US)
        trace.op("Torch-Compiled Region: 0/0", at + 10 * US, 2_900 * US)
        for i in range(40):
            number += 1
            trace.launch("cuLaunchKernel", at + (20 + 70 * i) * US, 60 * US, number)
            name = "triton_poi_fused_gelu_0" if i % 4 else "triton_red_fused_norm_1"
            trace.kernel(at + (30 + 70 * i) * US, 40 * US, number, name=name)
    (one,) = of_trace(trace, "hotspot")
    assert "triton_poi_fused_gelu_0" in one.message
    assert one.advice.startswith("Look at the longest kernels")
