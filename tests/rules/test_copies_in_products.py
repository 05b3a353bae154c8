"""Which rows of a product are copies, how many there must be, and what the other order saves of each pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, US, Op, found, program
from tests.rules.test_product_order import GEMM, MOVE, messages

SLUG = "product-of-copies"
EDGES = 600_000
GATHER, _, JOINED, LAYER, PRODUCT = messages()


def joined(points: int, times: int, width: int = 64, second: tuple[int, ...] | None = None) -> list[Op]:
    """cat of centres, expanded, and neighbours; then a product of all edges."""
    shape = [points, times, width]
    other = list(second or shape)
    strides = [[[width, 0, 1], [times * width, width, 1]], []]
    join = Op("aten::cat", MOVE, 100, [[shape, other], []], ["TensorList", "Scalar"], strides=strides)
    rows = points * times
    return [join, Op("aten::mm", GEMM, 900, [[rows, 2 * width], [2 * width, 64]], [F32, F32])]


@pytest.mark.parametrize(
    ("points", "times", "said"),
    [(24_576, 4, 1), (24_576, 3, 0), (1_024, 4, 1), (1_023, 4, 0)],
)
def test_each_row_is_copied_four_times_and_there_are_4096(points: int, times: int, said: int) -> None:
    assert len(found(program(joined(points, times)), SLUG)) == said


def test_parts_of_other_numbers_of_rows_are_joined_along_them() -> None:
    assert found(program(joined(24_576, 20, second=(24_576, 10, 64))), SLUG) == []


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [(150_000, EDGES, 1), (150_001, EDGES, 0), (512, 4_096, 1), (512, 4_095, 0)],
)
def test_rows_are_gathered_four_times_and_4096_of_them(nodes: int, edges: int, said: int) -> None:
    gather = replace(GATHER, dims=[[nodes, 64], [], [edges]])
    product = replace(PRODUCT, dims=[[64], [edges, 64], [64, 64]], inside=None)
    called = "aten::linear", 1, {"Input Dims": [[edges, 64], [64, 64], [64]], "Input type": [F32] * 3}
    assert len(found(program([gather, product], around={1: called}), SLUG)) == said


def test_the_op_after_a_gather_takes_what_was_gathered() -> None:
    """A product of as many rows and numbers as are gathered elsewhere, after an op on other rows."""
    other = Op("aten::cat", MOVE, 10, [[[7, 64], [7, 64]], []], ["TensorList", "Scalar"])
    wide = replace(PRODUCT, dims=[[64], [14, 128], [128, 64]], inside=None)
    called = "aten::linear", 1, {"Input Dims": [[14, 128], [64, 128], [64]], "Input type": [F32] * 3}
    late = Op("aten::mm", GEMM, 900, [[7, 128], [128, 64]], [F32, F32])
    assert found(program([GATHER, other, wide, late], around={2: called}), SLUG) == []


@pytest.mark.parametrize(("other_us", "said"), [(18_900, 1), (19_100, 0)])
def test_a_twentieth_of_gpu_time_is_worth_it(other_us: int, said: int) -> None:
    other = Op("aten::sort", MOVE, other_us, [[1_000]], [F32])
    assert len(found(program([*joined(24_576, 20), other]), SLUG)) == said


def test_the_most_rows_are_told_with_their_own_number_of_copies() -> None:
    (one,) = found(program([*joined(4_096, 8, width=256), *joined(24_576, 20)]), SLUG)
    assert (one.evidence["rows"], one.evidence["copies"]) == (24_576 * 20, 20)


ROWS = 24_576 * 20
ADDED_NS = 3 * ROWS * 64 * 4 / 4_800 / 0.6  # both parts' results are read, and their sum is written
OF_WEIGHT = Op("aten::mm", GEMM, 900, [[64, ROWS], [ROWS, 128]], [F32, F32], inside="MmBackward0")
OF_COPIES = Op("aten::mm", GEMM, 900, [[ROWS, 64], [64, 128]], [F32, F32], inside="MmBackward0")
TURNED = replace(OF_WEIGHT, dims=[[128, ROWS], [ROWS, 64]])


@pytest.mark.parametrize("of_weight", [OF_WEIGHT, TURNED])
def test_both_gradients_are_of_copies_too(of_weight: Op) -> None:
    (one,) = found(program([*joined(24_576, 20), OF_COPIES, of_weight]), SLUG)
    assert one.cost_ns == pytest.approx(6 * (100 * US + 3 * 900 * US * (1 - 1 / 20) - ADDED_NS), rel=0.005)


def test_gradients_of_products_are_summed_for_fixed_rows() -> None:
    (both,), (one,) = (
        found(program([*joined(24_576, 20), *ops]), SLUG) for ops in ((OF_COPIES, OF_WEIGHT), (OF_WEIGHT,))
    )
    spared = 6 * 900 * US * (1 - 1 / 20)
    assert one.cost_ns < both.cost_ns - spared


def test_other_products_in_backward_are_not_of_copies() -> None:
    other = replace(OF_COPIES, dims=[[ROWS, 32], [32, 128]])
    (plain,), (one,) = (found(program([*joined(24_576, 20), *ops]), SLUG) for ops in ((), (other,)))
    assert one.cost_ns == plain.cost_ns
