"""Few pairs that are listed of all that are compared."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import Op, found, program
from traceanalyzer import Trace

F32, LONG, BOOL = "float", "long int", "bool"
ADD = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
SCAN = "void at::native::flag_kernel<512, 1>(long)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
ROWS = 4_096


def listing(shape: list[int], pairs: int) -> list[Op]:
    """What makes a list of a mask, and reads it."""
    rank = len(shape)
    return [
        Op("aten::nonzero", SCAN, 200, [shape], [BOOL]),
        Op("aten::unbind", "", 0, [[pairs, rank], []], [LONG, "Scalar"], scalars=["", "1"]),
    ]


def neighbours(
    *readers: Op, pairs: int = 30_000, columns: int = 3, rows: int = ROWS, others: int = ROWS
) -> list[Op]:
    """Atoms of a batch whose distance is below a cut-off, and that are of the same molecule."""
    whole = [rows, others]
    return [
        Op("aten::linear", GEMM, 500, [[4_096, 640], [640, 640]], [F32, F32]),
        Op("aten::cdist", ADD, 400, [[rows, columns], [others, columns], [], []], [F32, F32, "Scalar", ""]),
        Op("aten::lt", ADD, 300, [whole, []], [F32, "Scalar"]),
        Op("aten::eq", ADD, 250, [[rows, 1], [1, others]], [LONG, LONG]),
        Op("aten::bitwise_and", ADD, 100, [whole, whole], [BOOL, BOOL]),
        Op("aten::fill_diagonal_", ADD, 10, [whole, [], []], [BOOL, "Scalar", "Scalar"]),
        *readers,
        *listing(whole, pairs),
    ]


def near() -> Trace:
    """The same as a trace."""
    return program(neighbours())


def test_few_neighbours_need_no_distance_of_all_pairs() -> None:
    (one,) = found(near(), "materialised-pairs")
    assert (one.cause, one.by) == ("listed", "4096x4096")
    assert "aten::nonzero lists 30,000 of them, 0.18 %" in one.message
    assert "within each item of a batch" in one.advice
    assert one.cost_ns == pytest.approx(6 * 1_260e3 * (1 - 8 * 30_000 / ROWS**2), rel=1e-4)


def test_a_list_may_have_a_row_for_each_dimension() -> None:
    """As nonzero().t() has it."""
    turned = Op("aten::index_select", SCAN, 9, [[2, 30_000], [], [1]], [LONG, "Scalar", LONG])
    (one,) = found(program([*neighbours()[:-1], turned]), "materialised-pairs")
    assert "aten::nonzero lists 30,000 of them" in one.message


def test_what_takes_or_counts_listed_pairs_needs_no_others() -> None:
    whole = [ROWS, ROWS]
    taken = Op("aten::index", ADD, 40, [whole, [], []], [F32, "", ""])
    count = Op("aten::sum", SUM, 60, [whole, []], [BOOL, ""])
    (one,) = found(program(neighbours(taken, count)), "materialised-pairs")
    assert one.cost_ns == pytest.approx(6 * 1_360e3 * (1 - 8 * 30_000 / ROWS**2), rel=1e-4)


@pytest.mark.parametrize(
    "reader",
    [
        Op("aten::sum", SUM, 60, [[ROWS, ROWS], []], [F32, ""]),
        Op("aten::softmax", SUM, 60, [[ROWS, ROWS], [], []], [F32, "Scalar", ""]),
        Op("aten::mm", GEMM, 60, [[ROWS, ROWS], [ROWS, 64]], [F32, F32]),
        Op("aten::topk", SUM, 60, [[ROWS, ROWS], [], [], [], []], [F32, "Scalar", "Scalar", "", ""]),
    ],
    ids=lambda op: op.name,
)
def test_pairs_that_something_else_needs_stay(reader: Op) -> None:
    causes = {one.cause for one in found(program(neighbours(reader)), "materialised-pairs")}
    assert "listed" not in causes


def test_the_same_op_on_other_tensors_does_not_count() -> None:
    other = Op("aten::softmax", SUM, 60, [[ROWS, 64], [], []], [F32, "Scalar", ""])
    assert len(found(program(neighbours(other)), "materialised-pairs")) == 1


def test_many_pairs_few_points_and_many_coordinates_stay() -> None:
    for unlike in (
        neighbours(pairs=900_000),
        neighbours(columns=4),
        neighbours(others=127, rows=40_000),
        neighbours(rows=1_000, others=1_000),
        neighbours()[:-2],
        neighbours()[:-1],
    ):
        assert found(program(unlike), "materialised-pairs") == []


def test_pairs_that_take_little_of_the_gpu_time_are_not_said() -> None:
    for more_us, times in ((23_000, 1), (25_000, 0)):  # 1,260 us are 5 % of 25,200
        rest = Op("aten::linear", GEMM, more_us - 500, [[4_096, 640], [640, 640]], [F32, F32])
        assert len(found(program([rest, *neighbours()]), "materialised-pairs")) == times


def test_coordinate_products_are_distances() -> None:
    linear, _, *rest = neighbours()
    for columns, times in ((3, 1), (64, 0)):
        product = Op("aten::mm", GEMM, 400, [[ROWS, columns], [columns, ROWS]], [F32, F32])
        assert len(found(program([linear, product, *rest]), "materialised-pairs")) == times


def test_distances_within_batch_items_are_reported() -> None:
    whole = [64, 48, 48]
    ops = [
        Op("aten::cdist", ADD, 400, [[64, 48, 3], [64, 48, 3], [], []], [F32, F32, "Scalar", ""]),
        Op("aten::lt", ADD, 300, [whole, []], [F32, "Scalar"]),
        *listing(whole, 500),
    ]
    assert found(program(ops), "materialised-pairs") == []


def joined(*readers: Op, pairs: int = 4_096) -> list[Op]:
    """Keys of two lists, each compared with each."""
    return [
        Op("aten::eq", ADD, 250, [[ROWS, 1], [1, 8_192]], [LONG, LONG]),
        *readers,
        *listing([ROWS, 8_192], pairs),
    ]


def test_equal_keys_are_looked_up_in_a_sorted_list() -> None:
    (one,) = found(program(joined()), "materialised-pairs")
    assert one.advice.startswith("Sort one side by its key")
    assert one.cost_ns == pytest.approx(6 * 450e3 * (1 - 1 / 8_192), rel=1e-4)
    values = Op("aten::where", ADD, 90, [[ROWS, 8_192]] * 3, [BOOL, F32, F32])
    assert found(program(joined(values)), "materialised-pairs") == []


def test_longest_list_counts_unknown_length_is_silent() -> None:
    (one,) = found(program([*joined(pairs=100), *listing([ROWS, 8_192], 50_000)]), "materialised-pairs")
    assert "lists 50,000 of them" in one.message
    assert (
        found(program([*joined(), *listing([ROWS, 8_192], 9)[:1], *joined()[:1] * 9]), "materialised-pairs")
        == []
    )


def test_a_mask_that_nothing_lists_is_left_alone() -> None:
    whole = [ROWS, ROWS]
    causal = [
        Op("aten::ge", ADD, 300, [[ROWS, 1], [1, ROWS]], [LONG, LONG]),
        Op("aten::eq", ADD, 250, [[ROWS, 1], [1, ROWS]], [LONG, LONG]),
        Op("aten::bitwise_and", ADD, 100, [whole, whole], [BOOL, BOOL]),
    ]
    assert found(program(causal), "materialised-pairs") == []


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        pytest.param([[ROWS, 1], [1, 8_192]], 1, id="each with each"),
        pytest.param([[1, 8_192], [ROWS, 1]], 1, id="the other way round"),
        pytest.param([[ROWS, 1], [8_192]], 1, id="a row without its first dimension"),
        pytest.param([[ROWS, 1], [ROWS, 1]], 0, id="one by one"),
        pytest.param([[ROWS, 1], [1, 4_095]], 0, id="with other keys"),
    ],
)
def test_keys_of_two_lists_are_compared_each_with_each(sides: list[list[int]], said: int) -> None:
    whole = [ROWS, 8_192]
    both = Op("aten::bitwise_or", ADD, 100, [whole, whole], [BOOL, BOOL])
    ops = [Op("aten::eq", ADD, 250, sides, [LONG, LONG]), both, *listing(whole, 4_096)]
    causes = [one.cause for one in found(program(ops), "materialised-pairs")]
    assert causes.count("listed") == said


@pytest.mark.parametrize(("columns", "times"), [(3, 1), (4, 0)])
def test_a_product_with_a_bias_is_one_of_its_factors(columns: int, times: int) -> None:
    """The bias comes first: its width is that of the result."""
    linear, _, *rest = neighbours()
    dims = [[ROWS], [ROWS, columns], [columns, ROWS]]
    product = Op("aten::addmm", GEMM, 400, dims, [F32] * 3)
    assert len(found(program([linear, product, *rest]), "materialised-pairs")) == times


def test_a_list_is_not_as_long_as_what_is_read_of_the_next_one() -> None:
    compares, lists, takes = joined()
    other = Op("aten::nonzero", SCAN, 20, [[64, 64]], [BOOL])
    assert found(program([compares, lists, other, takes]), "materialised-pairs") == []
    (one,) = found(program([compares, lists, takes, other]), "materialised-pairs")
    assert "lists 4,096 of them" in one.message


def test_backward_of_all_pairs_is_for_listed_ones() -> None:
    node = "autograd::engine::evaluate_function: MulBackward0"
    back = Op("aten::softmax", SUM, 60, [[ROWS, ROWS], [], []], [F32, "Scalar", ""], inside=node)
    (one,) = found(program([*neighbours(), back]), "materialised-pairs")
    assert one.cause == "listed"
