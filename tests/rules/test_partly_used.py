"""Products of which only a part is used."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program

WHOLE = [8, 512, 32_000]
SMALL = "void at::native::reduce_kernel<512, 1, at::native::argmax>(float)"


def head(view: Op | None, reader: list[int], between: Op | None = None) -> list[Op]:
    """A product of all positions, a view of it, and what reads that."""
    product = Op("aten::linear", NVJET, 900, [[8, 512, 1024], [32_000, 1024]], [BF16, BF16])
    last = Op("aten::argmax", SMALL, 10, [reader, []], [BF16, "Scalar"])
    return [product, *(one for one in (between, view) if one), last]


def select(*scalars: Any) -> Op:
    return Op(
        "aten::select", SMALL, 1, [WHOLE, [], []], [BF16, "Scalar", "Scalar"], scalars=list(map(str, scalars))
    )


def test_the_last_position_of_many_is_all_that_is_used() -> None:
    (one,) = found(program(head(select("", 1, -1), [8, 32_000])), "partly-used")
    assert "0.2 % of the result is used" in one.message
    assert "head(hidden[:, -1:])" in one.advice


def test_a_slice_keeps_its_part() -> None:
    types = [BF16, "Scalar", "Scalar", "Scalar", "Scalar"]
    few = Op("aten::slice", SMALL, 1, [WHOLE, [], [], [], []], types, scalars=["", "1", "0", "64", "1"])
    (one,) = found(program(head(few, [8, 64, 32_000])), "partly-used")
    assert "12 % of the result is used" in one.message
    most = Op("aten::slice", SMALL, 1, [WHOLE, [], [], [], []], types, scalars=["", "1", "0", "511", "1"])
    assert found(program(head(most, [8, 511, 32_000])), "partly-used") == []


def test_what_is_read_whole_beside_the_slice_is_used() -> None:
    loss = Op("aten::log_softmax", SMALL, 100, [WHOLE, []], [BF16, "Scalar"])
    assert found(program(head(select("", 1, -1), [8, 32_000], loss)), "partly-used") == []
    assert found(program(head(None, WHOLE)), "partly-used") == []


def mean(dims: str) -> Op:
    return Op(
        "aten::mean", SMALL, 20, [WHOLE, [], []], [BF16, "ScalarList", "Scalar"], scalars=["", dims, "False"]
    )


def test_rows_are_averaged_before_the_product() -> None:
    (one,) = found(program(head(mean("[1]"), [8, 32_000])), "partly-used")
    assert one.cause == "averaged"
    assert "computed for all rows once a step, and then averaged over them" in one.message
    assert one.cost_ns == pytest.approx(6 * 900e3 * (1 - 1 / 512))
    gate = [Op("aten::sigmoid", SMALL, 1, [[8, 32_000]], [BF16])] * 10
    gated = [
        *head(mean("[1]"), [8, 32_000]),
        *gate,
        Op("aten::mul", SMALL, 90, [WHOLE, [8, 1, 32_000]], [BF16] * 2),
    ]
    for ops in (head(mean("[1, 2]"), [8]), head(mean("[-1]"), [8, 512]), gated):
        assert found(program(ops), "partly-used") == []


def test_a_sum_of_products_of_different_matrices_stays() -> None:
    types, shape = [F32, F32], [512, 12, 32]
    product = Op("aten::bmm", NVJET, 900, [[512, 12, 4_096], [512, 4_096, 32]], types)
    total = Op(
        "aten::sum", SMALL, 20, [shape, [], []], [F32, "ScalarList", "Scalar"], scalars=["", "[0]", "False"]
    )
    assert found(program([product, total]), "partly-used") == []


def between(name: str, dims: list[Any], types: list[str], *scalars: Any) -> Op:
    """An op that passes over the whole result, for half of the product's time."""
    return Op(name, SMALL, 450, dims, types, scalars=list(map(str, scalars)))


ROW = [8, 32_000]
CAST = between("aten::to", [WHOLE, [], []], [BF16, "Scalar", "Scalar"], "", 6, False)
LOGITS = between("aten::log_softmax", [WHOLE, [], []], [BF16, "Scalar", ""], "", -1, "")
FLAT = Op("aten::reshape", SMALL, 1, [WHOLE, []], [BF16, "ScalarList"], scalars=["", "[4096, 32000]"])


@pytest.mark.parametrize(
    ("ops", "part"),
    [
        ([CAST, select("", 1, -1)], 1 / 512),
        ([between("aten::div", [WHOLE, []], [BF16, "double"], "", ""), CAST, select("", 1, -1)], 1 / 512),
        ([LOGITS, select("", 1, 0)], 1 / 512),
        (
            [
                between("aten::add", [WHOLE, [32_000], []], [BF16, BF16, "Scalar"], "", "", 1),
                between("aten::index", [WHOLE, [[8], [8]]], [BF16, "TensorList"]),
            ],
            8 / (8 * 512),
        ),
        (
            [
                FLAT,
                CAST,
                between(
                    "aten::index_select", [[4_096, 32_000], [], [8]], [BF16, "Scalar", "long int"], "", 0
                ),
            ],
            8 / 4_096,
        ),
    ],
)
def test_what_scales_or_converts_all_rows_before_the_slice_is_needless_too(
    ops: list[Op], part: float
) -> None:
    product, *_, reader = head(None, ROW)
    (one,) = found(program([product, *ops, reader]), "partly-used")
    passing = sum(op.name in ("aten::to", "aten::div", "aten::add", "aten::log_softmax") for op in ops)
    assert one.cost_ns == pytest.approx(6 * (900e3 + passing * 450e3) * (1 - part))
    assert "and what scales or converts their results," in one.message


@pytest.mark.parametrize(
    "ops",
    [
        [between("aten::softmax", [WHOLE, [], []], [BF16, "Scalar", ""], "", 1, ""), select("", 1, -1)],
        [CAST, select("", 1, -1), LOGITS],
        [
            between("aten::mul", [WHOLE, [8, 512, 1]], [BF16] * 2),
            CAST,
            between("aten::index", [WHOLE, [[8, 512]]], [BF16]),
        ],
        [LOGITS, between("aten::gather", [WHOLE, [], [8, 512, 1]], [BF16, "Scalar", "long int"], "", -1)],
        [between("aten::copy_", [WHOLE, WHOLE, []], [BF16, BF16, "Scalar"]), select("", 1, -1)],
        [select("", 1, at) for at in range(512)],
    ],
    ids=["across-rows", "whole-later", "mask", "one-of-each-row", "kept-in-a-buffer", "many-slices"],
)
def test_what_needs_all_rows_or_many_of_them_is_left_alone(ops: list[Op]) -> None:
    product, *_, reader = head(None, ROW)
    assert found(program([product, *ops, reader]), "partly-used") == []
