"""Fourier transforms of unfavourable lengths, by their inputs and by the names of their kernels."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import US, Op, found, program
from traceanalyzer.model.finding import Confidence

COMPLEX = "c10::complex<float>"
PASSES = "void multi_bluestein_fft<128u, EPT<16u>, 32u>(kernel_arguments_t<unsigned int>)"
ONE = "void regular_bluestein_fft<2048u, EPT<8u>, 1u>(kernel_arguments_t<unsigned int>)"
GOOD = "void vector_fft<8192u, EPT<32u>, 1u>(kernel_arguments_t<unsigned int>)"
TYPES = ("float", "ScalarList", "Scalar", "Scalar")


def transform(length: int, dur: int, kernel: str = PASSES, signals: int = 4096) -> Op:
    """A real transform of so many signals, `dur` in us."""
    dims, scalars = ([signals, length], [], [], []), ("", "[1]", "0", "True")
    return Op("aten::_fft_r2c", kernel, dur, dims, TYPES, scalars=scalars, inside="aten::fft_rfft")


OTHER = Op("aten::mm", "sgemm", 2_000)


def test_a_prime_length_is_padded_to_the_next_good_one() -> None:
    (one,) = found(program([transform(8191, 3_300), OTHER]), "fft-length")
    assert "8,191 is prime" in one.message
    assert "Pad 8,191 to 8,192" in one.advice
    assert one.confidence is Confidence.HIGH
    assert (one.evidence["lengths"], one.evidence["good_lengths"]) == ([8191], [8192])
    assert one.cost_ns == pytest.approx(6 * (3_300 - 3_300 / 8) * US, rel=0.01)
    assert one.saving is not None


def test_of_many_lengths_the_three_that_take_most_are_named() -> None:
    ops = [transform(length, dur) for length, dur in ((8_191, 700), (8_179, 900), (8_147, 600), (8_171, 800))]
    (one,) = found(program([*ops, OTHER]), "fft-length")
    assert one.evidence["lengths"] == [8_179, 8_171, 8_191]
    assert one.count == 24


def test_both_lengths_of_a_plane_are_padded() -> None:
    dims, scalars = ([64, 263, 521], [], [], []), ("", "[1, 2]", "0", "True")
    op = Op("aten::_fft_r2c", PASSES, 3_300, dims, TYPES, scalars=scalars)
    (one,) = found(program([op, OTHER]), "fft-length")
    assert one.evidence["lengths"] == [263, 521]
    assert "263 is prime, the transform's length 521 is prime" in one.message
    assert one.advice.startswith("Pad 263 to 270, 521 to 540")


def test_an_inverse_transform_says_its_length_itself() -> None:
    dims, scalars = ([4096, 4096], [], [], []), ("", "[1]", "2", "8191")
    op = Op("aten::_fft_c2r", PASSES, 3_300, dims, (COMPLEX, *TYPES[1:]), scalars=scalars)
    (one,) = found(program([op, OTHER]), "fft-length")
    assert one.evidence["lengths"] == [8191]


@pytest.mark.parametrize(
    "op",
    [
        transform(8192, 3_300, GOOD),  # slow, but not for its length
        transform(8448, 200, GOOD),  # a factor 11, for which the library has a kernel
        transform(509, 9, ONE, signals=4),  # too short to matter
        Op("aten::mm", "sgemm", 3_300, ([4096, 8191], [8191, 64]), ("float", "float")),
    ],
)
def test_fast_lengths_are_not_reported(op: Op) -> None:
    assert found(program([op, OTHER]), "fft-length") == []


@pytest.mark.parametrize(("kernel", "times"), [(PASSES, 8), (ONE, 2)])
def test_without_shapes_the_kernels_name_tells(kernel: str, times: int) -> None:
    (one,) = found(program([Op("aten::_fft_c2c", kernel, 1_600), OTHER]), "fft-length")
    assert one.confidence is Confidence.MEDIUM
    assert one.cost_ns == 6 * (1_600 - 1_600 // times) * US
    assert "Bluestein's algorithm" in one.message
    assert "Pad to a length without prime factors above 7" in one.advice


def test_the_copy_of_an_inverse_transform_is_unavoidable() -> None:
    copy = Op("aten::copy_", "void direct_copy_kernel_cuda()", 500, inside="aten::fft_irfft")
    assert [one.by for one in found(program([copy, OTHER]), "data-movement")] == ["aten::fft_irfft"]
    torchs = Op("aten::copy_", "void direct_copy_kernel_cuda()", 500, inside="aten::_fft_c2r")
    assert found(program([torchs, OTHER]), "data-movement") == []


def test_shifts_to_and_fro_are_one_finding() -> None:
    """Whoever keeps the shifted order needs none of them: fftshift, ifftshift, and the gradient of either."""
    kernel = "void at::native::roll_cuda_kernel<c10::complex<float> >(int)"
    ops = [
        Op("aten::roll", kernel, 500, inside=f"aten::fft_{name}", dims=[[64, 64]], types=["float"])
        for name in ("fftshift", "ifftshift")
    ]
    (one,) = found(program([*ops, OTHER]), "data-movement")
    assert (one.by, one.count) == ("aten::roll", 12)


def test_a_square_counts_once_for_the_length_of_both_sides() -> None:
    """3.3 ms of 521 x 521, and 4 ms of 8,191: with each side told apart, 521 would be first."""
    sides = replace(transform(521, 3_300), dims=[[64, 521, 521], [], [], []], scalars=["", "[1, 2]", "0", "True"])
    (one,) = found(program([sides, transform(8191, 4_000), OTHER]), "fft-length")
    assert (one.evidence["lengths"], one.evidence["good_lengths"]) == ([8191, 521], [8192, 540])


def test_other_kernels_of_the_call_belong_to_it() -> None:
    more = [("void preprocess_kernel(float)", 400)]
    (one,) = found(program([replace(transform(8191, 3_200), more=more), OTHER]), "fft-length")
    assert (one.count, one.cost_ns) == (12, 6 * (3_600 - 3_600 // 8) * US)
