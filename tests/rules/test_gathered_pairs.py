"""Rows that two gathers write for each pair, and that are summed up again."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import Op, found, program
from traceanalyzer import Trace

F32, LONG = "float", "long int"
MOVE = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>(long)"
ADD = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
ROWS, PAIRS = [4_096, 40, 16], [4_096, 780, 16]


def crossed(
    *between: Op, pairs: int = 780, other: int = 40, dim: str = "[-1]", trained: bool = False
) -> list[Op]:
    """All pairs of 40 fields, as an interaction layer makes them, and the backward of that."""
    whole = [4_096, pairs, 16]
    back = [
        Op("aten::mul", ADD, 200, [whole, whole], [F32, F32], inside="MulBackward0"),
        Op(
            "aten::_index_put_impl_",
            ADD,
            500,
            [ROWS, [], whole, [], []],
            [F32, "", F32],
            inside="IndexBackward0",
        ),
    ]
    return [
        Op("aten::linear", GEMM, 500, [[4_096, 640], [640, 640]], [F32, F32]),
        Op("aten::index", MOVE, 200, [ROWS, []], [F32, ""]),
        Op("aten::index", MOVE, 200, [[4_096, other, 16], []], [F32, ""]),
        *between,
        Op("aten::mul", ADD, 200, [whole, whole], [F32, F32]),
        Op("aten::sum", SUM, 300, [whole, [], [], []], [F32, "ScalarList", "Scalar", ""], scalars=["", dim]),
        *(back if trained else []),
    ]


def crossing() -> Trace:
    """The same as a trace."""
    return program(crossed())


def test_pairs_of_gathered_rows_are_one_product_of_the_rows() -> None:
    (one,) = found(crossing(), "materialised-pairs")
    assert (one.cause, one.by) == ("gathered", "4096x40x16")
    assert "gathered twice, for each of 780 pairs of 40 rows" in one.message
    assert "x @ x.transpose(-1, -2)" in one.advice
    moved = 4 * 4_096 * 40 * (3 * 40 + 16)
    assert one.cost_ns == pytest.approx(6 * (900_000 - moved / (0.6 * 4.8e3)), rel=0.01)


def test_backward_of_gathered_pairs_goes_with_them() -> None:
    (one,) = found(program(crossed(trained=True)), "materialised-pairs")
    assert one.cost_ns > 6 * (900 + 700 - 120) * 1_000


def test_differences_that_are_squared_and_summed_are_distances() -> None:
    *gathers, _, total = crossed()
    sub = Op("aten::sub", ADD, 200, [PAIRS, PAIRS], [F32, F32])
    square = Op("aten::pow", ADD, 200, [PAIRS, []], [F32, "Scalar"])
    absolute = Op("aten::abs", ADD, 200, [PAIRS], [F32])
    (one,) = found(program([*gathers, sub, square, total]), "materialised-pairs")
    assert "torch.cdist" in one.advice
    assert found(program([*gathers, sub, absolute, total]), "materialised-pairs") == []


def test_few_pairs_other_rows_and_pairs_that_others_read_stay() -> None:
    layer = Op("aten::linear", GEMM, 200, [PAIRS, [16, 16]], [F32, F32])
    ops = crossed()
    for unlike in (
        crossed(pairs=390),
        crossed(pairs=150),
        crossed(other=41),
        crossed(dim="[1]"),
        [*ops, layer],
        ops[:-1],
    ):
        assert found(program(unlike), "materialised-pairs") == []
    assert found(program(crossed(layer)), "materialised-pairs") == []


@pytest.mark.parametrize(
    ("rows", "times"),
    [(ROWS, 1), ([2_048, 40, 16], 0), ([4_096, 40, 32], 0), ([40, 16], 0)],
    ids=["items", "other-items", "other-columns", "no-items"],
)
def test_pairs_are_of_the_rows_that_are_gathered(rows: list[int], times: int) -> None:
    gather = Op("aten::index", MOVE, 200, [rows, []], [F32, ""])
    layer, _, _, *rest = crossed()
    assert len(found(program([layer, gather, gather, *rest]), "materialised-pairs")) == times


def test_a_sum_of_another_tensor_does_not_sum_up_the_pairs() -> None:
    other = Op(
        "aten::sum", SUM, 300, [ROWS, [], [], []], [F32, "ScalarList", "Scalar", ""], scalars=["", "[-1]"]
    )
    assert found(program([*crossed()[:-1], other]), "materialised-pairs") == []


@pytest.mark.parametrize(("dim", "said"), [("[2]", 1), ("[-1]", 1), ("[-2]", 0), ("[0]", 0)])
def test_the_last_dimension_may_be_counted_from_either_end(dim: str, said: int) -> None:
    assert len(found(program(crossed(dim=dim)), "materialised-pairs")) == said


@pytest.mark.parametrize(("dim", "said"), [("[-1]", 1), ("[2]", 1), ("[1]", 0)])
def test_a_norm_of_differences_is_a_distance(dim: str, said: int) -> None:
    *gathers, _, _ = crossed()
    sub = Op("aten::sub", ADD, 200, [PAIRS, PAIRS], [F32, F32])
    types = [F32, "Scalar", "ScalarList", "Scalar", ""]
    scalars = ["", "2.", dim, "False", ""]
    norm = Op("aten::linalg_vector_norm", SUM, 300, [PAIRS, [], [], [], []], types, scalars=scalars)
    assert len(found(program([*gathers, sub, norm]), "materialised-pairs")) == said


def test_few_compared_rows_and_expanded_tensors() -> None:
    """Ids held against 15 classes; and a tensor that is expanded to all pairs of nothing."""
    compared = [
        Op("aten::eq", ADD, 900, [[1, 15], [1 << 20, 1]], [LONG, LONG]),
        Op("aten::sum", SUM, 700, [[1 << 20, 15], []], ["bool", "ScalarList"]),
    ]
    (one,) = found(program(compared), "materialised-pairs")
    assert "by index" in one.advice
    whole = [1_000, 1_000, 64]
    alone = [
        Op("aten::relu", ADD, 900, [whole], [F32], strides=[[64, 0, 1]]),
        Op("aten::sum", SUM, 700, [whole, []], [F32, "ScalarList"]),
    ]
    assert found(program(alone), "materialised-pairs") == []


@pytest.mark.parametrize(("kind", "by_index"), [(LONG, True), (F32, False)])
def test_a_mask_that_becomes_weights_is_not_read_by_index(kind: str, *, by_index: bool) -> None:
    """Sums of a mask as floating numbers may be products; a count of them is none."""
    whole = [1_000, 1_100, 8]
    ops = [
        Op("aten::eq", ADD, 900, [[1_000, 1, 8], [1, 1_100, 8]], [LONG, LONG]),
        Op("aten::copy_", ADD, 900, [whole, whole, []], [kind, "bool", "Scalar"]),
        Op("aten::sum", SUM, 700, [whole, []], [kind, "ScalarList"], scalars=["", "[2]"]),
    ]
    (one,) = found(program(ops), "materialised-pairs")
    assert ("read and write by index" in one.advice) is by_index
