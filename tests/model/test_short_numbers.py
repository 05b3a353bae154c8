"""Whole numbers in few bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.model.short_numbers import numbers_of, short


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers_are_the_same_after_their_way(numbers: list[int]) -> None:
    assert numbers_of(short(np.array(numbers, np.int64))).tolist() == numbers


def test_small_numbers_take_a_byte_and_larger_ones_more() -> None:
    assert [len(short(np.array([one]))) for one in (0, -64, 63, 64, -8_192, 8_192, 2**61)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        9,
    ]
