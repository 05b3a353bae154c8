"""Parts of a short last dimension: taken one by one, joined, picked and summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import US, Op, changed, found, program
from tests.rules.test_needless_work import ADD, F32, LONG, MOVE, SUM


def component(strides: list[int]) -> list[Op]:
    shapes = [[1536, 3072], [1536, 3072]]
    return [Op("aten::add", ADD, 300, shapes, [F32, F32], strides=[strides, [3072, 1]])]


def test_one_component_of_many_moves_whole_sectors() -> None:
    (one,) = found(program(component([27648, 9])), "strided-access")
    assert "every 9th number" in one.message
    assert "1536x3072 with strides [27648, 9]" in one.message
    assert one.evidence["ratio"] == 3.7  # 36 bytes for 4 of 12 that are needed: memory delivers 64 at once


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (22, "22nd"),
        (23, "23rd"),
        (24, "24th"),
        (112, "112th"),
    ],
)
def test_how_far_apart_numbers_lie_is_an_ordinal(apart: int, said: str) -> None:
    (one,) = found(program(component([3072 * apart, apart])), "strided-access")
    assert f"every {said} number" in one.message


def test_a_dimension_of_one_element_has_no_neighbours() -> None:
    """x[..., 3:4] of nine components: the last stride is 1, and nothing lies beside anything."""
    shapes = [[1536, 3072, 1], [1536, 3072, 1]]
    strides = [[27648, 9, 1], [3072, 1, 1]]
    (one,) = found(
        program([Op("aten::add", ADD, 300, shapes, [F32, F32], strides=strides)]), "strided-access"
    )
    assert "every 9th number" in one.message
    assert one.evidence["ratio"] == 3.7


@pytest.mark.parametrize("strides", [[3072, 1], [1, 1536], [0, 1], [4096, 1]])
def test_rows_columns_and_slices_lie_side_by_side(strides: list[int]) -> None:
    assert found(program(component(strides)), "strided-access") == []


def populations(taken: int = 9, along: str = "-1") -> list[Op]:
    """A stack of slices along the last of (2048, 1024, 9), a permutation and a sum along it, and one slice."""
    plane, whole = [2048, 1024], [2048, 1024, 9]
    lists = [[[*plane, 1]] * 9, []]
    return [
        Op("aten::copy_", MOVE, 23, [plane] * 2, [F32] * 2, strides=[[1024, 1], [1024 * taken, taken]]),
        Op("aten::cat", ADD, 857, lists, ["TensorList", "Scalar"], scalars=["", along]),
        Op("aten::index_select", ADD, 450, [whole, [], [9]], [F32, "Scalar", LONG], scalars=["", along, ""]),
        Op("aten::sum", SUM, 120, [whole, []], [F32, "ScalarList"], scalars=["", f"[{along}]"]),
        Op("aten::add", ADD, 54, [whole, whole], [F32, F32]),
    ]


def test_what_joins_picks_and_sums_parts_that_lie_side_by_side_belongs_to_their_layout() -> None:
    (one,) = found(program(populations()), "strided-access")
    assert "aten::copy_ of 2048x1024 with strides [9216, 9]" in one.message
    assert "along the last dimension take" in one.message
    assert one.evidence["along_ns"] == 6 * (857 + 450 + 120) * US
    planes = 5 * 9 * 4 * 2048 * 1024 / (0.6 * 4_800)  # read and written by two ops, read by the sum
    assert one.cost_ns == pytest.approx(6 * (1_427 * US - planes + 0.8 * 23 * US), rel=0.03)


@pytest.mark.parametrize(("taken", "along"), [(9, "0"), (1, "-1"), (18, "-1")])
def test_planes_and_whole_rows_are_left_alone(taken: int, along: str) -> None:
    """Joined along the first dimension, of contiguous slices, or of another tensor's."""
    assert all(
        "along_ns" not in one.evidence for one in found(program(populations(taken, along)), "strided-access")
    )


def test_what_is_written_in_part_is_read_before() -> None:
    """Of 12 bytes for each number 32 more are read, and in place 32 more are written."""
    (plain,) = component([27648, 9])
    (one,) = found(program([replace(plain, name="aten::add_")]), "strided-access")
    assert one.evidence["ratio"] == pytest.approx(1 + 64 / 12, abs=0.05)
    (far,) = found(program(component([3072 * 61, 61])), "strided-access")
    assert far.evidence["ratio"] == 1 + 60 / 12  # a whole sector of 64 bytes


@pytest.mark.parametrize(("columns", "said"), [(512, True), (511, False)])
def test_a_strided_tensor_of_262144_numbers_is_large(columns: int, said: bool) -> None:
    shape = [512, columns]
    op = Op("aten::add", ADD, 300, [shape] * 2, [F32] * 2, strides=[[columns * 9, 9], [columns, 1]])
    assert bool(found(program([op]), "strided-access")) is said


def test_the_largest_tensor_of_an_op_is_named() -> None:
    shapes, strides = [[3072], [1536, 3072]], [[1], [27648, 9]]
    (one,) = found(program([Op("aten::add", ADD, 300, shapes, [F32] * 2, strides=strides)]), "strided-access")
    assert one.evidence["sizes"] == "1536x3072"
    assert one.evidence["strides"] == "[27648, 9]"


def test_a_copy_of_a_column_by_the_copy_engine_is_strided_too() -> None:
    def copy(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel":
            event.update(cat="gpu_memcpy", name="Memcpy DtoD (Device -> Device)")

    (one,) = found(changed(program(component([27648, 9])), copy), "strided-access")
    assert one.evidence["ratio"] == 3.7


def test_the_last_dimension_has_two_numbers() -> None:
    (one,), (other,) = (found(program(populations(along=at)), "strided-access") for at in ("-1", "2"))
    assert one.cost_ns == other.cost_ns


def test_a_longer_contiguous_op_is_not_the_one_that_is_named() -> None:
    longer = Op("aten::mul", ADD, 900, [[1536, 3072]] * 2, [F32] * 2, strides=[[3072, 1]] * 2)
    (one,) = found(program([longer, *component([27648, 9])]), "strided-access")
    assert (one.evidence["by_op"], one.evidence["gpu_share"]) == ("aten::add", 0.25)
