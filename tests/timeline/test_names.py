"""What names of copies, collectives, launches and kernels mean."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline import names
from traceanalyzer.timeline.communication import collective_of
from traceanalyzer.timeline.kernel_families import (
    computes,
    is_full_fp32,
    is_gemm,
    is_half_with_narrow_loads,
    is_product,
    is_tf32,
)


@pytest.mark.parametrize(
    "name",
    [
        *("cudaLaunchKernel", "cudaLaunchKernelExC_v11060", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel"),
        *("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipModuleLaunchKernel"),
        *("hipLaunchCooperativeKernel", "cudaGraphLaunch", "hipGraphLaunch", "urEnqueueKernelLaunch"),
        *("piextEnqueueCooperativeKernelLaunch", "zeCommandListAppendLaunchKernel"),
    ],
)
def test_launches(name: str) -> None:
    assert names.LAUNCH.search(name)


OTHER_CALLS = ["urEnqueueUSMMemcpy", "cudaMemcpyAsync", "cudaLaunchHostFunc", "cudaFuncGetAttributes"]


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_other_calls_launch_nothing(name: str) -> None:
    assert not names.LAUNCH.search(name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("CopyHostToDevice", "h2d"),
        ("Memcpy HtoA (Host -> Array)", "other"),
        ("Memcpy (Host -> Device)", "h2d"),
        ("Memcpy (Device -> Host)", "d2h"),
        ("Memcpy (Device -> Device)", "d2d"),
        ("Memcpy PeerToPeer", "p2p"),
        ("Memcpy M2D (MEMORY -> DEVICE)", "h2d"),
        ("Memcpy D2M (DEVICE -> MEMORY)", "d2h"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "d2d"),
        ("Memcpy S2D (SHARED -> DEVICE)", "other"),
    ],
)
def test_copies(name: str, kind: str) -> None:
    assert names.copy_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("entire_frame_compile (dynamo_timed)", True),
        ("CachingAutotuner.benchmark", True),
        ("CUDAGraphNode.record (dynamo_timed)", False),  # captures
        ("Torch-Compiled Region: 0/0", False),  # runs what was compiled
        ("## Call CompiledFxGraph fx_compile.x ##", False),
        ("aten::mm", False),
    ],
)
def test_compiling_is_not_running_compiled_code_or_capturing(name: str, compiles: bool) -> None:
    assert names.is_compilation(name) is compiles


US = 1_000


def copied(name: str, **args: str) -> Work:
    trace = TraceBuilder()
    trace.launch("cudaMemcpyAsync", 0, 5 * US, 1)
    trace.memcpy(10 * US, 5 * US, 1, name=name, **args)
    return Analysis(trace.load()).index(Work)


@pytest.mark.parametrize(
    ("name", "args", "kind", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", {}, "copy_h2d", True),
        ("Memcpy DtoH (Device -> Pinned)", {}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}, "copy_h2d", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pageable"}, "copy_d2h", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pinned"}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "DtoD", "src kind": "device", "dst kind": "device"}, "copy_d2d", False),
        ("Memcpy", {}, "copy_other", False),
    ],
)
def test_way_and_memory_of_a_copy(name: str, args: dict[str, str], kind: str, pageable: bool) -> None:
    work = copied(name, **args)
    assert (work.kind[0], bool(work.pageable[0])) == (kind, pageable)


@pytest.mark.parametrize(
    ("kernel", "op", "name"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None, "allreduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", "alltoall"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "c10d::_allgather_base_", "allgather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*)", "aten::add", "reducescatter"),
        ("void my::exchange_kernel<ns::half>(ns::args)", None, "exchange_kernel"),
        ("void vllm::cross_device_reduce_1stage<half>(x)", None, "cross_device_reduce_1stage"),
    ],
)
def test_collective_names(kernel: str, op: str | None, name: str) -> None:
    assert collective_of(kernel, op) == name[:40]


FP32 = "ampere_sgemm_128x64_nn"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16"
TENSILE = "Cijk_Ailk_Bljk_{}_MT128x128x16_MI32x32x2x1"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(cublasGemvParams)"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float>(params)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 64>>(params)"
CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
DEPTHWISE = "void at::native::conv_depthwise2d_forward_kernel<5, float>(params)"
CUDNN_CONV = "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::conv::Conv2d<cutlass__5x_cudnn::{}>>(P)"
ALIGNED = "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_nn_align{}"


@pytest.mark.parametrize(
    ("name", "gemm", "product"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", True, True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1", False, True),
        ("cutlass_tensorop_f16_s16816fprop_optimized_f16_256x128", False, True),
        (FP32, True, True),
        (TENSILE.format("HHS_BH"), True, True),
        ("triton_tem_fused_addmm_3", True, True),
        (CONV, False, True),
        (DEPTHWISE, False, True),
        ("MIOpenConvUni", False, True),
        (FLASH, False, True),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention)", False, True),
        ("void gemmk1_kernel<int, float, 256, 5, false>(cublasGemmk1Params)", False, True),
        (GEMV, False, False),
        (SPLIT, False, False),
        (POINTWISE, False, False),
    ],
)
def test_products_are_gemms_convolutions_and_attention(name: str, gemm: bool, product: bool) -> None:
    assert (is_gemm(name), is_product(name)) == (gemm, product)


@pytest.mark.parametrize(
    "name",
    [
        FP32,
        CONV,
        FLASH,
        POINTWISE,
        GEMV,
        SPLIT,
        "triton_poi_fused_add_0",
        "triton_red_fused_sum_1",
        "void softmax_warp_forward<float, float, float, 8, false, false>(params)",
        "void indexSelectLargeIndex<float, unsigned int, 2, 2, -2, true>(params)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(params)",
        "void fast_layer_norm_kernel(params)",
        "Memset (Device)",
        "void (anonymous namespace)::softmax_fused(float*)",
        "void spatial_gather_kernel(float*)",
        "chunk_cat_cuda_kernel<float>",
    ],
)
def test_kernels_of_libraries_compute_on_their_own_device(name: str) -> None:
    assert computes(name)


@pytest.mark.parametrize("name", ["my_kernel(float*)", "nvshmem_barrier_all", "run(params)", "back::end"])
def test_what_no_library_calls_its_own_may_do_anything(name: str) -> None:
    assert not computes(name)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        (FP32, True),
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_ffma", True),
        (TENSILE.format("SB"), True),
        (TENSILE.format("S_B"), True),
        (TENSILE.format("S_B") + "_xf32", False),
        (TENSILE.format("HSS_BH"), False),
        (TF32, False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_ffma_s16816", False),
        ("ampere_sgemm_128x64_tn_splitKreduce", False),
        ("ampere_sgemm_128x64_tensorop", False),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(params)", True),
        ("void conv2d_c1_k1_nhwc_kernel<float, float, float, 3>(params)", True),
        ("void conv2d_c1_k1_nhwc_kernel<__half, __half, float, 3>(params)", False),
        ("igemm_fwd_gtcx_nhwc_fp32_bx0", True),
        ("volta_fp16_sgemm_fp16_128x64_nn", False),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", True),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_f2x3_stride1", False),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", True),
    ],
)
def test_products_in_full_float32_precision_are_known(name: str, full: bool) -> None:
    assert is_full_fp32(name) is full


@pytest.mark.parametrize(
    ("name", "tf32"),
    [
        (TF32, True),
        (FP32, False),
        ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", True),
        ("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn", False),
        (CUDNN_CONV.format("tfloat32_t"), True),
        (CUDNN_CONV.format("half_t"), False),
    ],
)
def test_products_in_tf32_are_known(name: str, tf32: bool) -> None:
    assert is_tf32(name) is tf32


@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        *[(ALIGNED.format(width), width < 8) for width in (1, 2, 4, 8, 16)],
        ("cutlass_75_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_nn_align8", True),
        ("cutlass_70_tensorop_f16_s884gemm_f16_128x128_32x2_nn_align8", True),
        ("volta_h884gemm_64x64_ldg8_nn", True),
        ("turing_h1688gemm_128x128_ldg8_nn", True),
        ("volta_sgemm_128x64_nn", False),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_aligna4_alignc4", True),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_aligna8_alignc8", False),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_a2_b2", True),
        ("cutlass_80_tensorop_s1688tf32gemm_f16_align4", False),
        ("cutlass_80_simt_hgemm_f16_align1", False),
        ("cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align4_gemm", False),
        ("void elementwise_f16_align4(params)", False),
        ("cutlass_80_tensorop_i8gemm_128x64_align4", False),
    ],
)
def test_half_precision_gemms_with_narrow_loads_are_known(name: str, narrow: bool) -> None:
    assert is_half_with_narrow_loads(name) is narrow


COPY = "at::native::direct_copy_kernel_cuda"
STATISTICS = "batch_norm_collect_statistics"
CONVERT = "cudnn::cnn::convertTensor_kernel<float"


@pytest.mark.parametrize(
    ("family", "meant", "other"),
    [
        (families.STRIDED_COPY, f"elementwise_kernel<128, 2, {COPY}>", f"vectorized_elementwise_kernel<4, {COPY}>"),
        (families.STRIDED_COPY, None, f"unrolled_elementwise_kernel<{COPY}>"),
        (families.CONCATENATION, "CatArrayBatchedCopy_vectorized", "triton_poi_fused_add_3"),
        (families.CONCATENATION, "chunk_cat_cuda_kernel", None),
        (families.CONCATENATION, "triton_poi_fused_cat_3", None),
        (families.NCHW_BATCH_NORM, f"{STATISTICS}_kernel", f"{STATISTICS}_channels_last_kernel"),
        (families.NCHW_BATCH_NORM, "batch_norm_backward_reduce_kernel", None),
        (families.LAYOUT, "nchwToNhwcKernel", "nchw_kernel"),
        (families.LAYOUT, f"{CONVERT}, int)", f"{CONVERT}>(float, unsigned long)"),
        (families.LAYOUT, "batched_transpose_16x16_dword", None),
        (families.LOG_SOFTMAX, "cunn_LogSoftMaxForward", "cunn_SoftMaxForward"),
        (families.LOG_SOFTMAX, "cunn_SoftMax<LogSoftMaxBackwardEpilogue>", None),
        (families.FEWER_PRODUCTS, "winogradForward", "sm80_xmma_fprop_implicit_gemm_f32f32"),
        (families.FEWER_PRODUCTS, "fft2d_r2c_32x32", None),
        (families.FEWER_PRODUCTS, "sm80_xmma_cf32cf32_f32f32", None),
        (families.LOW_PRECISION, "nvjet_tst_128x256", "nvjet_sss_128x256"),
        (families.LOW_PRECISION, "nvjet_hsh_128x256", "sgemm"),
        (families.LOW_PRECISION, "nvjet_sm100_qqtst_128x256", None),
        (families.LOW_PRECISION, TENSILE.format("F8BS_BH"), TENSILE.format("S_B")),
        (families.LOW_PRECISION, "flash_fwd_kernel", None),
        (families.LOW_PRECISION, "cutlass_80_tensorop_bf16_gemm", None),
        (families.INDEXED, "index_elementwise_kernel", "vectorized_elementwise_kernel"),
        (families.INDEXED, "scatter_gather_elementwise_kernel", None),
        (families.INDEXED, "elementwise_kernel_with_index", None),
        (families.FP64_ARITHMETIC, "ampere_dgemm_64x64", "ampere_sgemm_64x64"),
        (families.FP64_ARITHMETIC, TENSILE.format("DB"), TENSILE.format("SB")),
        (families.FP64_ARITHMETIC, "reduce_kernel<ReduceOp<double", "reduce_kernel<ReduceOp<float, double"),
        (families.FP64_ARITHMETIC, "complex<double>", None),
    ],
)
def test_families_take_their_names(family: re.Pattern[str], meant: str | None, other: str | None) -> None:
    assert meant is None or family.search(meant)
    assert other is None or not family.search(other)


MODULES = sorted((REPOSITORY / "traceanalyzer").rglob("*.py"))


def test_constants_are_bound_once() -> None:
    twice = {path.relative_to(REPOSITORY): bound_twice(path) for path in MODULES}
    assert len(twice) > 300
    assert {path: names for path, names in twice.items() if names} == {}


def bound_twice(path: Path) -> list[str]:
    """Names of a module that are bound more than once."""
    bound: Counter[str] = Counter()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            bound.update(one.id for one in names if isinstance(one, ast.Name))
    return [name for name, count in bound.items() if count > 1]
