"""Which gradients of a pass an optimizer has, by the blocks of its kernels over lists of tensors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from traceanalyzer.rules.tensors.unused_gradient.optimizer_lists import (
    Zeroing,
    chunks,
    first_updated,
    updated_at_an_end,
)

ONE, TWO, THREE = (65_536,), (65_537,), (3, 65_536)
"""Tensors of one, two and three blocks."""
PASS = np.arange(4)


def test_a_tensor_has_a_block_for_each_65536_elements_begun() -> None:
    assert chunks([(), ONE, TWO, THREE, (131_072,)]).tolist() == [1, 1, 2, 3, 2]


@pytest.mark.parametrize(
    ("shapes", "size", "blocks", "first", "either"),
    [
        ([ONE, TWO, THREE, THREE], 2, 3, [ONE, TWO], [ONE, TWO]),
        ([THREE, THREE, ONE, TWO], 2, 3, [], [ONE, TWO]),
        ([ONE, TWO, TWO, ONE], 2, 3, [], []),  # both ends make as many
        ([ONE, TWO, TWO, ONE], 2, 4, [], []),
        ([ONE, TWO, TWO, ONE], 4, 6, [ONE, TWO, TWO, ONE], [ONE, TWO, TWO, ONE]),  # all of them
        ([ONE, TWO, THREE, THREE], 0, 0, [], []),
        ([ONE, TWO, THREE, THREE], 5, 9, [], []),
    ],
)
def test_block_counts_show_the_optimizer_gradients(
    shapes: list[tuple[int, ...]],
    size: int,
    blocks: int,
    first: list[tuple[int, ...]],
    either: list[tuple[int, ...]],
) -> None:
    assert first_updated(PASS, shapes, size, blocks) == Counter(first)
    assert updated_at_an_end(PASS, shapes, size, blocks) == Counter(either)


def zeroed(begin_ns: int, end_ns: int, wanted: list[int]) -> bool:
    """Whether one of three ops does: of a tensor at 100 ns, of two at 200 ns, of a list of five blocks at 300 ns."""
    ops = Zeroing(
        np.array([100, 200, 300]),
        [Counter([ONE]), Counter([TWO, TWO]), Counter[tuple[int, ...]]()],
        np.array([0, 0, 5]),
    )
    return ops.all_of([ONE, TWO, TWO, TWO, THREE], np.array(wanted), begin_ns, end_ns)


@pytest.mark.parametrize(
    ("begin_ns", "end_ns", "wanted", "all_of_them"),
    [
        (100, 201, [0, 1, 2], True),
        (101, 201, [0, 1, 2], False),
        (100, 200, [0, 1], False),
        (100, 201, [1, 2, 3], False),  # three of such a size, and two are set to zero
        (100, 301, [1, 4], True),  # two and three blocks
        (100, 300, [1, 4], False),
        (301, 400, [1, 4], False),
        (100, 301, [0, 4], False),
    ],
)
def test_gradients_are_cleared_that_ops_in_that_time_set_to_zero(
    begin_ns: int, end_ns: int, wanted: list[int], all_of_them: bool
) -> None:
    assert zeroed(begin_ns, end_ns, wanted) is all_of_them
