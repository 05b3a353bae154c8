"""The statistics, against what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Counted, Word
from traceanalyzer.comparison.statistics import holm, log_interval, permutation_p, spread
from traceanalyzer.comparison.waterfall import whole_parts


def test_three_against_three_apart_are_one_in_ten() -> None:
    assert permutation_p([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)


def test_samples_of_other_sizes_are_dealt_out_in_all_ways() -> None:
    """The smallest of four: as far off as the largest would be. The two smallest of six: of 15 ways two are so far."""
    assert permutation_p([1], [2, 3, 4]) == pytest.approx(2 / 4)
    assert permutation_p([1, 2], [3, 4, 5, 6]) == permutation_p([3, 4, 5, 6], [1, 2]) == pytest.approx(2 / 15)


def test_equal_samples_are_no_difference() -> None:
    assert permutation_p([5] * 16, [5] * 16) == 1
    assert permutation_p([1, 2], [1, 2]) == 1


def test_nothing_to_test_is_none() -> None:
    assert permutation_p([], [1.0]) is None


def test_many_values_agree_with_the_exact_test() -> None:
    first, second = [1.0, 2, 3, 4, 5.5, 7, 8], [4.5, 6, 9, 10, 11, 12, 13]  # 3,432 ways: by mean and variance
    assert permutation_p(first, second) == pytest.approx(
        0.0175, abs=0.004
    )  # the exact value of the rank-sum test


def test_chance_rejects_one_in_twenty() -> None:
    generator = np.random.default_rng(1)
    p = [permutation_p(generator.normal(size=12), generator.normal(size=12)) for _ in range(600)]
    assert 0.02 < np.mean([one is not None and one <= 0.05 for one in p]) < 0.08


def test_holm_stops_at_the_first_that_holds_no_more() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == [True, False, False, False]
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([]) == []


def test_the_interval_covers_the_difference_of_captures() -> None:
    low, high = log_interval([[100, 101], [102, 103], [99, 98]], [[110, 111], [112, 113], [109, 108]])
    assert low < np.log(110.5 / 100.5) < high
    assert low > 0


@pytest.mark.parametrize(("base", "new"), [(3, 3), (3, 12), (5, 5)])
def test_interval_misses_the_truth_equally_on_both_sides(base: int, new: int) -> None:
    """Of captures that differ by 5 % by chance: one in forty at each side, though captures are few."""
    generator = np.random.default_rng(7)
    found = []
    for _ in range(300):
        sides = [[[float(ns)] for ns in np.exp(0.05 * generator.normal(size=size))] for size in (base, new)]
        found.append(log_interval(*sides))
    assert np.mean([low > 0 for low, _ in found]) <= 0.04
    assert np.mean([high < 0 for _, high in found]) <= 0.04


@pytest.mark.parametrize(
    ("fewer", "wider"),
    [(1, 1.0), (2, 1.41), (3, 1.74), (4, 1.44), (5, 1.32), (6, 1.10), (8, 1.07), (20, 1.07)],
)
def test_side_with_fewer_captures_widens_the_interval(fewer: int, wider: float) -> None:
    """Of eight captures that differ, and of others all alike; on whichever side these are."""
    differing = [[100.0 + capture] for capture in range(8)]
    for swapped in (False, True):
        widths = []
        for alike in (1, fewer):
            sides = (differing, [[100.0]] * alike)
            low, high = log_interval(*sides[::-1]) if swapped else log_interval(*sides)
            widths.append(high - low)
        assert widths[1] / widths[0] == pytest.approx(wider, rel=0.1 if swapped else 0.005)


def test_spread_of_one_capture_is_unknown() -> None:
    assert spread([3.0]) == 0
    assert spread([1.0, np.e]) == pytest.approx(1 / np.sqrt(2))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_whole_parts_sum_to_the_whole(values: list[float]) -> None:
    total = round(sum(values))
    parts = whole_parts(values, total)
    assert sum(parts) == total
    assert all(abs(part - value) <= 2 for part, value in zip(parts, values, strict=True))


def test_values_that_differ_are_never_shown_alike() -> None:
    def told(counter: str, base: float, new: float) -> str:
        return formatting.counter_values(Counted(counter, base, new, (base, base), (new, new), Word.MORE))

    assert told("launches", 301, 1) == "301 -> 1"
    assert told("d2d bytes", 65_540, 65_536) == "65,540 -> 65,536"
    assert told("d2d bytes", 0, 1 << 20) == "0 B -> 1.00 MiB"
