"""What rules about single kernels advise, by what the kernels are and by what runs beside them."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, SGEMM, Op, found, program
from tests.support.trace_builder import H200
from traceanalyzer.model.finding import Confidence

SCAN = "void at::native::tensor_kernel_scan_innermost_dim<float>(int)"
GAMMA = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>(long)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, NormOps> >(ReduceOp)"
IMAGES = [[16, 64, 96, 96]]
OTHER = Op("aten::mm", NVJET, 100)


# -- low-occupancy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "kernel", "advice", "confidence"),
    [
        ("aten::cumsum", SCAN, "Give the op more rows at once", Confidence.HIGH),
        ("aten::mm", NVJET, "Let more blocks share the product", Confidence.MEDIUM),
        ("aten::linalg_vector_norm", SUM, "Take all norms with one call", Confidence.HIGH),
        ("aten::cudnn_batch_norm", "bn_fw_tr_1C11_kernel_NCHW<int>", "Use channels_last", Confidence.HIGH),
        ("aten::native_layer_norm_backward", GAMMA, "Put the norm under", Confidence.HIGH),
    ],
)
def test_what_to_do_about_few_blocks_depends_on_the_op(
    op: str, kernel: str, advice: str, confidence: Confidence
) -> None:
    (one,) = found(program([Op(op, kernel, 900, grid=4), OTHER]), "low-occupancy")
    assert advice in one.advice
    assert one.confidence is confidence
    assert one.by == op


# -- layout-conversion ---------------------------------------------------------------------------------------

CONVERT = Op("aten::_convolution", "void nchwToNhwcKernel<float>(int)", 40, IMAGES, [F32])
CONV = Op("aten::cudnn_convolution", "sm90_xmma_fprop_implicit_gemm_bf16_nhwc", 200, IMAGES, [BF16])
NORM = Op("aten::batch_norm", "void at::native::batch_norm_transform_input_kernel<float>(int)", 90, IMAGES, [F32])
DEPTHWISE = Op(
    "aten::_conv_depthwise2d",
    "void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16>(int)",
    60,
    IMAGES,
    [BF16],
)
SIGNAL = replace(DEPTHWISE, name="aten::conv1d", dims=())
BACKWARD = "autograd::engine::evaluate_function: ConvolutionBackward0"


@pytest.mark.parametrize(
    ("ops", "parts", "saved_us"),
    [
        pytest.param([CONVERT, CONV], ["layout conversions"], 40, id="conversions go"),
        pytest.param([NORM, CONV], ["batch norms"], 90 * 0.4, id="a norm beside convolutions"),
        pytest.param([replace(NORM, dims=()), CONV], ["batch norms"], 90 * 0.4, id="of unknown shape"),
        pytest.param([NORM, OTHER], [], 0, id="a norm without convolutions"),
        pytest.param([replace(NORM, dims=[[512, 64]]), CONV], [], 0, id="a norm of rows"),
        pytest.param([DEPTHWISE], ["depthwise convolutions"], 60 * 0.75, id="depthwise in half precision"),
        pytest.param(
            [replace(DEPTHWISE, kernel=DEPTHWISE.kernel.replace("c10::BFloat16", "float"))], [], 0, id="in full"
        ),
        pytest.param([SIGNAL, replace(SIGNAL, name=BACKWARD)], [], 0, id="a signal has no channels last"),
        pytest.param(
            [DEPTHWISE, SIGNAL, replace(SIGNAL, name=BACKWARD)],
            ["depthwise convolutions"],
            2 * 60 * 0.75,
            id="backward of a signal or of an image",
        ),
        pytest.param(
            [CONVERT, NORM, DEPTHWISE, CONV],
            ["batch norms", "depthwise convolutions", "layout conversions"],
            40 + 90 * 0.4 + 60 * 0.75,
            id="all of them, most time first",
        ),
    ],
)
def test_what_channels_first_costs_is_told_by_its_parts(ops: list[Op], parts: list[str], saved_us: float) -> None:
    said = found(program(ops), "layout-conversion")
    assert [list(one.evidence["parts"]) for one in said] == [parts] * bool(parts)
    assert [one.cost_ns for one in said] == pytest.approx([6e3 * saved_us] * bool(parts), rel=1e-3)
    for one in said:
        assert ("conversions are not needed" in one.message) is ("layout conversions" in parts)
        assert ("batch norms are faster" in one.message) is ("batch norms" in parts)
        assert (one.confidence is Confidence.HIGH) is ("layout conversions" in parts)


# -- misaligned-gemm -----------------------------------------------------------------------------------------

ODD = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align1>(Params)"
NARROW = ODD.replace("align1", "align2")


@pytest.mark.parametrize(("kernel", "times"), [(ODD, 7.0), (NARROW, 3.5)])
def test_without_shapes_the_width_of_loads_tells_what_is_gained(kernel: str, times: float) -> None:
    (one,) = found(program([Op("aten::mm", kernel, 700)]), "misaligned-gemm")
    assert one.cost_ns == pytest.approx(6e3 * 700 * (1 - 1 / times), rel=0.01)
    assert one.confidence is Confidence.MEDIUM
    assert "Pad the dimension that is not a multiple of 8" in one.advice


def test_narrow_loads_of_other_ops_are_no_products() -> None:
    assert found(program([Op("aten::_efficient_attention_forward", ODD, 700)]), "misaligned-gemm") == []


@pytest.mark.parametrize(("major", "minor", "said"), [(7, 5, False), (8, 0, True), (9, 0, True)])
def test_kernels_for_turing_are_at_home_there(major: int, minor: int, said: bool) -> None:
    device = {**H200, "computeMajor": major, "computeMinor": minor, "name": "Some GPU"}
    kernel = "void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_128x128_tn_align1>(Params)"
    assert bool(found(program([Op("aten::mm", kernel, 300)], device=device), "misaligned-gemm")) is said


def test_the_three_odd_sizes_that_take_most_are_to_be_padded() -> None:
    sizes = {1_001: 300, 2_001: 500, 3_001: 400, 501: 200}
    ops = [Op("aten::mm", ODD, dur, [[4096, 64], [64, n]], [BF16, BF16]) for n, dur in sizes.items()]
    (one,) = found(program(ops), "misaligned-gemm")
    assert one.evidence["sizes"] == [2_001, 3_001, 1_001]
    assert one.advice == "Pad the dimension from 2001 to 2048, 3001 to 3008, 1001 to 1024, multiples of 64."
    assert "; 2,001, 3,001, 1,001 are not multiples of 8" in one.message


# -- no-tensor-cores -----------------------------------------------------------------------------------------


def test_filters_of_one_channel_leave_tensor_cores_nothing_to_do() -> None:
    kernel = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>(int)"
    dims = [[16, 64, 96, 96], [64, 1, 3, 3]]
    conv = Op("aten::cudnn_convolution", kernel, 300, dims, [F32, F32])
    assert found(program([conv]), "no-tensor-cores") == []
    (one,) = found(program([replace(conv, dims=[dims[0], [64, 2, 3, 3]])]), "no-tensor-cores")
    assert one.cause == "convolution"
    (product,) = found(program([Op("aten::mm", SGEMM, 300, [[64, 512], [512, 1, 64]], [F32, F32])]), "no-tensor-cores")
    assert product.cause == "matmul"


def test_attention_is_told_of_half_precision_not_of_tf32() -> None:
    kernel = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)"
    (one,) = found(program([Op("aten::_efficient_attention_forward", kernel, 300), OTHER]), "no-tensor-cores")
    assert one.evidence["target"] == "bf16"
    assert one.advice.startswith("Run attention in bfloat16")
    assert "bfloat16 is about" in one.message


# -- float64-math --------------------------------------------------------------------------------------------

FIELD = [[2048, 2048]] * 2
LEAK = Op("aten::add", "void at::native::vectorized_elementwise_kernel<4>(int)", 50, FIELD, [F32, F64])
DOUBLE = Op("aten::mm", "some_gemm", 300, FIELD, [F64, F64])


def test_the_op_that_mixes_types_is_named_with_its_shapes() -> None:
    (one,) = found(program([DOUBLE, LEAK]), "float64-math")
    assert one.message.endswith("; float64 enters with aten::add of 2048x2048, 2048x2048")
    assert "before aten::add, the first op that reads it" in one.advice
    assert one.confidence is Confidence.HIGH
    (alone,) = found(program([DOUBLE, replace(LEAK, types=[F32, F32])]), "float64-math")
    assert "before the first op that reads it" in alone.advice
    assert alone.confidence is Confidence.MEDIUM


def test_an_optimizer_s_lists_are_not_the_model_s_arithmetic() -> None:
    lists = Op("aten::_foreach_add_", "multi_tensor_apply_kernel<double, std::plus<double>>", 500, FIELD, [F64] * 2)
    (one,), (other,) = (found(program([LEAK, DOUBLE, *more]), "float64-math") for more in ([], [lists]))
    assert (one.count, one.cost_ns) == (other.count, other.cost_ns)


def test_tf32_is_not_promised_without_tf32_elsewhere() -> None:
    (one,), (other,) = (
        found(program([LEAK, DOUBLE, Op("aten::mm", kernel, 100)]), "float64-math") for kernel in (NVJET, SGEMM)
    )
    assert "Let float32 products use TF32" in one.advice
    assert "TF32" not in other.advice
    assert one.cost_ns > other.cost_ns
