"""What `traceanalyzer explain` says of the name of a kernel."""

import pytest

from tests.cli.commands import call
from traceanalyzer.render.text.explain import kernel_page

TANH = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#2}::operator()() const, std::array<char*, 2ul> >(int)"
)


def rows(name: str) -> dict[str, str]:
    lines = kernel_page(name, 120).splitlines()[2:]
    return {line[:10].strip(): line[11:] for line in lines if line.strip()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
            {
                "computes": "a matrix product (GEMM)",
                "types": "bfloat16",
                "tile": "128x128 of the result per block, 32 deep, 5 stages",
                "layout": "A transposed, B as in memory (column-major)",
            },
        ),
        (
            "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
            {
                "library": "cuBLAS, its kernels for Hopper and later",
                "built for": "Hopper (H100, H200)",
                "types": "bfloat16 operands, float32 sums, bfloat16 result",
                "tile": "256x128 of the result per block, 64 deep, 4 stages, cluster 1x2",
            },
        ),
        (
            "ampere_sgemm_128x128_tn",
            {"types": "float32", "units": "ordinary FP32 units", "": "traceanalyzer explain no-tensor-cores"},
        ),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            {"library": "NCCL (on AMD: RCCL)", "algorithm": "ring", "types": "bfloat16"},
        ),
        ("triton_poi_fused_add_mul_silu_2", {"fuses": "add, mul, silu"}),
        ("triton_poi_fused__unsafe_view_gelu_mul_0", {"fuses": "_unsafe_view, gelu, mul"}),
        ("triton_per_fused__to_copy_add_native_layer_norm_12", {"fuses": "_to_copy, add, native_layer_norm"}),
        ("triton_poi_fused_mul__to_copy_zork_3", {"fuses": "mul, _to_copy, zork"}),
        (TANH, {"library": "PyTorch", "computes": "one elementwise op: limited by memory bandwidth"}),
        (
            "void pytorch_flash::flash_bwd_kernel<cutlass::half_t>()",
            {"library": "FlashAttention", "computes": "attention", "direction": "backward", "types": "float16"},
        ),
    ],
)
def test_a_name_says_what_the_kernel_is(name: str, expected: dict[str, str]) -> None:
    said = rows(name)
    assert {label: said.get(label) for label in expected} == expected


@pytest.mark.parametrize("name", ["misaligned-gemm", "gemm", "my_function", ""])
def test_other_names_have_no_page(name: str) -> None:
    assert kernel_page(name) == ""


def test_the_command_explains_kernels() -> None:
    assert "FlashAttention" in call("explain", "flash_fwd_kernel").stdout
