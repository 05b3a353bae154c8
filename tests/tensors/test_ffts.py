"""Lengths of Fourier transforms, their factors, and what transforms need."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.op_calls import COMPLEX, transform
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.tensors.ops.ffts import factors, fft_cost, fft_lengths, is_awkward, next_length
from traceanalyzer.tensors.signatures import Signature


@given(st.integers(1, 200_000))
def test_the_next_length_is_even_good_and_the_nearest(length: int) -> None:
    good = next_length(length)
    assert good % 2 == 0
    assert good >= length
    assert not is_awkward(good)
    assert all(is_awkward(one) for one in range(length + length % 2, good, 2))
    assert math.prod(factors(length)) == length


def test_awkward_lengths_have_a_prime_factor_above_seven() -> None:
    assert [one for one in (0, 1, 7, 11, 400, 441, 1022, 8191, 8192) if is_awkward(one)] == [11, 1022, 8191]
    assert factors(1022) == (2, 7, 73)
    assert [next_length(one) for one in (1, 11, 4097, 8191, 16_001)] == [2, 12, 4116, 8192, 16_128]


CASES = [
    (transform("_fft_r2c", [4, 8191], "float", "[1]"), (8191,), "real fft", 2 * 4 * 8191 * 4),
    (transform("_fft_c2r", [4, 4096], COMPLEX, "[1]", "8191"), (8191,), "real fft", 2 * 4 * 8191 * 4),
    (transform("_fft_c2c", [16_384, 4], COMPLEX, "[0]"), (16_384,), "long fft", 2 * 4 * 16_384 * 8),
    (transform("_fft_c2c", [2, 30, 22], COMPLEX, "[1, 2]"), (30, 22), "fft", 2 * 2 * 2 * 30 * 22 * 8),
    (transform("_fft_c2r", [2, 30, 17], COMPLEX, "[1, 2]", "32"), (30, 32), "real fft", 2**3 * 30 * 32 * 4),
]


@pytest.mark.parametrize(("op", "lengths", "kind", "moved"), CASES)
def test_each_dimension_of_a_transform_is_a_pass_over_memory(
    op: Signature, lengths: tuple[int, ...], kind: str, moved: int
) -> None:
    work = bound_of(op)
    assert work is not None
    assert fft_lengths(op) == lengths
    assert (work.kind, work.bytes, work.arithmetic) == (kind, moved, "fp32")


def test_operations_are_those_of_the_fast_transform() -> None:
    assert fft_cost(transform("_fft_c2c", [3, 1024], COMPLEX, "[1]")).flops == 5 * 3 * 1024 * 10
    double = transform("_fft_r2c", [3, 1024], "double", "[1]")
    assert (fft_cost(double).flops, fft_cost(double).arithmetic) == (5 * 3 * 1024 * 10 // 2, "fp64")


@pytest.mark.parametrize(
    "op",
    [
        transform("_fft_r2c", [4, 8191], "float", ""),
        transform("_fft_r2c", [4, 8191], "float", "[5]"),
        transform("_fft_r2c", [4, 0], "float", "[1]"),
        transform("_fft_c2r", [4, 4096], COMPLEX, "[1]", "many"),
        transform("_fft_c2r", [4, 4096], COMPLEX, "[]", "8191"),
        transform("_fft_r2c", [4, 8191], "int", "[1]"),
        transform("mm", [4, 8191], "float", "[1]"),
    ],
)
def test_what_does_not_say_how_long_it_is_has_no_bound(op: Signature) -> None:
    assert bound_of(op) is None
    if op.name != "aten::mm" and op.types[0] != "int":
        assert fft_lengths(op) == ()


@pytest.mark.parametrize(
    ("shape", "along", "kind"),
    [
        ([4, 8_192], "[1]", "fft"),
        ([4, 8_193], "[1]", "long fft"),
        ([8_193, 30], "[0, 1]", "long fft"),  # one of its passes
        ([8_192, 8_192], "[0, 1]", "fft"),
    ],
)
def test_transforms_are_long_above_8192_in_any_dimension(shape: list[int], along: str, kind: str) -> None:
    assert fft_cost(transform("_fft_c2c", shape, COMPLEX, along)).kind == kind
