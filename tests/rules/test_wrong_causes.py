"""What was told wrongly of other people's programs: each on a small built trace, beside what is to be told."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, F64, Op, found, program
from tests.rules.programs import US, Program
from tests.rules.programs import found as of_trace
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import DeviceWork


@pytest.mark.parametrize("kernel", ["volta_sgemm_128x64_nn", "f(BinaryFunctor<float, float, float, MulFunctor>)"])
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


def test_an_accelerator_without_rows_of_its_work_is_named() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 20 * US)
    for i in range(7):
        trace.event(
            ph="X", cat="mtia_ccp_events", name="CCP", ts=10 + i, dur=1, pid=0, tid=7, args={"device": 0, "stream": 7}
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
