"""Float32 products without tensor cores: what each device is told to use instead, and what memory allows."""

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, SGEMM, Op, found, program
from tests.support.trace_builder import H200
from traceanalyzer.model.finding import Confidence

SLUG = "no-tensor-cores"
V100 = {**H200, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7}
UNKNOWN = {**H200, "name": "Graphics Card 9000"}
SQUARE = [[4_096, 4_096]] * 2
TF32_CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16"
FP32_CONV = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)"


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
    assert ("not in the table of peaks" in one.message) is (device is UNKNOWN)


@pytest.mark.parametrize("before", [[], [Op("aten::mm", NVJET, 50, SQUARE, [BF16] * 2)]], ids=["alone", "second"])
def test_a_product_takes_as_long_as_its_bytes_in_any_arithmetic(before: list[Op]) -> None:
    """Eight columns by eight rows make 17 GB, which take 5.5 ms at the rate that products reach."""
    size = 65_536
    op = Op("aten::mm", SGEMM, 6_000, [[size, 8], [8, size]], [F32] * 2)
    (one,) = found(program([*before, op]), SLUG)
    memory_ns = (2 * size * 8 + size**2) * 4 / 4_800 / 0.65
    assert one.cost_ns == pytest.approx(6 * (6_000_000 - memory_ns), rel=0.001)


@pytest.mark.parametrize("kernels_us", [(6_000,), (4_000, 2_000), (1_000, 3_000, 2_000)])
def test_the_kernels_of_a_gradient_share_the_bytes_of_their_op(kernels_us: tuple[int, ...]) -> None:
    """Of images and of weights of 1 x 1: 6 ms a step, of which 1.05 ms for 3.3 GB, however many kernels there are."""
    images = [256, 64, 112, 112]
    dims = [images, images, [64, 64, 1, 1], [0], [], [], [], [], [], [], []]
    scalars = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    first, *others = kernels_us
    more = [(FP32_CONV, us) for us in others]
    op = Op("aten::convolution_backward", FP32_CONV, first, dims, [F32] * 3, scalars=scalars, more=more)
    (one,) = found(program([op]), SLUG)
    assert one.evidence["kernels"] == {"implicit_convolve_sgemm": 6 * 6_000_000}
    memory_ns = (4 * 256 * 64 * 112**2 + 2 * 64**2) * 4 / 4_800 / 0.65
    assert one.cost_ns == pytest.approx(6 * (6_000_000 - memory_ns), rel=1e-4)
    assert one.evidence["speedup"] == round(6_000_000 / memory_ns, 1) == 5.7


@pytest.mark.parametrize(
    ("channels", "advice"),
    [
        (3, "pad the 3 input channels to 4,"),
        (4, "pad channels to multiples of 4"),
        (5, "pad the 5 input channels to 8,"),
        (8, "pad channels to multiples of 4"),
    ],
)
def test_convolutions_without_tf32_need_other_channels(channels: int, advice: str) -> None:
    def conv(kernel: str, inner: int) -> Op:
        dims = [[8, inner, 224, 224], [64, inner, 7, 7], [], [], [], [], [], [], []]
        return Op("aten::cudnn_convolution", kernel, 900, dims, [F32] * 2)

    (one,) = found(program([conv(FP32_CONV, channels), conv(TF32_CONV, 64)]), SLUG)
    assert one.cause == "convolution"
    assert advice in one.advice
    (alone,) = found(program([conv(FP32_CONV, channels)]), SLUG)
    assert alone.advice.startswith("torch.backends.cudnn.allow_tf32 = True")
