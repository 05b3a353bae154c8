"""In which order the parts of a list lie in memory."""

from __future__ import annotations

from typing import Any

import pytest

from traceanalyzer.roofline.signatures import Signature
from traceanalyzer.rules.copies.strided_copy.orders import _order, _orders, _tensor

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
    assert _orders(listed(*parts)) == orders


def test_the_largest_stride_comes_first() -> None:
    """Channels last."""
    assert _order([2, 3, 4, 5], [60, 1, 15, 3]) == (0, 2, 3, 1)


def test_an_input_is_known_by_its_shape_and_strides() -> None:
    one = Signature("aten::add", ([8, 16], [8, 16], []), ("float",) * 3, (), ([16, 1], [1, 8]))
    assert _tensor(one, 0) == ((8, 16), (16, 1))
    assert _tensor(one, 1) == ((8, 16), (1, 8))
    assert _tensor(one, 4) is None
    assert _tensor(Signature("aten::add", ([8, 16],), ("float",), ()), 0) is None
