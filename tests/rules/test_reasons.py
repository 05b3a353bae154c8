"""Why a call is far from its bound, as far as the trace shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from traceanalyzer.rules.kernels.far_from_bound import reason
from traceanalyzer.tensors.signatures import Signature

F32, LONG = "float", "long int"
WIDE, NARROW = np.array([5_000]), np.array([12])


def told(name: str, dims: list[Any], types: list[str], scalars: list[str], **more: Any) -> str:
    op = Signature(f"aten::{name}", tuple(dims), tuple(types), tuple(scalars), tuple(more.get("strides", ())))
    return reason(op, more.get("kind", ""), more.get("blocks", WIDE), 132)


@pytest.mark.parametrize(
    ("name", "dims", "scalars"),
    [
        ("index_add_", [[10, 64], [], [50_000], [50_000, 64]], ["", "0", "", ""]),
        ("scatter_add_", [[10], [], [50_000], [50_000]], ["", "0", "", ""]),
    ],
)
def test_additions_that_meet_in_few_rows_are_the_reason(
    name: str, dims: list[Any], scalars: list[str]
) -> None:
    said = told(name, dims, [F32, "Scalar", LONG, F32], scalars)
    assert "each of 10 rows takes about 5,000 additions" in said


def test_gradients_of_small_tables_collide() -> None:
    said = told("embedding_dense_backward", [[50_000, 64], [50_000], []], [F32, LONG, ""], ["", "", "50"])
    assert "each of 50 rows takes about 1,000 additions" in said
    many = told("embedding_dense_backward", [[50_000, 64], [50_000], []], [F32, LONG, ""], ["", "", "90000"])
    assert many == ""


@pytest.mark.parametrize(
    ("name", "dims", "types", "scalars", "said"),
    [
        pytest.param(
            "scatter_add",
            [[64, 20], [], [64, 40_000], [64, 40_000]],
            [F32, "Scalar", LONG, F32],
            ["", "1", "", ""],
            "each of 20 rows takes about 2,000 additions",
            id="along the second dimension",
        ),
        pytest.param(
            "_index_put_impl_",
            [[50, 64], [], [30_000, 64]],
            [F32, "", F32],
            ["", "", ""],
            "each of 50 rows takes about 600 additions",
            id="rows of values",
        ),
    ],
)
def test_additions_are_counted_by_row(
    name: str, dims: list[Any], types: list[str], scalars: list[str], said: str
) -> None:
    assert said in told(name, dims, types, scalars, kind="indexed row sum")


@pytest.mark.parametrize(
    ("blocks", "few"), [([65], True), ([66], False), ([900, 12, 12], True), ([0], False)]
)
def test_blocks_are_few_below_half_of_the_multiprocessors(blocks: list[int], few: bool) -> None:
    said = told("add", [[64, 64]], [F32], [""], blocks=np.array(blocks))
    assert ("leave most of 132 SMs empty" in said) is few


def test_few_blocks_are_the_reason_of_what_fills_no_device() -> None:
    assert "12 blocks leave most of 132" in told("cumsum", [[64, 99]], [F32], ["", "1"], blocks=NARROW)


def test_the_dimension_along_which_neighbours_lie_apart() -> None:
    assert "dimension 0 neighbours are 512 elements apart" in told(
        "_softmax", [[64, 512], []], [F32, ""], ["", "0"]
    )
    turned = told("sum", [[64, 512], []], [F32, ""], ["", "[1]"], strides=[[1, 64], []])
    assert "dimension 1 neighbours are 64 elements apart" in turned


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "said"),
    [
        ("sum", [[64, 32, 16], []], ["", "[-2]"], "dimension 1 neighbours are 16"),
        ("linalg_vector_norm", [[64, 32], [], []], ["", "2", "[0]"], "dimension 0 neighbours are 32"),
        ("_softmax_backward_data", [[64, 32], [64, 32], []], ["", "", "0"], "dimension 0 neighbours are 32"),
        ("sum", [[64, 32], []], ["", "[1]"], ""),
        ("sum", [[64, 32, 16], []], ["", "[0, 1]"], ""),
        ("relu", [[64, 32], []], ["", "[0]"], ""),
    ],
)
def test_the_dimension_is_read_where_the_op_takes_it(
    name: str, dims: list[Any], scalars: list[str], said: str
) -> None:
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


def test_strided_rows() -> None:
    assert "neighbours in a row of its input are 9 elements apart" in told(
        "mul", [[64, 64]], [F32], [""], strides=[[576, 9]]
    )


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
def test_neighbours_are_apart_by_what_is_behind_their_dimension(
    shape: list[int], dim: int, said: str
) -> None:
    assert told("cumsum", [shape, [], []], [F32, "Scalar", ""], ["", str(dim), ""]) == said
