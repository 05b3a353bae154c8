"""Convolutions and norms of images with channels first, and complex transforms of real numbers, where shapes tell."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, US, Op, changed, found, program
from tests.support.spectra import ADD, C64, FIELD, MOVE, spectral
from tests.support.trace_builder import H200
from traceanalyzer import Trace
from traceanalyzer.model.finding import Confidence, Severity

LAYOUT, SPECTRUM = "layout-conversion", "full-spectrum"
IMAGE = [64, 128, 56, 56]
TO_LAST = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(int)"
CONVOLVED = "sm90_xmma_fprop_implicit_gemm_bf16bf16"
STATISTICS = "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float>(int)"
TRANSFORM = "void at::native::batch_norm_transform_input_kernel<float, float>(int)"
BACKWARD = "void at::native::batch_norm_backward_kernel<float, float>(int)"
DEPTHWISE = "void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>(int)"
CONV = Op("aten::cudnn_convolution", CONVOLVED, 300, [IMAGE, [128, 128, 3, 3]], [BF16, BF16])


def norm(kernel: str, grid: int = 132, dims: list[int] | None = None) -> Op:
    return Op("aten::native_batch_norm", kernel, 100, [dims or IMAGE, [128]], [F32, F32], grid=grid)


@pytest.mark.parametrize(
    ("kernel", "grid", "left"),
    [
        (STATISTICS, 132, 0.5),
        (STATISTICS, 198, 0.75),
        (STATISTICS, 264, None),
        (STATISTICS, 400, None),
        (STATISTICS, 33, 0.26),
        (BACKWARD, 132, 0.25),
        (BACKWARD, 33, 0.14),
        (BACKWARD, 396, 0.75),
        (TRANSFORM, 33, 0.6),
        (TRANSFORM, 400, 0.6),
    ],
)
def test_a_batch_norm_has_a_block_for_each_channel(kernel: str, grid: int, left: float | None) -> None:
    """Two blocks for each multiprocessor are as quick in any layout, four of backward."""
    said = found(program([norm(kernel, grid), CONV]), LAYOUT)
    assert [one.cost_ns for one in said] == (
        [] if left is None else [pytest.approx(6 * 100 * US * (1 - left), rel=1e-3, abs=10)]
    )
    for one in said:
        assert one.confidence is Confidence.MEDIUM
        assert "batch norms take" in one.message
        assert "with channels last, batch norms are faster" in one.message


def test_an_unknown_device_counts_as_108_sms() -> None:
    unknown = {one: value for one, value in H200.items() if one != "numSms"}
    (one,) = found(program([norm(STATISTICS, 108), CONV], device=unknown), LAYOUT)
    assert one.cost_ns == pytest.approx(6 * 100 * US * 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        pytest.param([norm(TRANSFORM, dims=[64, 128, 900]), CONV], 0, id="norms of signals"),
        pytest.param([norm(TRANSFORM, dims=[8, 64, 4, 56, 56]), CONV], 1, id="norms of volumes"),
        pytest.param(
            [Op("aten::cudnn_convolution", TO_LAST, 80, [[8, 64, 900], [64, 64, 3]], [BF16, BF16])],
            0,
            id="signals have no other layout",
        ),
        pytest.param(
            [Op("aten::cudnn_convolution", TO_LAST, 80, [[8, 64, 1, 900], [64, 64, 1, 3]], [BF16, BF16])],
            0,
            id="signals as images of one row",
        ),
    ],
)
def test_images_have_another_layout(ops: list[Op], said: int) -> None:
    assert len(found(program(ops), LAYOUT)) == said


def test_layouts_of_volumes_and_depthwise_convolutions() -> None:
    volume = Op("aten::cudnn_convolution", DEPTHWISE, 400, [[8, 64, 4, 56, 56], [64, 1, 3, 3, 3]], [BF16, BF16])
    (one,) = found(program([volume]), LAYOUT)
    assert "channels_last_3d" in one.advice
    assert one.cost_ns == 6 * 300 * US
    assert "depthwise convolutions are faster" in one.message


def test_three_kinds_of_work_are_listed() -> None:
    moved = Op("aten::cudnn_convolution", TO_LAST, 80, [IMAGE, [128, 128, 3, 3]], [BF16, BF16])
    apart = Op("aten::cudnn_convolution", DEPTHWISE, 400, [IMAGE, [128, 1, 3, 3]], [BF16, BF16])
    (one,) = found(program([moved, CONV, norm(TRANSFORM), apart]), LAYOUT)
    cost = "layout conversions, batch norms and depthwise convolutions take 580 µs a step, in aten::"
    gain = "conversions are not needed, batch norms are faster and depthwise convolutions are faster;"
    assert cost in one.message
    assert gain in one.message


def test_instance_norms_need_their_images_channels_first() -> None:
    moved = Op("aten::cudnn_convolution", TO_LAST, 80, [IMAGE, [128, 128, 3, 3]], [BF16, BF16])
    own = replace(norm(TRANSFORM), inside="aten::instance_norm")
    (one,) = found(program([moved, CONV, own]), LAYOUT)
    assert one.severity is Severity.INFO
    assert one.advice.startswith("Measure before you change the layout")


def test_spectra_of_two_sizes_are_halved() -> None:
    small = [replace(one, dims=[[512, 512]] * len(one.dims)) for one in spectral()]
    (one,) = found(program([*small, *spectral()]), SPECTRUM)
    assert one.count == 2 * 6 * 5
    assert one.cost_ns == 2 * 6 * (199 + 100 + 200) * US // 2


def test_a_conversion_to_complex_numbers_is_not_needed_at_all() -> None:
    """It belongs to the transform; another one stays half."""
    first, *rest = spectral()
    widened = Op("aten::copy_", MOVE, 60, [FIELD, FIELD, []], [C64, F32, "Scalar"], inside="aten::fft_fft2")
    whole = replace(first, name="aten::reshape", kernel="")
    shapes = {"Input Dims": [FIELD], "Input type": [F32]}
    (one,) = found(program([whole, widened, *rest], around={1: ("aten::fft_fft2", 2, shapes)}), SPECTRUM)
    assert one.cost_ns == pytest.approx(6 * (60 + (199 + 100 + 200) / 2) * US)


@pytest.mark.parametrize(("other_us", "said"), [(9_400, 1), (9_600, 0)])
def test_a_twentieth_of_the_time_on_spectra_is_worth_it(other_us: int, said: int) -> None:
    """500 us of 10,000 in each step, the real part's own kernel included."""
    other = Op("aten::add", ADD, other_us, [FIELD, FIELD], [F32, F32])
    assert len(found(program([*spectral(), other]), SPECTRUM)) == said


