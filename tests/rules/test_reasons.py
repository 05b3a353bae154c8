"""Why a call is far from its bound, as far as the trace shows."""

from typing import Any

import numpy as np
import pytest

from traceanalyzer.rules.kernels.far_from_bound import reason
from traceanalyzer.tensors.signatures import Signature

F32, LONG = "float", "long int"
WIDE = np.array([5_000])


def told(name: str, dims: list[Any], types: list[str], scalars: list[str], **more: Any) -> str:
    op = Signature(f"aten::{name}", tuple(dims), tuple(types), tuple(scalars), tuple(more.get("strides", ())))
    return reason(op, more.get("kind", ""), more.get("blocks", WIDE), 132)


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "rows", "additions"),
    [
        ("index_add_", [[10, 64], [], [50_000], [50_000, 64]], ["", "0", "", ""], 10, "5,000"),
        ("scatter_add_", [[10], [], [50_000], [50_000]], ["", "0", "", ""], 10, "5,000"),
        ("scatter_add", [[64, 20], [], [64, 40_000], [64, 40_000]], ["", "1", "", ""], 20, "2,000"),
        ("_index_put_impl_", [[50, 64], [], [30_000, 64]], ["", "", ""], 50, "600"),
        ("embedding_dense_backward", [[50_000, 64], [50_000], []], ["", "", "50"], 50, "1,000"),
    ],
)
def test_additions_that_meet_in_few_rows_are_the_reason(
    name: str, dims: list[Any], scalars: list[str], rows: int, additions: str
) -> None:
    said = told(name, dims, [F32, "Scalar", LONG, F32][: len(dims)], scalars, kind="indexed row sum")
    assert f"each of {rows} rows takes about {additions} additions" in said


def test_gradients_of_large_tables_do_not_collide() -> None:
    dims = [[50_000, 64], [50_000], []]
    assert told("embedding_dense_backward", dims, [F32, LONG, ""], ["", "", "90000"]) == ""


@pytest.mark.parametrize(
    ("blocks", "few"), [([12], True), ([65], True), ([66], False), ([900, 12, 12], True), ([0], False)]
)
def test_blocks_are_few_below_half_of_the_multiprocessors(blocks: list[int], few: bool) -> None:
    said = told("add", [[64, 64]], [F32], [""], blocks=np.array(blocks))
    assert ("leave most of 132 SMs empty" in said) is few


def test_neighbours_of_a_transposed_tensor_lie_apart() -> None:
    turned = told("sum", [[64, 512], []], [F32, ""], ["", "[1]"], strides=[[1, 64], []])
    assert "dimension 1 neighbours are 64 elements apart" in turned


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "said"),
    [
        ("sum", [[64, 32, 16], []], ["", "[-2]"], "dimension 1 neighbours are 16"),
        ("_softmax", [[64, 512], []], ["", "0"], "dimension 0 neighbours are 512 elements apart"),
        ("linalg_vector_norm", [[64, 32], [], []], ["", "2", "[0]"], "dimension 0 neighbours are 32"),
        ("_softmax_backward_data", [[64, 32], [64, 32], []], ["", "", "0"], "dimension 0 neighbours are 32"),
        ("sum", [[64, 32], []], ["", "[1]"], ""),
        ("sum", [[64, 32, 16], []], ["", "[0, 1]"], ""),
        ("relu", [[64, 32], []], ["", "[0]"], ""),
    ],
)
def test_the_dimension_is_read_where_the_op_takes_it(name: str, dims: list[Any], scalars: list[str], said: str) -> None:
    text = told(name, dims, [F32] * len(dims), scalars)
    assert said in text
    assert bool(said) is bool(text)


def test_the_largest_input_gives_the_stride() -> None:
    said = told("mul", [[64], [64, 64]], [F32, F32], ["", ""], strides=[[1], [576, 9]])
    assert "neighbours in a row of its input are 9 elements apart" in said


def test_a_sum_over_one_element_only_copies() -> None:
    said = told("sum", [[8192, 1, 7168], []], [F32, ""], ["", "[1]"], strides=[[7168, 7168, 1], []])
    assert "the dimension that it reduces has one element" in said
    assert "one element" not in told("sum", [[8192, 2, 7168], []], [F32, ""], ["", "[1]"])
    assert "one element" not in told("sum", [[8192, 1, 7168], []], [F32, ""], ["", ""])


def test_nothing_is_said_where_nothing_shows() -> None:
    assert told("add", [[64, 64], [64, 64]], [F32, F32], ["", ""]) == ""
    assert told("add", [], [], []) == ""


@pytest.mark.parametrize(
    ("shape", "dim", "said"),
    [
        ([8_192, 128], 0, ": along dimension 0 neighbours are 128 elements apart in memory"),
        ([8_192, 2, 64], 1, ": along dimension 1 neighbours are 64 elements apart in memory"),
        ([8_192, 128], 1, ""),
        ([128, 8_192, 1], 1, ""),  # with one column they are next to each other
    ],
)
def test_neighbours_are_apart_by_what_is_behind_their_dimension(shape: list[int], dim: int, said: str) -> None:
    assert told("cumsum", [shape, [], []], [F32, "Scalar", ""], ["", str(dim), ""]) == said
