"""Why a call is far from its bound, as far as the trace shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from traceanalyzer.roofline.signatures import Signature
from traceanalyzer.rules.kernels.far_from_bound.reasons import reason

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


def test_few_blocks_are_the_reason_of_what_fills_no_device() -> None:
    assert "12 blocks leave most of 132" in told("cumsum", [[64, 99]], [F32], ["", "1"], blocks=NARROW)


def test_the_dimension_along_which_neighbours_lie_apart() -> None:
    assert "dimension 0 neighbours are 512 elements apart" in told(
        "_softmax", [[64, 512], []], [F32, ""], ["", "0"]
    )
    turned = told("sum", [[64, 512], []], [F32, ""], ["", "[1]"], strides=[[1, 64], []])
    assert "dimension 1 neighbours are 64 elements apart" in turned


def test_strided_rows_and_short_rows() -> None:
    assert "neighbours in a row of its input are 9 elements apart" in told(
        "mul", [[64, 64]], [F32], [""], strides=[[576, 9]]
    )
    assert "rows of 128" in told("native_layer_norm", [[9_999, 128]], [F32], [""], kind="norm")


def test_nothing_is_said_where_nothing_shows() -> None:
    assert told("add", [[64, 64], [64, 64]], [F32, F32], ["", ""]) == ""
    assert told("add", [], [], []) == ""
