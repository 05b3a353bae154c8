"""Shapes of what ops make, as torch makes them."""

from __future__ import annotations

import pytest

from tests.roofline.test_op_families import signature
from traceanalyzer.roofline.images import mixes_no
from traceanalyzer.roofline.made import made
from traceanalyzer.tensors.signatures import Signature

F32 = "float"
IMAGE = [2, 6, 17, 20]


def op(name: str, *inputs: list[int] | str) -> Signature:
    """Inputs in turn: shapes of tensors, and texts of scalars."""
    dims = [one if isinstance(one, list) else [] for one in inputs]
    types = [F32 if isinstance(one, list) else "Scalar" for one in inputs]
    return signature(name, dims, types, *("" if isinstance(one, list) else one for one in inputs))


SHAPES = [
    (op("conv2d", IMAGE, [8, 6, 3, 5], "", "[2, 3]", "[1, 2]", "[1, 1]", "1"), (2, 8, 9, 7)),
    (op("conv2d", IMAGE, [8, 6, 3, 5], "", "[2, 3]", "[1, 2]", "[2, 1]", "1"), (2, 8, 8, 7)),
    (op("conv1d", [2, 6, 17], [8, 3, 3], "", "[1]", "[0]", "[1]", "2"), (2, 8, 15)),
    (
        op("max_pool2d", IMAGE, "[3, 2]", "[]", "[0, 0]", "[1, 1]", "False"),
        (2, 6, 5, 10),
    ),  # steps by its size
    (op("max_pool2d", IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"), (2, 6, 9, 10)),
    (op("max_pool2d", IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "[2, 2]", "False"), (2, 6, 8, 9)),
    (op("max_pool2d", IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "True"), None),  # rounded up
    (op("avg_pool2d", IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "False", "True"), (2, 6, 9, 10)),
    (op("avg_pool2d", IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "True", "False"), None),
    (op("adaptive_avg_pool2d", IMAGE, "[7, 5]"), (2, 6, 7, 5)),
    (op("adaptive_avg_pool2d", IMAGE, "[7]"), None),
    (op("adaptive_max_pool2d", IMAGE, "[7, 5]"), (2, 6, 7, 5)),
    (op("adaptive_max_pool1d", [2, 6, 17], "[7]"), (2, 6, 7)),
    (op("upsample_nearest2d", IMAGE, "[34, 40]", "", ""), (2, 6, 34, 40)),
    (op("upsample_bilinear2d", IMAGE, "", "False", "[1.5, 2.0]"), (2, 6, 25, 40)),  # 25.5
    (op("grid_sampler", IMAGE, [2, 9, 11, 2], "0", "0", "False"), (2, 6, 9, 11)),
    (op("group_norm", IMAGE, "3"), (2, 6, 17, 20)),
    (op("batch_norm", IMAGE, [6], [6], [6], [6], "False"), (2, 6, 17, 20)),
    (op("batch_norm", IMAGE, [6], [6], [6], [6], "True"), None),  # needs all images of the batch
    (op("unfold", [4, 20], "1", "5", "3"), (4, 6, 5)),
    (op("unfold", [4, 20], "-1", "5", "3"), (4, 6, 5)),
    (op("embedding", [100, 8], [5, 2]), (5, 2, 8)),
    (op("randperm", "64"), (64,)),
    (op("scaled_dot_product_attention", [2, 4, 9, 64], [2, 4, 7, 64], [2, 4, 7, 32]), (2, 4, 9, 32)),
    (op("silu", IMAGE), (2, 6, 17, 20)),
    (op("softmax", IMAGE, "-1"), (2, 6, 17, 20)),
    (op("sum", IMAGE, "[1, -1]", "False"), (2, 17)),
    (op("sum", IMAGE, "[1, -1]", "True"), (2, 1, 17, 1)),
    (op("mean", IMAGE, "[]", "False"), ()),
    (op("argmax", IMAGE, "2", "False"), (2, 6, 20)),
    (op("max", [4, 1], [4, 5]), (4, 5)),  # of two tensors
    (op("max", [4, 5]), None),
    (op("linalg_vector_norm", IMAGE, "2", "[0]", "True"), (1, 6, 17, 20)),
]


@pytest.mark.parametrize(
    ("call", "shape"), SHAPES, ids=[f"{one.name}-{at}" for at, (one, _) in enumerate(SHAPES)]
)
def test_what_an_op_makes_has_the_shape_that_torch_gives_it(
    call: Signature, shape: tuple[int, ...] | None
) -> None:
    assert made(call) == shape


@pytest.mark.parametrize(
    ("dim", "shape"), [("0", (3, 4, 5)), ("1", (4, 3, 5)), ("-1", (4, 5, 3)), ("2", (4, 5, 3))]
)
def test_stacked_tensors_have_a_dimension_more_where_it_was_asked_for(
    dim: str, shape: tuple[int, ...]
) -> None:
    stack = signature("stack", [[[4, 5]] * 3, []], ["TensorList", "Scalar"], "", dim)
    assert made(stack) == shape


def test_ops_on_images_keep_images_apart_and_some_their_channels() -> None:
    assert mixes_no("conv2d") == mixes_no("group_norm") == {0}
    assert (
        mixes_no("max_pool2d") == mixes_no("upsample_nearest2d") == mixes_no("adaptive_avg_pool3d") == {0, 1}
    )
    assert mixes_no("matmul") is None
