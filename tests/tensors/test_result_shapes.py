"""Shapes of results, element types, and constants, as torch's operators give them."""

from typing import Any

import pytest

from tests.support.op_calls import BF16, F32, LONG, op, signature
from traceanalyzer.tensors.ops.table import constant_shape, result_shape, result_type
from traceanalyzer.tensors.signatures import Signature

IMAGE = [2, 3, 10, 20]
LARGE = [2, 6, 17, 20]
SHAPES = [
    (op("pad", IMAGE, "[1, 1, 2, 2]", "constant", ""), (2, 3, 14, 22)),
    (op("pad", IMAGE, "[1, 2, 10, 20]"), (2, 3, 40, 23)),
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
    (op("reshape", IMAGE, "[-1]"), (1200,)),
    (op("repeat", [4], "[3, 1]"), None),
    (op("min", [4, 5]), ()),
    (op("numpy_T", [2, 3, 4]), (4, 3, 2)),
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
    (op("repeat_interleave", [2, 3], "4", "1", ""), (2, 12)),
    (op("repeat_interleave", [2, 3], "4", "-2", ""), (8, 3)),
    (op("repeat_interleave", [2, 3], "4", "", ""), (24,)),
    (op("repeat_interleave", [2, 3], [2], "0", ""), None),
    (op("repeat_interleave", [3], ""), None),
    (op("lerp", [4, 1], [5], "0.5"), (4, 5)),
    (op("conv2d", IMAGE, [8, 3, 3]), None),
    (op("conv2d", LARGE, [8, 6, 3, 5], "", "[2, 3]", "[1, 2]", "[1, 1]", "1"), (2, 8, 9, 7)),
    (op("conv2d", LARGE, [8, 6, 3, 5], "", "[2, 3]", "[1, 2]", "[2, 1]", "1"), (2, 8, 8, 7)),
    (op("conv1d", [2, 6, 17], [8, 3, 3], "", "[1]", "[0]", "[1]", "2"), (2, 8, 15)),
    (op("max_pool2d", LARGE, "[3, 2]", "[]", "[0, 0]", "[1, 1]", "False"), (2, 6, 5, 10)),
    (op("max_pool2d", LARGE, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"), (2, 6, 9, 10)),
    (op("max_pool2d", LARGE, "[3, 3]", "[2, 2]", "[1, 1]", "[2, 2]", "False"), (2, 6, 8, 9)),
    (op("max_pool2d", LARGE, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "True"), None),
    (op("max_pool2d", [6, 17, 20], "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"), (6, 9, 10)),
    (op("max_pool1d", [2, 6, 17], "[2]", "[]", "[0]", "[1]", "False"), (2, 6, 8)),
    (op("avg_pool2d", LARGE, "[3, 3]", "[2, 2]", "[1, 1]", "False", "True"), (2, 6, 9, 10)),
    (op("avg_pool2d", LARGE, "[3, 3]", "[2, 2]", "[1, 1]", "True", "False"), None),
    (op("adaptive_avg_pool2d", LARGE, "[7, 5]"), (2, 6, 7, 5)),
    (op("adaptive_avg_pool2d", LARGE, "[7]"), None),
    (op("adaptive_max_pool2d", LARGE, "[7, 5]"), (2, 6, 7, 5)),
    (op("adaptive_max_pool1d", [2, 6, 17], "[7]"), (2, 6, 7)),
    (op("upsample_nearest2d", LARGE, "[34, 40]", "", ""), (2, 6, 34, 40)),
    (op("upsample_bilinear2d", LARGE, "", "False", "[1.5, 2.0]"), (2, 6, 25, 40)),
    (op("grid_sampler", LARGE, [2, 9, 11, 2], "0", "0", "False"), (2, 6, 9, 11)),
    (op("group_norm", LARGE, "3"), (2, 6, 17, 20)),
    (op("batch_norm", LARGE, [6], [6], [6], [6], "False"), (2, 6, 17, 20)),
    (op("batch_norm", LARGE, [6], [6], [6], [6], "True"), (2, 6, 17, 20)),
    (op("unfold", [4, 20], "1", "5", "3"), (4, 6, 5)),
    (op("unfold", [4, 20], "-1", "5", "3"), (4, 6, 5)),
    (op("embedding", [100, 8], [5, 2]), (5, 2, 8)),
    (op("randperm", "64"), (64,)),
    (op("scaled_dot_product_attention", [2, 4, 9, 64], [2, 4, 7, 64], [2, 4, 7, 32]), (2, 4, 9, 32)),
    (op("silu", LARGE), (2, 6, 17, 20)),
    (op("softmax", LARGE, "-1"), (2, 6, 17, 20)),
    (op("sum", LARGE, "[1, -1]", "False"), (2, 17)),
    (op("sum", LARGE, "[1, -1]", "True"), (2, 1, 17, 1)),
    (op("mean", LARGE, "[]", "False"), ()),
    (op("argmax", LARGE, "2", "False"), (2, 6, 20)),
    (op("max", [4, 1], [4, 5]), (4, 5)),
    (op("max", [4, 5]), ()),
    (op("linalg_vector_norm", LARGE, "2", "[0]", "True"), (1, 6, 17, 20)),
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
    (op("sum", [4, 5], "1"), ()),
    (op("arange", "5"), None),
    (op("addcmul", [4, 1], [1, 5], [5]), (4, 5)),
    (op("repeat_interleave", [2, 3, 4], "5", "0", ""), (10, 3, 4)),
    (op("repeat_interleave", [2, 3, 4], "5", "1", ""), (2, 15, 4)),
    (op("relu_", [9]), (9,)),
    (op("embedding", [100, 8]), None),
    (op("squeeze", [2, 1, 3, 1]), (2, 3)),
    (op("squeeze", [2, 1, 3, 1], "-1"), (2, 1, 3)),
    (op("as_strided", [12], "[3, 4]", "[4, 1]", "0"), (3, 4)),
    (op("unsqueeze_", [4], "0"), (1, 4)),
    (op("add_", [5, 3], [3], "1"), (5, 3)),
    (op("matmul", [16, 4], [9, 4, 5]), (9, 16, 5)),
    (op("linalg_vector_norm", [4, 5], "2", "", "False"), ()),
    (op("embedding_dense_backward", [6, 8], [6], "100"), (100, 8)),
    (op("gather", [9, 8], "1", [9, 2]), (9, 2)),
    (op("index_select", [9, 8], "0", [5]), (5, 8)),
    (op("cudnn_convolution", LARGE, [8, 6, 3, 5], "[1, 2]", "[2, 3]", "[1, 1]", "1"), (2, 8, 9, 7)),
    (op("pixel_shuffle", [2, 12, 4, 5], "2"), (2, 3, 8, 10)),
    (op("flatten", IMAGE, "1", "-2"), (2, 30, 20)),
    (op("im2col", IMAGE, "[3, 4]", "[1, 1]", "[1, 0]", "[1, 2]"), (2, 36, 90)),
    (op("mine", [4]), None),
]


@pytest.mark.parametrize(("call", "shape"), SHAPES, ids=[f"{call.name}-{i}" for i, (call, _) in enumerate(SHAPES)])
def test_result_shape(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert result_shape(call) == shape


@pytest.mark.parametrize(
    ("name", "dims", "dim", "shape"),
    [
        ("cat", [[2, 3], [2, 5]], "-1", (2, 8)),
        ("cat", [[2, 3], [4, 3], [1, 3]], "0", (7, 3)),
        ("cat", [[2, 3, 4], [2, 1, 4]], "1", (2, 4, 4)),
        ("stack", [[4, 5]] * 3, "0", (3, 4, 5)),
        ("stack", [[4, 5]] * 3, "-1", (4, 5, 3)),
        ("stack", [[4, 5]] * 3, "2", (4, 5, 3)),
    ],
)
def test_result_shape_of_lists(name: str, dims: list[Any], dim: str, shape: tuple[int, ...]) -> None:
    assert result_shape(signature(name, [dims, []], ["TensorList", "Scalar"], "", dim)) == shape


CREATED = [
    ("arange", 5, ("7",), (7,)),
    ("arange", 5, ("2.5",), (3,)),
    ("arange", 6, ("2", "9"), (7,)),
    ("arange", 6, ("3", "3"), (0,)),
    ("arange", 7, ("1", "9", "3"), (3,)),
    ("arange", 7, ("9", "1", "-3"), (3,)),
    ("arange", 7, ("1", "9", "0"), None),
    ("linspace", 7, ("0", "1", "5"), (5,)),
    ("logspace", 8, ("0", "3", "50", "10"), (50,)),
    ("eye", 5, ("4",), (4, 4)),
    ("eye", 6, ("4", "7"), (4, 7)),
    ("fft_fftfreq", 6, ("8", "1"), (8,)),
    ("fft_rfftfreq", 6, ("9", "1"), (5,)),
    ("hann_window", 5, ("400",), (400,)),
    ("hann_window", 5, ("",), None),
    ("zeros", 5, ("[2, 3]",), (2, 3)),
    ("ones", 5, ("[]",), ()),
    ("full", 6, ("[3, 1]", "2.0"), (3, 1)),
    ("rand", 5, ("[2, 3]",), None),
    ("empty", 6, ("[2, 3]",), None),
]


@pytest.mark.parametrize(("name", "inputs", "scalars", "shape"), CREATED)
def test_constants_of_numbers(name: str, inputs: int, scalars: tuple[str, ...], shape: tuple[int, ...] | None) -> None:
    call = signature(name, [[]] * inputs, ["Scalar"] * inputs, *scalars)
    assert constant_shape(call) == shape


@pytest.mark.parametrize(
    ("kind", "shape"), [("Scalar", (4,)), ("double", (4,)), ("long int", (4,)), ("", (4,)), (F32, None)]
)
def test_a_tensor_of_one_number_makes_no_constant(kind: str, shape: tuple[int, ...] | None) -> None:
    assert constant_shape(signature("mul", [[4], []], [F32, kind])) == shape


def test_layers_and_random_numbers_are_no_constants() -> None:
    assert constant_shape(op("linear", [4, 5], [6, 5])) is None
    assert constant_shape(op("dropout", [4, 5], "0.1", "True")) is None
    assert constant_shape(op("flip", [4, 5], "[0]")) == (4, 5)


@pytest.mark.parametrize(
    ("name", "types", "kind"),
    [
        ("add", [BF16, F32], F32),
        ("add", [BF16, BF16], BF16),
        ("add", [LONG, BF16], BF16),
        ("mul", [BF16, "c10::Half"], F32),
        ("lt", [F32, F32], "bool"),
        ("argmax", [F32], LONG),
        ("mm", [BF16, BF16], BF16),
        ("mine", [F32], None),
    ],
)
def test_result_type(name: str, types: list[str], kind: str | None) -> None:
    assert result_type(signature(name, [[4, 4]] * len(types), types)) == kind
