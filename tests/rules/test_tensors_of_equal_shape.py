"""Tensors of one shape that are different tensors: no rule takes one of them for the other."""

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program

POINTWISE = "void at::native::vectorized_elementwise_kernel<4>(float*)"
ROWS, FLAT = [16, 512, 4_096], [8_192, 1_024]


def gated_mlp(*, gate: bool) -> list[Op]:
    """Up and down projection; with a gate, the result of one is multiplied by another tensor of its shape."""
    up = Op("aten::mm", NVJET, 300, [FLAT, [1_024, 4_096]], [BF16] * 2)
    scale = Op("aten::mul", POINTWISE, 90, [ROWS, ROWS if gate else []], [BF16, BF16 if gate else "double"])
    down = Op("aten::mm", NVJET, 300, [[8_192, 4_096], [4_096, 64]], [BF16] * 2)
    return [up, scale, down, Op("aten::relu", POINTWISE, 20, [[8_192, 64]], [BF16])]


@pytest.mark.parametrize(("gate", "reordered"), [(True, 0), (False, 1)])
def test_a_gate_between_two_products_keeps_their_order(gate: bool, reordered: int) -> None:
    assert len(found(program(gated_mlp(gate=gate)), "product-order")) == reordered


def test_view_of_the_first_product_that_others_read_stays() -> None:
    reader = Op("aten::relu", POINTWISE, 20, [ROWS], [BF16])
    assert found(program([*gated_mlp(gate=False), reader]), "product-order") == []


def square_layers(*columns: int) -> list[Op]:
    """A layer that keeps its input's shape, then slices of so many columns of a tensor of that shape."""
    shape, kinds = [4_096, 4_096], [F32, "Scalar", "Scalar", "Scalar", "Scalar"]
    layer = Op("aten::linear", NVJET, 900, [shape, shape], [F32] * 2)
    slices = []
    for count in columns:
        numbers = ["", "1", "0", str(count), "1"]
        slices += [
            Op("aten::slice", "", 1, [shape, [], [], [], []], kinds, scalars=numbers),
            Op("aten::square", POINTWISE, 10, [[4_096, count]], [F32]),
        ]
    return [layer, *slices]


def test_columns_of_a_product_are_columns_of_its_weight() -> None:
    (one,) = found(program(square_layers(512)), "partly-used")
    assert "takes only 12 % of its dimension 1" in one.message
    assert "slice the weight" in one.advice


def test_different_slices_of_one_shape_name_no_tensor() -> None:
    assert found(program(square_layers(512, 8)), "partly-used") == []
