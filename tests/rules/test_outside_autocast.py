"""Float32 products beside half-precision ones."""

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program
from tests.support.trace_builder import H200

SHAPES = [[4096, 2048], [2048, 2048]]
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off"
HALF = Op("aten::mm", NVJET, 100, SHAPES, [BF16, BF16])


def full(dur: int) -> Op:
    return Op("aten::addmm", TF32, dur, SHAPES, [F32, F32])


def test_tf32_beside_bfloat16_is_found_with_its_op() -> None:
    (one,) = found(program([HALF, HALF, full(1_000)]), "outside-autocast")
    assert one.evidence["gpu_share"] == pytest.approx(1_000 / 1_200)
    assert list(one.evidence["ops"]) == ["aten::addmm"]
    assert 0.4 < one.cost_share < 0.5  # about half of its time


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x5_nn_align8>(Params)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV",
        "nvjet_sm90_hsh_128x128_64x6_2x1_v_bz_TNN",
        "flash_fwd_kernel",
    ],
)
def test_half_precision_has_many_names(kernel: str) -> None:
    other = Op("aten::mm", kernel, 100, SHAPES, [BF16, BF16])
    assert len(found(program([other, full(100)]), "outside-autocast")) == 1


def test_a_program_in_tf32_alone_means_it() -> None:
    assert found(program([full(100), full(50)]), "outside-autocast") == []


def test_a_small_head_in_float32_is_left_alone() -> None:
    assert found(program([HALF] * 30 + [full(100)]), "outside-autocast") == []


def test_an_unknown_device_is_taken_to_gain_half() -> None:
    device = {**H200, "name": "Graphics Card 9000"}
    (one,) = found(program([HALF, full(100)], device=device), "outside-autocast")
    assert one.cost_ns == pytest.approx(6 * 50_000, rel=0.01)


@pytest.mark.parametrize(("tf32_us", "said"), [(900, True), (901, False)])
def test_a_tenth_of_half_products_shows_autocast(tf32_us: int, said: bool) -> None:
    """Whatever else the program does."""
    other = Op("aten::relu", "void relu(float*)", 2_000, [[64, 64]], [F32])
    assert bool(found(program([HALF, full(tf32_us), other]), "outside-autocast")) is said


def test_convolutions_in_tf32_are_products_too() -> None:
    kernel = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16"
    conv = Op("aten::cudnn_convolution", kernel, 300, [[8, 64, 56, 56], [64, 64, 3, 3]], [F32, F32])
    (one,) = found(program([HALF, conv]), "outside-autocast")
    assert one.evidence["gpu_share"] == 0.75
