"""Products that another order saves: of three matrices, or of a matrix and rows that are copied before."""

from __future__ import annotations

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


def orthogonalised(*between: Op, rows: int = 4_096, last: int | None = None) -> list[Op]:
    """One iteration of Newton and Schulz on a matrix of so many rows and 1,024 columns."""
    tall, large = [rows, 1_024], [rows, rows]
    applied = [[rows, last or 1_024], large, [rows, last or 1_024]]
    return [
        Op("aten::mm", GEMM, 400, [tall, tall[::-1]], [F32, F32]),
        Op("aten::addmm", GEMM, 1_600, [large, large, large, [], []], [F32, F32, F32]),
        *between,
        Op("aten::addmm", GEMM, 400, [*applied, [], []], [F32, F32, F32]),
        Op("aten::relu", POINTWISE, 20, [[7, 7]], [F32]),
    ]


def test_a_gram_matrix_is_made_over_the_short_side() -> None:
    added = Op("aten::add", POINTWISE, 160, [[4_096, 4_096], [4_096, 4_096], []], [F32, F32, "Scalar"])
    for ops, saved in ((orthogonalised(), 0), (orthogonalised(added), 160 * (1 - 1 / 16))):
        (one,) = found(program(ops), "product-order")
        assert (one.cause, one.by) == ("long-side", "4096x1024")
        assert "over the long side is 4096x4096" in one.message
        assert "over the short side it is 1024x1024" in one.message
        assert one.cost_ns == pytest.approx(6e3 * (2 * 400 * 3 / 4 + 1_600 * (1 - 1 / 64) + saved), rel=0.01)


@pytest.mark.parametrize(("rows", "found_it"), [(2_048, True), (2_047, False)])
def test_a_side_is_long_that_is_twice_the_other(rows: int, found_it: bool) -> None:
    causes = [one.cause for one in found(program(orthogonalised(rows=rows)), "product-order")]
    assert ("long-side" in causes) is found_it


def test_nearly_square_gram_matrices_are_not_reported() -> None:
    softmax = Op("aten::_softmax", POINTWISE, 300, [[4_096, 4_096], [], []], [F32, "Scalar", "Scalar"])
    far = [Op("aten::relu", POINTWISE, 20, [[9, 9]], [F32])] * 6
    for ops in (
        orthogonalised(softmax),
        orthogonalised(*far),
        orthogonalised(rows=1_536),
        orthogonalised(last=512),
    ):
        assert [one for one in found(program(ops), "product-order") if one.cause] == []
    squared = orthogonalised()[1:]
    assert [one for one in found(program(squared), "product-order") if one.cause] == []


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
    assert (
        found(program([replace(first, inside=node), replace(second, inside=node), last]), "product-order")
        == []
    )


@pytest.mark.parametrize(("between", "said"), [(4, True), (5, False)])
def test_a_gram_matrix_is_used_within_six_ops(between: int, said: bool) -> None:
    others = [Op("aten::relu", POINTWISE, 5, [[7, 7]], [F32])] * between
    assert bool(found(program(orthogonalised(*others)), "product-order")) is said


LARGE = [4_096, 4_096]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        (Op("aten::sub", POINTWISE, 100, [LARGE, LARGE], [F32, F32]), True),
        (Op("aten::add", POINTWISE, 100, [LARGE, [4_096]], [F32, F32]), False),  # adds something else
        (Op("aten::relu", POINTWISE, 100, [LARGE], [F32]), False),
        (Op("aten::mm", GEMM, 100, [LARGE, [4_096, 8]], [F32, F32]), False),
    ],
)
def test_a_gram_matrix_that_something_else_reads_is_needed(reader: Op, said: bool) -> None:
    assert bool(found(program(orthogonalised(reader)), "product-order")) is said


def test_an_unsquared_gram_matrix_keeps_its_order() -> None:
    gram, _, applied, last = orthogonalised()
    causes = [one.cause for one in found(program([gram, applied, last]), "product-order")]
    assert "long-side" not in causes
