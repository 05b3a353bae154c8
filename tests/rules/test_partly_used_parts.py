"""How much is used of a tensor of which parts are taken: by pieces, indices, and slices of slices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program
from tests.rules.test_partly_used import CAST, ROW, SMALL, WHOLE, between, head, select

SLUG = "partly-used"
PIECE = [128, 197, 384]


def made(shape: list[int]) -> Op:
    """A product of so many rows, for 900 us."""
    return Op("aten::linear", NVJET, 900, [shape, [384, 384]], [F32, F32])


def cut(name: str, shape: list[int], *scalars: Any) -> Op:
    types = [F32, *["Scalar"] * len(scalars)]
    return Op(name, SMALL, 1, [shape, *[[]] * len(scalars)], types, scalars=["", *map(str, scalars)])


@pytest.mark.parametrize(
    ("shape", "cut_", "reads", "kept"),
    [
        ([512, 197, 384], ("aten::chunk", 4, 0), [PIECE], "25 %"),
        ([512, 197, 384], ("aten::chunk", 4, 0), [PIECE, PIECE], "50 %"),
        ([512, 197, 384], ("aten::split", 128, 0), [PIECE], "25 %"),
        ([128, 4, 197, 384], ("aten::unbind", 1), [PIECE], "25 %"),
        ([4, 128, 197, 384], ("aten::unbind", 0), [PIECE], "25 %"),
        ([512, 197, 384], ("aten::split", 100, 0), [[100, 197, 384]], None),  # the last one is smaller
    ],
)
def test_as_many_pieces_are_used_as_ops_read(
    shape: list[int], cut_: tuple[Any, ...], reads: list[list[int]], kept: str | None
) -> None:
    reader = Op("aten::mul", SMALL, 9, reads, [F32] * len(reads))
    said = found(program([made(shape), cut(cut_[0], shape, *cut_[1:]), reader]), SLUG)
    assert [one.evidence["kept"] for one in said] == ([kept] if kept else [])


@pytest.mark.parametrize(
    ("indices", "taken", "part"),
    [
        ([[8], [1]], [8, 32_000], 8 / (8 * 512)),  # one of them for all rows
        ([[1], [8]], [8, 32_000], 8 / (8 * 512)),
        ([[2, 4]], [2, 4, 512, 32_000], None),  # a table of indices takes as many as it has
    ],
)
def test_an_index_takes_as_many_as_its_longest_list(
    indices: list[list[int]], taken: list[int], part: float | None
) -> None:
    index = between("aten::index", [WHOLE, indices], [BF16, "TensorList"])
    product, *_, reader = head(None, taken)
    said = found(program([product, index, reader]), SLUG)
    assert [one.cost_ns for one in said] == ([pytest.approx(6 * 900e3 * (1 - part))] if part else [])


def test_a_slice_of_a_slice_keeps_a_part_of_the_part() -> None:
    shape, most = [64, 8, 384], [64, 5, 384]
    ops = [made(shape), cut("aten::slice", shape, 1, 0, 5, 1), cut("aten::select", most, 1, 0)]
    (one,) = found(program([*ops, Op("aten::exp", SMALL, 9, [[64, 384]], [F32])]), SLUG)
    assert one.cost_ns == pytest.approx(6 * 901e3 * 7 / 8, rel=0.01)


@pytest.mark.parametrize(("others", "said"), [(7, True), (8, False)])
def test_each_op_is_looked_for_near_the_one_that_reads_it(others: int, said: bool) -> None:
    """Among the 8 ops before, and again before each op that is found."""
    apart = [Op("aten::neg", SMALL, 1, [[9, 9]], [F32])] * others
    product, *_, reader = head(None, ROW)
    ops = [product, *apart, CAST, *apart, select("", 1, -1), reader]
    assert [one.cost_ns for one in found(program(ops), SLUG)] == (
        [pytest.approx(6 * (900e3 + 450e3) * 511 / 512)] if said else []
    )
