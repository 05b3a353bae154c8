"""A large matrix is inverted for a few columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import F32, Op, by_step, found, program

LU = "void getrf_pivot<float, 4>(int)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
GEMV = "void gemvNSP_kernel<float>(float*)"


def fitted(*extra: Op, rows: int = 2_560, columns: int = 1, between: int = 0) -> list[Op]:
    """An inverse that is multiplied by so many columns, and its backward."""
    square = [rows, rows]
    return [
        Op("aten::mul", GEMV, 200, [[9, 9]], [F32]),
        Op("aten::linalg_inv", LU, 900, [square], [F32]),
        *[Op("aten::relu", GEMV, 5, [[7, 7]], [F32])] * between,
        Op("aten::matmul", GEMV, 20, [square, [rows, columns]], [F32, F32]),
        *extra,
        Op("autograd::engine::evaluate_function: LinalgInvExBackward0", GEMM, 300, [square], [F32]),
    ]


LOGDET = Op("aten::logdet", LU, 400, [[2_560, 2_560]], [F32])


@pytest.mark.parametrize(
    ("ops", "saved", "others"),
    [
        pytest.param(fitted(), 600, "", id="an inverse"),
        pytest.param(fitted(LOGDET), 600 + 400, ", and aten::logdet factorises", id="and a log-determinant"),
    ],
)
def test_an_inverse_for_a_few_columns_is_a_solution(ops: list[Op], saved: int, others: str) -> None:
    (one,) = found(program(ops), "explicit-inverse")
    assert one.by == "2560x2560"
    assert f"is inverted and multiplied by a few columns{others}" in one.message
    assert one.cost_ns == pytest.approx(6e3 * saved, rel=0.02)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(fitted(rows=128), id="a small matrix"),
        pytest.param(fitted(columns=1_280), id="half as many columns as rows"),
        pytest.param(fitted(columns=2_560), id="a product of two square matrices"),
        pytest.param(fitted(between=8), id="no product near"),
        pytest.param([LOGDET, *fitted()[2:]], id="no inverse"),
        pytest.param(
            [*fitted(), Op("aten::mm", GEMM, 40_000, [[8, 8], [8, 8]], [F32, F32])], id="a small part"
        ),
    ],
)
def test_inverses_that_are_needed_or_small_are_left_alone(ops: list[Op]) -> None:
    assert found(program(ops), "explicit-inverse") == []


@pytest.mark.parametrize(
    ("factors", "few"),
    [
        pytest.param([[2_560, 2_560], [2_560]], True, id="a vector"),
        pytest.param([[2_560, 2_560], [2_560, 640]], True, id="a quarter as many columns"),
        pytest.param([[2_560, 2_560], [2_560, 641]], False, id="more columns"),
        pytest.param([[640, 2_560], [2_560, 2_560]], True, id="a quarter as many rows from the left"),
        pytest.param([[641, 2_560], [2_560, 2_560]], False, id="more rows from the left"),
    ],
)
def test_few_columns_are_those_of_the_other_factor(factors: list[list[int]], few: bool) -> None:
    ops = [replace(op, dims=factors) if op.name == "aten::matmul" else op for op in fitted()]
    assert bool(found(program(ops), "explicit-inverse")) is few


def test_what_factorises_another_matrix_is_not_again() -> None:
    other = replace(LOGDET, dims=[[1_024, 1_024]])
    (one,) = found(program(fitted(other)), "explicit-inverse")
    assert one.evidence["others"] == ""
    assert one.cost_ns == pytest.approx(6e3 * 600, rel=0.02)
    (twice,) = found(program(fitted(LOGDET, LOGDET)), "explicit-inverse")
    assert twice.evidence["others"] == "aten::logdet"


@pytest.mark.parametrize(
    ("shape", "solving"),
    [
        pytest.param([2_560, 2_560], 0, id="a third of the inverse stays"),
        pytest.param([6, 2_560, 2_560], 4 * 0.75 * 2_560, id="a batch is solved row after row"),
    ],
)
def test_factors_and_a_solution_take_the_place_of_the_inverse(shape: list[int], solving: float) -> None:
    ops = [
        replace(op, dims=[shape, *op.dims[1:]], dur=20_000 * (op.name == "aten::linalg_inv") or op.dur)
        for op in fitted(LOGDET)
        if op.name != "aten::mul"
    ]
    ops[1] = replace(ops[1], dims=[shape, [*shape[:-1], 1]])
    (one,) = found(program(ops), "explicit-inverse")
    assert one.saving is not None
    whole = sum(op.dur for op in ops)
    stays = 20_000 / 3 + solving + 20 + 300
    assert one.saving.share == pytest.approx(1 - stays / whole, abs=0.02)


def test_where_nothing_is_trained_a_batch_is_solved_forward_only() -> None:
    shape, ops = [6, 2_560, 2_560], fitted()[1:3]
    ops = [
        replace(ops[0], dims=[shape], dur=20_000),
        replace(ops[1], dims=[shape, [6, 2_560, 1]], name="aten::bmm"),
    ]
    (one,) = found(program(ops), "explicit-inverse")
    assert one.saving is not None
    stays = 20_000 / 3 + 2 * 0.75 * 2_560 + 20
    assert one.saving.share == pytest.approx(1 - stays / 20_020, abs=0.02)


def test_an_inverse_added_to_a_product_is_not_its_factor() -> None:
    """The first op takes it as the bias; its factor comes after."""
    square = [2_560, 2_560]
    added = Op("aten::addmm", GEMM, 50, [square, [2_560, 4], [4, 2_560]], [F32] * 3)
    mul, inverse, product, back = fitted()
    (one,) = found(program([mul, inverse, added, product, back]), "explicit-inverse")
    assert one.cost_ns == pytest.approx(6e3 * 600, rel=0.02)


@pytest.mark.parametrize(
    ("between", "rows", "said"), [(7, 2_560, 1), (8, 2_560, 0), (0, 256, 1), (0, 255, 0)]
)
def test_product_is_within_eight_ops_matrix_has_256_rows(between: int, rows: int, said: int) -> None:
    assert len(found(program(fitted(between=between, rows=rows)), "explicit-inverse")) == said


def test_views_before_the_product_are_not_counted() -> None:
    view = Op("aten::view", "", 0, [[7, 7], []], [F32, "ScalarList"])
    mul, inverse, product, back = fitted()
    assert len(found(program([mul, inverse, *[view] * 9, product, back]), "explicit-inverse")) == 1


def test_what_factorises_in_another_step_is_not_again() -> None:
    """In the second of two steps nothing is inverted: there the log-determinant is all there is."""

    def change(event: dict[str, Any], step: int) -> None:
        if step == 1 and event.get("name") == "aten::linalg_inv":
            event["name"] = "aten::relu"

    (one,) = found(by_step(program(fitted(LOGDET), steps=2), change), "explicit-inverse")
    assert one.cost_ns == pytest.approx(1e3 * (600 + 400), rel=0.02)
