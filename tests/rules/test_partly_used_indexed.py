"""Parts that two indices take, and windows of which one number is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, found, program
from tests.support.partly_used_results import signature
from traceanalyzer.tensors.ops.table import result_shape

HALF = "c10::Half"
SMALL = "void at::native::vectorized_elementwise_kernel<4, float>(int)"
LOGITS, MASKS = [400, 80, 28, 28], [400, 80, 112, 112]


def masks(*after: Op, factors: str = "[4., 4.]") -> list[Op]:
    """Masks of all classes, resized and compared; then that of one class is picked of each."""
    resize = [HALF, "", "Scalar", "ScalarList"]
    return [
        Op("aten::conv2d", NVJET, 900, [[400, 256, 28, 28], [80, 256, 1, 1]], [HALF, HALF]),
        Op("aten::arange", SMALL, 1, [[], []], ["Scalar", ""], scalars=["400", ""]),
        Op("aten::sigmoid", SMALL, 50, [LOGITS], [HALF]),
        Op(
            "aten::upsample_bilinear2d",
            SMALL,
            900,
            [LOGITS, [], [], []],
            resize,
            scalars=["", "", "False", factors],
        ),
        Op("aten::gt", SMALL, 400, [MASKS, []], [HALF, "Scalar"], scalars=["", "0.5"]),
        Op("aten::index", SMALL, 20, [MASKS, []], ["bool", ""]),
        *after,
    ]


def viewed(shape: list[int]) -> Op:
    return Op("aten::view", "", 0, [shape, []], ["bool", "ScalarList"], scalars=["", "[4, 100, 112, 112]"])


def test_one_channel_of_each_row_is_picked_before_resizing() -> None:
    (one,) = found(program(masks(viewed([400, 112, 112]))), "partly-used")
    assert "400x80x112x112 is computed in full, but aten::index takes only 1.2 % of it" in one.message
    assert one.advice == "Take the part of 400x80x28x28 before aten::sigmoid, and compute only that."
    assert one.cost_ns == pytest.approx(6 * 1_350e3 * (1 - 1 / 80))


def test_what_reads_the_picked_channels_goes_before_a_view() -> None:
    unlike, twice = viewed([600, 112, 112]), Op("aten::abs", SMALL, 5, [[800, 112, 112]], [HALF])
    (one,) = found(program(masks(unlike, twice)), "partly-used")
    assert one.cost_ns == pytest.approx(6 * 1_350e3 * (1 - 2 / 80))


@pytest.mark.parametrize(
    "ops",
    [
        masks(),
        masks(viewed(MASKS)),
        masks(viewed([400, 112, 111])),
        masks(viewed([32_000, 784]), viewed([400, 112, 112])),
        masks(viewed([400, 112, 112]), Op("aten::sum", SMALL, 90, [MASKS, []], ["bool", ""])),
        masks(viewed([400, 112, 112]), factors="[3., 3.]")[3:],
    ],
    ids=["unknown", "whole", "other", "later", "read-whole", "other-size"],
)
def test_what_is_not_known_to_be_picked_of_it_stays(ops: list[Op]) -> None:
    costs = [one.cost_ns for one in found(program(ops), "partly-used")]
    assert all(cost < 6 * 400e3 for cost in costs)  # at most what is compared last
    assert len(costs) == (len(ops) < 6)


def windows(*after: Op, between: tuple[Op, ...] = (), twice: bool = False) -> list[Op]:
    """Sliding windows, less their mean and by their deviation, of which the last number is kept."""
    whole, one = [256, 4096, 64], [256, 4096, 1]
    scalar, over = "Scalar", ["", "[-1]", "True", ""]
    cut = [whole, [], []], [F32, scalar, scalar]
    return [
        Op("aten::conv1d", NVJET, 900, [[256, 4, 4096], [48, 4, 1]], [F32, F32]),
        Op(
            "aten::unfold",
            "",
            0,
            [[256, 4159], [], [], []],
            [F32, *[scalar] * 3],
            scalars=["", "1", "64", "1"],
        ),
        Op("aten::mean", SMALL, 100, [whole, [], [], []], [F32, "ScalarList", scalar, ""], scalars=over),
        Op("aten::std", SMALL, 200, [whole, [], [], []], [F32, "ScalarList", scalar, scalar], scalars=over),
        *between,
        Op("aten::sub", SMALL, 300, [whole, one, []], [F32, F32, scalar], scalars=["", "", "1"]),
        Op("aten::div", SMALL, 400, [whole, one], [F32, F32], scalars=["", ""]),
        Op("aten::select", "", 0, *cut, scalars=["", "2", "-1"]),
        *([Op("aten::select", "", 0, *cut, scalars=["", "2", "0"])] if twice else []),
        Op("aten::abs", SMALL, 10, [[256, 4096]], [F32]),
        *after,
    ]


def reads(shape: list[int], name: str = "aten::exp") -> Op:
    return Op(name, SMALL, 30, [shape], [F32])


def test_scaling_windows_for_one_number_is_needless() -> None:
    (one,) = found(program(windows()), "partly-used")
    assert one.advice == "Take the part of 256x4096x64 before aten::sub, and compute only that."
    assert one.cost_ns == pytest.approx(6 * 700e3 * (1 - 1 / 64))


def test_two_parts_of_tensors_of_one_shape_accuse_no_op() -> None:
    """By their shape nobody can say which of the tensors each part is cut from."""
    assert found(program(windows(twice=True)), "partly-used") == []


@pytest.mark.parametrize(
    "ops",
    [
        windows(reads([256, 4096, 64])),
        windows(reads([256, 4096, 64]), reads([256, 4096])),
        [*windows(), *windows(reads([256, 4096, 64]))],
        windows(between=tuple(reads([256, 4096], f"aten::{name}") for name in ("exp", "cos") * 5)),
        windows()[2:],
    ],
    ids=["read-whole", "not-last", "in-one-of-two", "far", "no-windows"],
)
def test_windows_that_are_read_whole_stay(ops: list[Op]) -> None:
    assert found(program(ops), "partly-used") == []


def test_sizes_are_those_of_recorded_factors_and_windows() -> None:
    image: list[Any] = [[8, 3, 15, 32]]
    assert result_shape(signature("upsample_nearest2d", image, "", "[1.5, 2.]")) == (8, 3, 22, 64)
    assert result_shape(signature("_upsample_bilinear2d_aa", image, "", "False", "[0.5, 2]")) == (8, 3, 7, 64)
    assert result_shape(signature("upsample_bilinear2d", image, "[9, 9]", "False", "")) == (8, 3, 9, 9)
    for damaged in (("", "False", "[2.]"), ("", "False"), ("", "[x, 2.]")):
        assert result_shape(signature("upsample_bilinear2d", image, *damaged)) is None
    assert result_shape(signature("unfold", image, "-1", "4", "3")) == (8, 3, 15, 10, 4)
    assert result_shape(signature("unfold", image, "0", "4", "2")) == (3, 3, 15, 32, 4)
