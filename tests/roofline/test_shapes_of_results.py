"""Shapes of results by the arguments that are easily taken for one another, and where there is no answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roofline.test_made import op
from tests.roofline.test_op_families import F32, LONG, signature
from traceanalyzer.roofline.results import made_of, made_of_nothing, product_of, result_of
from traceanalyzer.tensors.signatures import Signature

IMAGE = [2, 3, 10, 20]


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("transpose", IMAGE, "1", "-1"), (2, 20, 10, 3)),
        (op("transpose", IMAGE, "0", "2"), (10, 3, 2, 20)),
        (op("permute", IMAGE, "[0, 2, 3, 1]"), (2, 10, 20, 3)),
        (op("permute", IMAGE, "[-1, 0, 1, 2]"), (20, 2, 3, 10)),
        (op("outer", [4], [7]), (4, 7)),
        (op("t", [4, 7]), (7, 4)),
        (op("repeat", [4, 1], "[3, 5]"), (12, 5)),
        (op("select", IMAGE, "-1", "7"), (2, 3, 10)),
        (op("select", IMAGE, "1", "0"), (2, 10, 20)),
        (op("slice", IMAGE, "-1", "5", "15", "4"), (2, 3, 10, 3)),
        (op("slice", IMAGE, "1", "0", "", "1"), (2, 3, 10, 20)),
        (op("unsqueeze", IMAGE, "-1"), (2, 3, 10, 20, 1)),
        (op("unsqueeze", IMAGE, "2"), (2, 3, 1, 10, 20)),
        (op("view", IMAGE, "[2, -1, 20]"), (2, 30, 20)),
        (op("view", IMAGE, "[0, -1]"), None),
        (op("_unsafe_view", [6, 4], "[2, 3, 4]"), (2, 3, 4)),
        (op("expand", [1, 4], "[3, 4]"), (3, 4)),
        (op("broadcast_to", [4], "[3, 2, 4]"), (3, 2, 4)),
        (op("expand", [2, 4], "[4]"), None),
        (op("log2", IMAGE), (2, 3, 10, 20)),
        (op("exp_", [4]), (4,)),
        (op("cumsum", [4, 5], "1"), (4, 5)),
        (op("zeros_like", [4, 5]), (4, 5)),
        (op("tril", [4, 5], "0"), (4, 5)),
        (op("clamp_min", [4, 5], "0"), (4, 5)),
        (op("pow", [4, 1], [5]), (4, 5)),
        (op("logical_and", [4, 1], [1, 5]), (4, 5)),
        (op("true_divide", [3, 1, 2], [4, 1]), (3, 4, 2)),
        (op("max", [4, 5], [5]), (4, 5)),
        (op("add", [1], [1, 1]), (1, 1)),
        (op("sum", [4, 5], "1"), None),
        (op("arange", "5"), None),
    ],
)
def test_what_an_op_makes(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert made_of(call) == shape


@pytest.mark.parametrize(
    ("dims", "dim", "shape"),
    [
        ([[2, 3], [2, 5]], "-1", (2, 8)),
        ([[2, 3], [4, 3], [1, 3]], "0", (7, 3)),
        ([[2, 3, 4], [2, 1, 4]], "1", (2, 4, 4)),
    ],
)
def test_joined_tensors_are_longer_in_one_dimension(
    dims: list[list[int]], dim: str, shape: tuple[int, ...]
) -> None:
    assert made_of(signature("cat", [dims, []], ["TensorList", "Scalar"], "", dim)) == shape


@pytest.mark.parametrize(
    ("kind", "shape"), [("Scalar", (4,)), ("double", (4,)), ("long int", (4,)), ("", (4,)), (F32, None)]
)
def test_a_tensor_of_one_number_has_a_type_which_no_value_has(
    kind: str, shape: tuple[int, ...] | None
) -> None:
    assert made_of(signature("mul", [[4], []], [F32, kind])) == shape


@pytest.mark.parametrize(
    ("kernel", "padding", "stride", "dilation", "shape"),
    [
        ([8, 3, 3, 5], "[0, 0]", "[1, 1]", "[1, 1]", (2, 8, 8, 16)),
        ([8, 3, 3, 5], "[1, 2]", "[1, 1]", "[1, 1]", (2, 8, 10, 20)),
        ([8, 3, 3, 5], "[1, 2]", "[2, 3]", "[1, 1]", (2, 8, 5, 7)),
        ([8, 3, 3, 5], "[0, 0]", "[1, 1]", "[2, 3]", (2, 8, 6, 8)),
        ([8, 1, 1, 1], "[0]", "[2]", "[1]", (2, 8, 5, 10)),  # one number for both
    ],
)
def test_a_convolution_has_the_images_of_the_one_and_the_channels_of_the_other(
    kernel: list[int], padding: str, stride: str, dilation: str, shape: tuple[int, ...]
) -> None:
    assert result_of(op("conv2d", IMAGE, kernel, "", stride, padding, dilation, "1")) == shape


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("embedding", [100, 8], [5, 2]), (5, 2, 8)),
        (op("addcmul", [4, 1], [1, 5], [5]), (4, 5)),
        (op("repeat_interleave", [2, 3, 4], "5", "0", ""), (10, 3, 4)),
        (op("repeat_interleave", [2, 3, 4], "5", "1", ""), (2, 15, 4)),
        (op("bmm", [9, 4, 5], [9, 5, 6]), (9, 4, 6)),
        (op("relu_", [9]), None),
        (op("embedding", [100, 8]), None),
    ],
)
def test_what_layers_make_of_tables_and_rows(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert result_of(call) == shape


@pytest.mark.parametrize(
    ("name", "inputs", "scalars", "shape"),
    [
        ("arange", 5, ("2.5",), (3,)),
        ("arange", 7, ("0", "10", "4"), (3,)),
        ("arange", 6, ("3", "3"), (0,)),
        ("logspace", 8, ("0", "3", "50", "10"), (50,)),
        ("eye", 5, ("4",), (4, 4)),
        ("eye", 6, ("4", "7"), (4, 7)),
        ("fft_rfftfreq", 6, ("8", "1"), (5,)),
        ("ones", 5, ("[]",), ()),
        ("full", 6, ("[3, 1]", "2.0"), (3, 1)),
        ("kaiser_window", 5, ("12",), (12,)),
        ("hann_window", 5, ("",), None),
    ],
)
def test_what_is_made_of_arguments_alone(
    name: str, inputs: int, scalars: tuple[str, ...], shape: tuple[int, ...] | None
) -> None:
    call = signature(name, [[]] * inputs, ["Scalar"] * inputs, *scalars)
    assert made_of_nothing(call) == shape


def test_what_takes_a_tensor_is_not_made_of_numbers() -> None:
    assert made_of_nothing(op("full", [3], "2.0")) is None
    assert made_of_nothing(signature("full", [[], [2]], ["ScalarList", F32], "[3]", "")) is None


def test_lists_of_numbers_are_no_tensors_of_one_number() -> None:
    assert made_of(signature("permute", [[2, 3], []], [F32, "ScalarList"], "", "[1, 0]")) == (3, 2)


@pytest.mark.parametrize(
    ("name", "dims", "shape"),
    [
        ("linear", [[7], [6, 7]], (6,)),
        ("linear", [[2, 7]], None),
        ("matmul", [[2, 3, 4], [4, 5]], (2, 3, 5)),
        ("matmul", [[2, 3, 4], [2, 4, 5]], (2, 3, 5)),
        ("addmm", [[4, 6], [4, 5], [5, 6]], (4, 6)),
        ("addmm", [[4, 5], [5, 6]], None),
        ("baddbmm", [[1, 4, 6], [9, 4, 5], [9, 5, 6]], (9, 4, 6)),
        ("bmm", [[9, 4, 5], [9, 6, 5]], None),
        ("dot", [[4], [4]], None),
    ],
)
def test_products(name: str, dims: list[Any], shape: tuple[int, ...] | None) -> None:
    assert product_of(signature(name, dims, [LONG] * len(dims))) == shape
