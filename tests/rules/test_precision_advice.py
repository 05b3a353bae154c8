"""Float32 products without tensor cores: what each device is told to use instead, and what memory allows."""

from __future__ import annotations

import pytest

from tests.builder import H200
from tests.rules.kernel_programs import F32, SGEMM, Op, found, program
from traceanalyzer.model.finding import Confidence

SLUG = "no-tensor-cores"
V100 = {**H200, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7}
UNKNOWN = {**H200, "name": "Graphics Card 9000"}
SQUARE = [[4_096, 4_096]] * 2
TF32_CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16"
FP32_CONV = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)"
ATTENTION = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"


@pytest.mark.parametrize(
    ("device", "target", "advice", "confidence"),
    [
        (H200, "tf32", "torch.set_float32_matmul_precision('high')", Confidence.HIGH),
        (V100, "fp16", "This device has no TF32: use torch.autocast with float16", Confidence.HIGH),
        (UNKNOWN, "", "Use torch.autocast if the device has matrix units", Confidence.MEDIUM),
    ],
)
def test_each_device_is_told_what_it_has(
    device: dict[str, object], target: str, advice: str, confidence: Confidence
) -> None:
    (one,) = found(program([Op("aten::mm", SGEMM, 3_000, SQUARE, [F32] * 2)], device=device), SLUG)
    assert (one.cause, one.evidence["target"], one.confidence) == ("matmul", target, confidence)
    assert one.advice.startswith(advice)


def test_attention_is_told_to_use_bfloat16_whatever_else_the_device_has() -> None:
    heads = [[4, 16, 1_024, 64]] * 3
    (one,) = found(
        program([Op("aten::_efficient_attention_forward", ATTENTION, 500, heads, [F32] * 3)]), SLUG
    )
    assert (one.cause, one.evidence["target"]) == ("attention", "bf16")
    assert one.advice.startswith("Run attention in bfloat16")


def test_a_product_takes_as_long_as_its_bytes_in_any_arithmetic() -> None:
    """Eight columns by eight rows make 17 GB, which take 5.5 ms at the rate that products reach."""
    size = 65_536
    op = Op("aten::mm", SGEMM, 6_000, [[size, 8], [8, size]], [F32] * 2)
    (one,) = found(program([op]), SLUG)
    memory_ns = (2 * size * 8 + size**2) * 4 / 4_800 / 0.65
    assert one.cost_ns == pytest.approx(6 * (6_000_000 - memory_ns), rel=0.001)


@pytest.mark.parametrize(
    ("channels", "advice"),
    [
        (3, "pad the 3 input channels to 4,"),
        (4, "pad channels to multiples of 4"),
        (5, "pad the 5 input channels to 8,"),
        (8, "pad channels to multiples of 4"),
    ],
)
def test_convolutions_that_are_left_out_of_tf32_need_other_channels(channels: int, advice: str) -> None:
    def conv(kernel: str, inner: int) -> Op:
        dims = [[8, inner, 224, 224], [64, inner, 7, 7], [], [], [], [], [], [], []]
        return Op("aten::cudnn_convolution", kernel, 900, dims, [F32] * 2)

    (one,) = found(program([conv(FP32_CONV, channels), conv(TF32_CONV, 64)]), SLUG)
    assert one.cause == "convolution"
    assert advice in one.advice
    (alone,) = found(program([conv(FP32_CONV, channels)]), SLUG)
    assert alone.advice.startswith("torch.backends.cudnn.allow_tf32 = True")


def test_a_filter_of_one_channel_leaves_tensor_cores_nothing_to_multiply() -> None:
    dims = [[8, 64, 56, 56], [64, 1, 3, 3], [], [], [], [], [], [], []]
    assert found(program([Op("aten::cudnn_convolution", FP32_CONV, 900, dims, [F32] * 2)]), SLUG) == []
