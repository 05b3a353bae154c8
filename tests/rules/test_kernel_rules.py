"""Rules about GPU work that takes longer than it need: recorded pairs with known savings, and small built traces."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, SGEMM, US, Op, found, program
from tests.support.trace_builder import H200
from traceanalyzer import Finding

# -- arithmetic: small built traces ----------------------------------------------------------------------


SQUARE = [[2048, 2048], [2048, 2048]]


def named(kernel: str, device: str = "NVIDIA H200", op: str = "aten::mm") -> list[Finding]:
    other = Op("aten::mm", NVJET, 100)
    return found(program([Op(op, kernel, 300), other], device=H200 | {"name": device}), "no-tensor-cores")


@pytest.mark.parametrize(
    ("kernel", "cause"),
    [
        (SGEMM, "matmul"),
        ("ampere_sgemm_32x128_tn", "matmul"),
        ("volta_sgemm_128x64_nt", "matmul"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4", "matmul"),
        ("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x1_SN", "matmul"),
        ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT64x64x16", "matmul"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>(int)", "convolution"),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution"),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "convolution"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", "convolution"),
        ("void cudnn::cnn::wgrad_alg1_engine<float, float, 128, 5, 5, 3, 3, 3, false>(int)", "convolution"),
        ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6, 6, 5, 4, 4, false, true>(int)", "convolution"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "attention"),
    ],
)
def test_float32_arithmetic_is_known_by_its_kernels(kernel: str, cause: str) -> None:
    assert [one.cause for one in named(kernel)] == [cause]


@pytest.mark.parametrize(
    "kernel",
    [
        NVJET,
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(Params)",
        "void precomputed_convolve_sgemm<__nv_bfloat16, 128, 6, 7, 3, 3, 5, 1, false>(int)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(Params)",
        "ampere_h16816gemm_128x64_ldg8_stages_64x3_tn",
    ],
)
def test_tensor_cores_half_precision_and_vectors_are_left_alone(kernel: str) -> None:
    assert named(kernel) == []


def test_a_small_share_in_float32_is_left_alone() -> None:
    ops = [Op("aten::mm", SGEMM, 4), Op("aten::mm", NVJET, 100)]
    assert found(program(ops), "no-tensor-cores") == []


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ([[128, 64, 32, 32], [128, 3, 32, 32], [64, 3, 3, 3]], "pad the 3 input channels to 4"),
        ([[128, 3, 32, 32], [64, 3, 3, 3], []], "pad the 3 input channels to 4"),
        ([[128, 64, 32, 32], [128, 64, 3, 3], []], "pad channels to multiples of 4"),
        ([], "pad channels to multiples of 4"),
    ],
    ids=["gradient", "forward", "many channels", "no shapes"],
)
def test_images_of_three_channels_are_padded_for_tf32(dims: list[list[int]], said: str) -> None:
    beside = "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32"
    slow = Op("aten::convolution", "wgrad_alg0_engine<float, 128>", 300, dims, [F32, F32, F32])
    (one,) = found(program([Op("aten::cudnn_convolution", beside), slow]), "no-tensor-cores")
    assert "TF32 is on" in one.advice
    assert said in one.advice


def test_python_scalars_are_no_float64() -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>"
    ops = [Op("aten::mul", kernel, 100, [[512], []], [F32, F64])]
    assert found(program(ops), "float64-math") == []


def test_float64_is_seen_by_types_alone() -> None:
    ops = [
        Op("aten::add", "triton_poi_fused_add_0", 50, SQUARE, [F32, F64]),
        Op("aten::mm", "some_gemm", 300, SQUARE, [F64, F64]),
    ]
    (one,) = found(program(ops), "float64-math")
    assert (one.evidence["first_op"], one.count) == ("aten::add", 12)
    (alone,) = found(program([*ops[:1], replace(ops[1], name="aten::sort", kernel="some_sort")]), "float64-math")
    assert ["TF32" in said.advice for said in (one, alone)] == [True, False]  # for products alone


def test_aligned_sizes_in_narrow_kernels_advise_strides() -> None:
    narrow = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
    (one,) = found(program([Op("aten::mm", narrow, 300, SQUARE, [BF16, BF16])]), "misaligned-gemm")
    assert "contiguous" in one.advice
    assert found(program([Op("aten::mm", SGEMM, 300, [[7, 9], [9, 11]], [F32, F32])]), "misaligned-gemm") == []


def test_token_counts_are_not_padded() -> None:
    kernel = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(Params)"
    op = Op("aten::addmm", kernel, 200, [[30522], [141, 512], [512, 30522]], [BF16] * 3)
    (one,) = found(program([op]), "misaligned-gemm")
    assert one.evidence["sizes"] == [30522]
    assert one.advice == "Pad the dimension from 30522 to 30528, a multiple of 64."


@pytest.mark.parametrize(("batch", "saved"), [(1, True), (8_192, False)])
def test_products_that_memory_bounds_are_no_quicker_when_aligned(batch: int, saved: bool) -> None:
    """Batches of a few rows by 1,001 numbers: 270 MB of operands and results take 84 us whatever the loads."""
    kernel = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align1>(Params)"
    shapes = [[batch, 8, 1001], [batch, 1001, 8]]
    found_now = found(program([Op("aten::bmm", kernel, 80, shapes, [BF16, BF16])]), "misaligned-gemm")
    assert bool(found_now) == saved


def test_dimensions_that_padding_would_multiply_stay() -> None:
    kernel = "void cutlass::Kernel2<cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align1>(Params)"
    op = Op("aten::bmm", kernel, 900, [[65_536, 27, 128], [65_536, 128, 27]], [BF16, BF16])
    assert found(program([op]), "misaligned-gemm") == []


POINTWISE = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"


def test_complex_numbers_of_doubles_are_float64_as_well() -> None:
    kind = "c10::complex<double>"
    move = Op("aten::copy_", "Memcpy DtoD (Device -> Device)", 500, SQUARE, [kind, kind])
    mixed = Op("aten::mul", POINTWISE, 100, SQUARE, [F32, F64])
    (one,) = found(program([move, mixed]), "float64-math")
    assert one.cost_ns == 6 * (250 + 50) * US


@pytest.mark.parametrize(("kind", "share"), [(F64, 0.5), (F32, 0.0)])
def test_a_fused_kernel_gains_as_much_as_it_waits_for_memory(kind: str, share: float) -> None:
    """At half the memory's rate a quarter of the gain is left, as of other work."""
    elements = SQUARE[0][0] * SQUARE[0][1]
    at_rate = 3 * 8 * elements / 4_800 / 0.87 / US  # one of two tensors may be both read and written
    inputs, types, scalars = [*SQUARE[:2], []], [kind, kind, "Scalar"], ["", "", str(elements)]
    name = "triton_per_fused_add_0"
    fused = Op(name, name, round(2 * at_rate), inputs, types, scalars=scalars)
    mixed = Op("aten::mul", POINTWISE, 500, SQUARE, [F32, F64])
    (one,) = found(program([fused, mixed]), "float64-math")
    assert one.cost_ns == pytest.approx(6 * US * (250 + share / 4 * fused.dur), rel=0.01)
