"""Shapes of results that name, shapes and numbers tell, where a mistake would exchange or lose a dimension."""

from __future__ import annotations

import pytest

from tests.roofline.test_made import op
from tests.roofline.test_op_families import signature
from traceanalyzer.roofline.results import made_of, made_of_nothing, product_of, result_of
from traceanalyzer.tensors.signatures import Signature

IMAGE = [2, 3, 10, 20]


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("pad", IMAGE, "[1, 1, 2, 2]", "constant", ""), (2, 3, 14, 22)),
        (op("pad", IMAGE, "[1, 2, 10, 20]"), (2, 3, 40, 23)),  # the last dimension first
        (op("constant_pad_nd", IMAGE, "[0, 0, 4, 0]", "0"), (2, 3, 14, 20)),
        (op("constant_pad_nd", IMAGE, "[-1, -2]", "0"), (2, 3, 10, 17)),
        (op("constant_pad_nd", [4], "[1, 1, 2, 2]", "0"), None),
        (op("slice", IMAGE, "-2", "2", "9223372036854775807", "3"), (2, 3, 3, 20)),
        (op("slice", IMAGE, "3", "", "-5", "1"), (2, 3, 10, 15)),
        (op("unsqueeze", IMAGE, "-2"), (2, 3, 10, 1, 20)),
        (op("unsqueeze", IMAGE, "0"), (1, 2, 3, 10, 20)),
        (op("select", IMAGE, "0", "1"), (3, 10, 20)),
        (op("expand", [3, 1], "[5, -1, 4]"), (5, 3, 4)),
        (op("add", [5, 1, 3], [4, 1], "1"), (5, 4, 3)),
        (op("add", [5, 2], [5, 3], "1"), None),
        (op("where", [4, 1], [1, 5], [1]), (4, 5)),
        (op("reshape", IMAGE, "[6, -1]"), (6, 200)),
        (op("reshape", IMAGE, "[-1]"), (1_200,)),
        (op("repeat", [4], "[3, 1]"), None),
        (op("min", [4, 5]), None),  # over all, or two results
        (op("numpy_T", [2, 3, 4]), (4, 3, 2)),
    ],
)
def test_what_is_made_of_tensors(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert made_of(call) == shape
    assert result_of(call) == shape


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("linear", [4, 7, 5], [6, 5], [6]), (4, 7, 6)),
        (op("mm", [4, 5], [5, 6]), (4, 6)),
        (op("mm", [4, 5], [4, 6]), None),
        (op("addmm", [6], [4, 5], [5, 6], "1", "1"), (4, 6)),
        (op("baddbmm", [9, 4, 6], [9, 4, 5], [9, 5, 6], "1", "1"), (9, 4, 6)),
        (op("bmm", [9, 4, 5], [9, 5, 6]), (9, 4, 6)),
        (op("matmul", [4, 5], [5]), None),
        (op("matmul", [5], [5, 6]), None),
        (op("conv2d", [4, 5], [5, 6]), None),
        (op("mm", [4, 5]), None),
    ],
)
def test_a_product_has_the_rows_of_the_one_and_the_columns_of_the_other(
    call: Signature, shape: tuple[int, ...] | None
) -> None:
    assert product_of(call) == shape


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("repeat_interleave", [2, 3], "4", "1", ""), (2, 12)),
        (op("repeat_interleave", [2, 3], "4", "-2", ""), (8, 3)),
        (op("repeat_interleave", [2, 3], "4", "", ""), (24,)),
        (op("repeat_interleave", [2, 3], [2], "0", ""), None),  # each row has a number of its own
        (op("repeat_interleave", [3], ""), None),
        (op("lerp", [4, 1], [5], "0.5"), (4, 5)),
        (op("conv2d", IMAGE, [8, 3, 3]), None),
    ],
)
def test_what_layers_make(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert result_of(call) == shape


@pytest.mark.parametrize(
    ("name", "inputs", "scalars", "shape"),
    [
        ("arange", 5, ("7",), (7,)),
        ("arange", 6, ("2", "9"), (7,)),
        ("arange", 7, ("1", "9", "3"), (3,)),
        ("arange", 7, ("9", "1", "-3"), (3,)),
        ("arange", 7, ("1", "9", "0"), None),
        ("linspace", 7, ("0", "1", "5"), (5,)),
        ("fft_fftfreq", 6, ("8", "1"), (8,)),
        ("fft_rfftfreq", 6, ("9", "1"), (5,)),
        ("hann_window", 5, ("400",), (400,)),
        ("zeros", 5, ("[2, 3]",), (2, 3)),
        ("rand", 5, ("[2, 3]",), None),
    ],
)
def test_what_is_made_of_numbers(
    name: str, inputs: int, scalars: tuple[str, ...], shape: tuple[int, ...] | None
) -> None:
    call = signature(name, [[]] * inputs, ["Scalar"] * inputs, *scalars, *[""] * (inputs - len(scalars)))
    assert made_of_nothing(call) == shape
