"""In which order the parts of a list lie in memory."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.rules.copies.strided_copy.lost_layout import (
    dimension_order,
    dimension_orders,
    is_whole,
    keeps_order,
    shape_and_strides,
)
from traceanalyzer.tensors.signatures import Signature

ROWS, COLUMNS = ([8, 16], [16, 1]), ([8, 16], [1, 8])


def listed(*parts: tuple[Any, Any]) -> Signature:
    """An op on a list of (shape, strides)."""
    shapes, strides = [one for one, _ in parts], [one for _, one in parts]
    return Signature("aten::cat", (shapes, []), ("TensorList",), (), (strides,))


@pytest.mark.parametrize(
    ("parts", "orders"),
    [
        ((ROWS, ROWS), {(0, 1)}),
        ((COLUMNS, COLUMNS), {(1, 0)}),
        ((ROWS, COLUMNS), {(0, 1), (1, 0)}),
        ((ROWS, ([8, 1], [16, 1])), {(0, 1), (0,)}),  # of one element there is no order
        ((ROWS, ([8, 16], [16])), set()),
        ((ROWS, ([8, 16], None)), set()),
        ((ROWS, ([8, "x"], [16, 1])), set()),
        ((), set()),
    ],
)
def test_parts_lie_in_one_order_or_in_several(parts: Any, orders: set[tuple[int, ...]]) -> None:
    assert dimension_orders(listed(*parts)) == orders


def test_the_largest_stride_comes_first() -> None:
    """Channels last."""
    assert dimension_order([2, 3, 4, 5], [60, 1, 15, 3]) == (0, 2, 3, 1)


def test_an_input_is_known_by_its_shape_and_strides() -> None:
    one = Signature("aten::add", ([8, 16], [8, 16], []), ("float",) * 3, (), ([16, 1], [1, 8]))
    assert shape_and_strides(one, 0) == ((8, 16), (16, 1))
    assert shape_and_strides(one, 1) == ((8, 16), (1, 8))
    assert shape_and_strides(one, 4) is None
    assert shape_and_strides(Signature("aten::add", ([8, 16],), ("float",), ()), 0) is None


class Copies:
    """Copies by (outermost op, ns, number of its inputs)."""

    def __init__(self, rows: list[tuple[str, int, int]]) -> None:
        self.rows = rows
        self.total_ns = sum(ns for _, ns, _ in rows)
        self.entries = np.array([number for *_, number in rows], np.int64)
        names = [name for name, *_ in rows]
        found = SimpleNamespace(
            matches=lambda pattern: np.array([bool(re.search(pattern, one)) for one in names])
        )
        self.outer_op = SimpleNamespace(name=found)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Any) -> Copies:
        return Copies([row for row, kept in zip(self.rows, chosen, strict=True) if kept])


def of_two(name: str, *inputs: tuple[Any, Any]) -> Signature:
    shapes, strides = tuple(one for one, _ in inputs), tuple(one for _, one in inputs)
    return Signature(name, shapes, ("float",) * len(inputs), (), strides)


UNKNOWN: Any = ([8, 16], None)


@pytest.mark.parametrize(
    ("added", "copied", "norm_ns", "keeps"),
    [
        ((COLUMNS, ROWS), COLUMNS, 50, True),
        ((COLUMNS, ROWS), COLUMNS, 49, False),  # less than half of the time
        ((ROWS, COLUMNS), COLUMNS, 50, False),  # only the first input's order is handed on
        ((UNKNOWN, ROWS), UNKNOWN, 50, False),  # no strides are recorded
    ],
)
def test_norms_copy_what_additions_hand_on(added: Any, copied: Any, norm_ns: int, keeps: bool) -> None:
    signatures = [of_two("aten::add", *added), of_two("aten::copy_", ROWS, copied)]
    copies: Any = Copies([("aten::layer_norm", norm_ns, 1), ("aten::cat", 100 - norm_ns, 0)])
    inputs: Any = SimpleNamespace(signatures=signatures, number=np.array([0, 1]))
    assert keeps_order(copies, inputs, 0.5) is keeps


@pytest.mark.parametrize(
    ("dims", "strides", "whole"),
    [
        ("[[8, 16], [8, 16]]", "[[16, 1], [16, 1]]", True),
        ("[[8, 16], [8, 16]]", "[[1, 8], [16, 1]]", True),
        ("[[8, 16], [8, 16]]", "[[32, 1], [16, 1]]", False),  # every other row
        ("[[8, 16], [8, 16]]", "[[0, 1], [16, 1]]", False),  # a row eight times
        ("[[0, 16], [0, 16]]", "[[16, 1], [16, 1]]", False),  # nothing
        ("[[8, 16], [8, 16]]", None, False),
        (None, None, False),
    ],
)
def test_what_is_written_as_a_whole_lies_in_one_piece(
    dims: str | None, strides: str | None, whole: bool
) -> None:
    assert is_whole(dims, strides) is whole