@pytest.mark.parametrize(
    ("kinds", "inside", "left"),
    [
        pytest.param([C64, F32], True, 0.0, id="of real numbers, for the transform"),
        pytest.param([C64, F32], False, 0.5, id="of real numbers, elsewhere"),
        pytest.param([C64, C64], True, 0.5, id="of complex numbers"),
        pytest.param([F32, C64], True, 0.5, id="to real numbers"),
    ],
)
def test_only_real_to_complex_conversions_go_entirely(kinds: list[str], inside: bool, left: float) -> None:
    copy = Op("aten::copy_", MOVE, 60, [FIELD, FIELD, []], [*kinds, "Scalar"])
    first, *rest = spectral()
    whole = replace(first, name="aten::reshape", kernel="")
    around = {int(inside): ("aten::fft_fft2", 1 + inside, {"Input Dims": [FIELD], "Input type": [F32]})}
    ops = [whole, copy, *rest] if inside else [whole, *rest, copy]
    (one,) = found(program(ops, around=around), SPECTRUM)
    assert one.cost_ns == pytest.approx(6 * (60 * (1 - left) + (199 + 100 + 200) / 2) * US)


def test_copies_of_a_spectrum_are_halved_fills_are_not() -> None:
    copy = Op("aten::copy_", "copied", 400, [FIELD, FIELD, []], [C64, C64, "Scalar"])

    def moved(name: str) -> Trace:
        def change(event: dict[str, Any]) -> None:
            if event.get("name") == "copied":
                event |= {"cat": "gpu_memcpy", "name": name}
                event["args"]["bytes"] = 8 << 20

        return changed(program([*spectral(), copy]), change)

    (one,) = found(moved("Memcpy DtoD (Device -> Device)"), SPECTRUM)
    assert one.cost_ns == pytest.approx(6 * (199 + 100 + 200 + 400) / 2 * US)
    (one,) = found(moved("Memcpy DtoH (Device -> Pinned)"), SPECTRUM)
    assert one.cost_ns == pytest.approx(6 * (199 + 100 + 200) / 2 * US)


def test_an_instance_norm_on_another_device_needs_no_images_here() -> None:
    moved = Op("aten::cudnn_convolution", TO_LAST, 80, [IMAGE, [128, 128, 3, 3]], [BF16, BF16])
    own = replace(norm(TRANSFORM), inside="aten::instance_norm")

    def second(event: dict[str, Any]) -> None:
        if event.get("name") == TRANSFORM:
            event["pid"] = event["args"]["device"] = 1

    said = found(changed(program([moved, CONV, own]), second), LAYOUT)
    advice = {one.evidence["conversions"]: one.advice for one in said}
    assert advice[6].startswith("Use ")
    assert advice[0].startswith("Measure before you change the layout")
