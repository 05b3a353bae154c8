"""Names that two recordings share."""

from __future__ import annotations

import pytest

from traceanalyzer.comparison.canonical_names import canonical_kernel, family_of, plain_name, region_name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_tst_64x8_64x16_1x4_v_badd_NNT"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_17"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>",
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        ),
        (
            "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
            "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x4_nn",
        ),
    ],
)
def test_tiles_architectures_and_numbers_go(one: str, other: str) -> None:
    assert canonical_kernel(one) == canonical_kernel(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"),
        ("triton_poi_fused_add_mul_0", "triton_red_fused_add_mul_0"),
        ("triton_poi_fused_add_0", "triton_poi_fused_mul_0"),
    ],
)
def test_types_and_ops_stay(one: str, other: str) -> None:
    assert canonical_kernel(one) != canonical_kernel(other)


def test_what_differs_from_run_to_run_goes() -> None:
    assert plain_name("hipLaunchKernel") == "cudaLaunchKernel"
    assert plain_name("<listcomp> at 0x7f12ab34") == "<listcomp> at 0x"
    assert plain_name("train.py(12): step") == "train.py: step"
    assert plain_name("ProfilerStep#12") == "ProfilerStep#"
    assert plain_name("Torch-Compiled Region: 0/3") == "Torch-Compiled Region"
    assert plain_name("aten::_local_scalar_dense") == "aten::_local_scalar_dense"
    assert region_name("nn.Module: Linear_3") == "nn.Module: Linear"


@pytest.mark.parametrize(
    ("kernel", "kind", "family"),
    [
        ("nvjet_tst_NNT", "compute", "GEMM"),
        ("void flash_fwd_kernel<...>", "compute", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32", "communication", "collective"),
        ("Memcpy DtoD (Device -> Device)", "copy_d2d", "copy"),
        ("triton_poi_fused_add", "compute", "pointwise"),
        ("my_kernel", "compute", "other"),
    ],
)
def test_families(kernel: str, kind: str, family: str) -> None:
    assert family_of(kernel, kind) == family
