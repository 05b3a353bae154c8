"""Work whose result is the same again, is thrown away, or goes through memory for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import Op, found, program

F32, BF16, LONG = "float", "c10::BFloat16", "long int"
ADD = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
MOVE = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
"""Names as torch 2.11 gives them, in short."""


def pairs(rows: int, *, expanded: bool = False, reduced: bool = True) -> list[Op]:
    """a[:, None] - b[None], squared, summed over the last dimension or the first two."""
    whole = [rows, rows, 64]
    if expanded:
        first = Op("aten::sub", ADD, 900, [whole, whole], [F32, F32], strides=[[64, 0, 1], [0, 64, 1]])
    else:
        first = Op("aten::sub", ADD, 900, [[rows, 1, 64], [1, rows, 64]], [F32, F32])
    ops = [first, Op("aten::mul", ADD, 900, [whole, whole], [F32, F32])]
    return [*ops, Op("aten::sum", SUM, 700, [whole, []], [F32, "ScalarList"], scalars=["", "[2]"])][
        : 3 if reduced else 2
    ]


@pytest.mark.parametrize("expanded", [False, True])
def test_pairs_that_are_written_and_summed_are_named_by_their_shapes(expanded: bool) -> None:
    (one,) = found(program(pairs(1_000, expanded=expanded)), "materialised-pairs")
    assert "1000x1x64 and 1x1000x64 to all pairs, 1000x1000x64, 500 times as many numbers" in one.message
    assert "torch.cdist" in one.advice


def test_pairs_that_are_small_or_the_result_are_left_alone() -> None:
    assert found(program(pairs(40)), "materialised-pairs") == []
    assert found(program(pairs(1_000, reduced=False)), "materialised-pairs") == []


def test_a_bias_or_a_mask_that_is_broadcast_is_no_pair() -> None:
    masked = [
        Op("aten::add", ADD, 900, [[8, 12, 512, 512], [8, 1, 512, 512]], [F32, F32]),
        Op("aten::sum", SUM, 700, [[8, 12, 512, 512], []], [F32, "ScalarList"]),
    ]
    assert found(program(masked), "materialised-pairs") == []


def test_what_computes_on_the_pairs_is_not_taken_for_passing_over_them() -> None:
    solve = Op("aten::inverse", GEMM, 9_000, [[1_000, 1_000, 64]], [F32])
    (one,) = found(program([*pairs(1_000), solve]), "materialised-pairs")
    assert "aten::inverse" not in one.message
    assert one.evidence["gpu_share"] < 0.3


def component(strides: list[int]) -> list[Op]:
    shapes = [[1536, 3072], [1536, 3072]]
    return [Op("aten::add", ADD, 300, shapes, [F32, F32], strides=[strides, [3072, 1]])]


def test_one_component_of_many_moves_whole_sectors() -> None:
    (one,) = found(program(component([27648, 9])), "strided-access")
    assert "every 9th number" in one.message
    assert "1536x3072 with strides [27648, 9]" in one.message


@pytest.mark.parametrize("strides", [[3072, 1], [1, 1536], [0, 1], [4096, 1]])
def test_rows_columns_and_slices_lie_side_by_side(strides: list[int]) -> None:
    assert found(program(component(strides)), "strided-access") == []


def experts(kept: int, batched: bool = True) -> list[Op]:
    gate = Op(
        "aten::topk", SUM, 20, [[4096, 16], [], []], [F32, "Scalar", "Scalar"], scalars=["", str(kept), "1"]
    )
    shapes = [[16, 4096, 512], [16, 512, 1024]] if batched else [[4096, 512], [512, 1024]]
    return [gate, Op("aten::bmm" if batched else "aten::mm", GEMM, 800, shapes, [BF16, BF16])]


def test_experts_that_work_on_all_tokens_are_told_by_topk() -> None:
    (one,) = found(program(experts(2)), "idle-experts")
    assert "topk keeps 2 of 16 experts for each of 4,096 rows" in one.message


def test_most_experts_kept_or_one_product_is_no_fault() -> None:
    assert found(program(experts(12)), "idle-experts") == []
    assert found(program(experts(2, batched=False)), "idle-experts") == []


def edges(step: int) -> list[Op]:
    """cat of centres, expanded, and neighbours; then a product of all edges."""
    shape, strides = [24_576, 20, 64], [[64, step, 1], [1_280, 64, 1]]
    joined = Op("aten::cat", MOVE, 100, [[shape, shape], []], ["TensorList", "Scalar"], strides=[strides, []])
    return [joined, Op("aten::mm", GEMM, 900, [[491_520, 128], [128, 64]], [F32, F32])]


def test_a_product_on_copies_of_rows_belongs_before_the_copies() -> None:
    (one,) = found(program(edges(0)), "product-of-copies")
    assert "20 copies each" in one.message


def test_a_product_on_different_rows_stays() -> None:
    assert found(program(edges(64)), "product-of-copies") == []


def weights(casts: int, gradients: int) -> list[Op]:
    made: list[Any] = []
    for _ in range(casts):
        made += [
            Op("aten::_to_copy", MOVE, 60, [[4096, 4096], []], [F32, "Scalar"]),
            Op("aten::mm", GEMM, 300, [[512, 4096], [4096, 4096]], [BF16, BF16]),
        ]
    gradient = Op("torch::autograd::AccumulateGrad", ADD, 20, [[4096, 4096]], [F32])
    return [*made, *[gradient] * gradients]


def test_a_weight_that_is_converted_more_often_than_it_gets_gradients() -> None:
    (one,) = found(program(weights(8, 1)), "repeated-parameter-work")
    assert one.cause == "casts"
    assert "converted 8 times a step" in one.message


def test_as_many_weights_as_conversions_and_recomputation_are_no_fault() -> None:
    assert found(program(weights(8, 8)), "repeated-parameter-work") == []
    assert found(program(weights(2, 1)), "repeated-parameter-work") == []


def test_a_table_that_is_looked_up_again_and_again_may_be_looked_up_once() -> None:
    look = Op("aten::embedding", MOVE, 90, [[32, 12], [512, 512]], [F32, LONG])
    gradient = Op("torch::autograd::AccumulateGrad", ADD, 5, [[32, 12]], [F32])
    (one,) = found(program([look] * 12 + [gradient]), "repeated-parameter-work")
    assert (one.cause, one.confidence.value) == ("lookups", "low")
