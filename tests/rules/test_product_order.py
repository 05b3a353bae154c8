"""Products that another order saves: of three matrices, or of a matrix and rows that are copied before."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program
from tests.support.gathered_products import GEMM

POINTWISE = "void at::native::vectorized_elementwise_kernel<4>(float*)"


def linear_attention(*between: Op, rows: int = 4_096) -> list[Op]:
    """(q k) v: a matrix of all positions by all positions is in between."""
    whole = [32, rows, rows]
    return [
        Op("aten::bmm", GEMM, 900, [[32, rows, 64], [32, 64, rows]], [F32, F32]),
        *between,
        Op("aten::bmm", GEMM, 900, [whole, [32, rows, 64]], [F32, F32]),
        Op("aten::relu", POINTWISE, 20, [[32, rows, 64]], [F32]),
    ]


def test_three_matrices_are_reordered() -> None:
    scaled = Op("aten::mul", POINTWISE, 700, [[32, 4_096, 4_096], []], [F32, "double"])
    for ops, spent in ((linear_attention(), 1_800), (linear_attention(scaled), 2_500)):
        (one,) = found(program(ops), "product-order")
        assert "first make 32x4096x4096, with 64 times the operations of the other order" in one.message
        assert one.cost_ns == pytest.approx(6e3 * spent * (1 - 1 / 64), rel=0.03)
    weights = [
        Op("aten::mm", GEMM, 300, [[4_096, 16], [16, 4_096]], [F32, F32]),
        Op("aten::mm", GEMM, 300, [[256, 4_096], [4_096, 4_096]], [F32, F32]),
    ]
    (one,) = found(program(weights), "product-order")
    assert "products of 256x4096, 4096x16 and 16x4096 first make 4096x4096" in one.message


def test_softmax_between_products_keeps_their_order() -> None:
    softmax = Op("aten::_softmax", POINTWISE, 300, [[32, 4_096, 4_096], [], []], [F32, "Scalar", "Scalar"])
    reader = Op("aten::relu", POINTWISE, 20, [[32, 4_096, 4_096]], [F32])
    masked = Op("aten::mul", POINTWISE, 700, [[32, 4_096, 4_096], [4_096, 4_096]], [F32, F32])
    for ops in (
        linear_attention(softmax),
        linear_attention(masked),
        linear_attention(rows=128),
        [*linear_attention(), reader],
    ):
        assert found(program(ops), "product-order") == []


@pytest.mark.parametrize(("width", "said"), [(1_024, True), (1_025, False)])
def test_the_other_order_takes_at_most_a_quarter(width: int, said: bool) -> None:
    """Rows by rows in between: the other order needs the width for each row."""
    rows, back = [4_096, width], [width, 4_096]
    ops = [
        Op("aten::mm", GEMM, 900, [rows, back], [F32, F32]),
        Op("aten::mm", GEMM, 900, [[4_096, 4_096], rows], [F32, F32]),
    ]
    facts = found(program(ops), "product-order")
    assert [one.evidence["times"] for one in facts] == ([4.0] if said else [])


def test_what_is_read_in_another_type_or_in_backward_is_no_pair() -> None:
    first, second, last = linear_attention()
    halves = replace(second, types=["c10::BFloat16"] * 2)
    assert found(program([first, halves, last]), "product-order") == []
    node = "autograd::engine::evaluate_function: BmmBackward0"
    inside = [replace(product, inside=node) for product in (first, second)]
    assert found(program([*inside, last]), "product-order") == []
