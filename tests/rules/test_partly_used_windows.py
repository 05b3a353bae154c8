"""Whole windows that are normalised for their last element, and masks of all classes of which one is taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import F32, Op, found, program

MOVE = "void at::native::vectorized_elementwise_kernel<4>(char*)"
WIDE, NARROW = [64, 512, 48], [64, 512, 1]


def op(name: str, dur: int, dims: list[Any], *scalars: str) -> Op:
    """An op on tensors and, after them, numbers; a view where it takes no time."""
    kinds = [F32] * len(dims) + ["Scalar"] * len(scalars)
    dims = [*dims, *([] for _ in scalars)]
    return Op(
        f"aten::{name}",
        MOVE * bool(dur),
        dur,
        dims,
        kinds,
        scalars=[""] * (len(dims) - len(scalars)) + [*scalars],
    )


def windows(*more: Op, padding: int = 0) -> list[Op]:
    """The last element of each window, less the mean, over the deviation; both need all of the window."""
    return [
        op("unfold", 0, [[64, 559]], "1", "48", "1"),
        op("mean", 60, [WIDE], "[-1]", "True", ""),
        op("std", 70, [WIDE], "[-1]", "True", "True"),
        op("sub", 200, [WIDE, NARROW], "1"),
        op("div", 300, [WIDE, NARROW]),
        op("select", 0, [WIDE], "2", "-1"),
        *more,
        *[op("linear", 40, [[64, 512], [512, 512]])] * (9 + padding),
    ]


@pytest.mark.parametrize("padding", [0, 5])
def test_of_normalised_windows_only_the_last_elements_are_needed(padding: int) -> None:
    """What the next step takes the mean of is the next step's."""
    (one,) = found(program(windows(padding=padding)), "partly-used")
    assert one.cost_ns == pytest.approx(6 * 500_000 * (1 - 1 / 48), rel=0.001)
    assert one.evidence["cut"] == "aten::select"


def test_the_mean_of_what_was_normalised_needs_all_of_it() -> None:
    """As the mean of the windows, but right after the select."""
    assert found(program(windows(op("mean", 60, [WIDE], "[-1]", "True", ""))), "partly-used") == []


def masks(*reader: Op, sizes: str = "") -> list[Op]:
    """Masks of 80 classes, made larger, of which an index, which is not recorded, takes one for each box."""
    large = [100, 80, 112, 112]
    factors = ("", "False", "[4., 4.]") if not sizes else (sizes, "False")
    return [
        op("conv2d", 300, [[100, 256, 28, 28], [80, 256, 1, 1], [80]], "[1, 1]", "[0, 0]", "[1, 1]", "1"),
        op("sigmoid", 50, [[100, 80, 28, 28]]),
        op("upsample_bilinear2d", 2_000, [[100, 80, 28, 28]], *factors),
        op("gt", 400, [large], "0.5"),
        Op("aten::index", MOVE, 30, [large, []], [F32, ""]),
        *reader,
        op("linear", 900, [[512, 512], [512, 512]]),
    ]


SHOWN = op("view", 0, [[100, 112, 112]], "[4, 25, 112, 112]")


@pytest.mark.parametrize("sizes", ["", "[112, 112]"])
def test_of_masks_of_all_classes_one_is_taken(sizes: str) -> None:
    (one,) = found(program(masks(SHOWN, sizes=sizes)), "partly-used")
    assert one.evidence["kept"] == "1.2 %"
    assert one.cost_ns == pytest.approx(6 * 2_450_000 * (1 - 1 / 80), rel=0.001)


def test_a_view_later_on_tells_nothing_of_the_index() -> None:
    assert found(program(masks(op("view", 0, [[7, 7]], "[49]"), SHOWN)), "partly-used") == []
