"""Rows, spans, times and groups that no edit can be made of, each with the sentence that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from traceanalyzer.replay.edit_values import check_group, check_part, check_rows, check_spans, check_times

SAID: list[tuple[Callable[..., None], tuple[Any, ...], str]] = [
    (check_rows, ([True, False],), "not a mask"),
    (check_rows, ([[1, 2]],), "int64, 2-dimensional"),
    (check_rows, ([1.0],), "float64, 1-dimensional"),
    (check_rows, ([3, -1, 0, -1],), "^2 of 4 rows of an edit are negative"),
    (check_spans, ([1, 2], [3]), "^2 starts_ns and 1 ends_ns: each span has both"),
    (
        check_spans,
        ([1, 2], [1, 1]),
        "^1 of 2 spans end before they start: starts_ns come first, and ends_ns are times, no durations",
    ),
    (check_spans, ([1.5], [2]), "whole ns, not float64"),
    (check_spans, ([1], [2.5]), "whole ns, not float64"),
    (check_times, ("gpu_ns", [1, 2], [7]), "^2 numbers of gpu_ns for 1 rows"),
    (check_times, ("gpu_ns", [1], [7, 8]), "^1 numbers of gpu_ns for 2 rows"),
    (check_times, ("gpu_ns", [[1, 2]]), "2-dimensional"),
    (check_times, ("gpu_ns", ["1"]), "is a number or a list of numbers"),
    (check_times, ("gpu_ns", [1.0, -0.5]), "is negative or no number"),
    (check_times, ("gpu_ns", float("nan")), "is negative or no number"),
    (check_times, ("gpu_ns", float("inf")), "is negative or no number"),
    (check_part, ("part", [0.5, 1.01]), "is more than 1"),
    (check_part, ("part", [0.5], [1, 2]), "^1 numbers of part for 2 rows"),
    (check_group, ([0], [4, 5]), "^1 numbers of group for 2 rows"),
    (check_group, ([0, 1, 2], [4, 5]), "^3 numbers of group for 2 rows"),
    (check_group, ([0, 1_000_000], [4, 5]), "has the number 1,000,000"),
]


@pytest.mark.parametrize(("check", "given", "said"), SAID)
def test_what_cannot_be_is_said(check: Callable[..., None], given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check(*given)


def test_what_can_be_passes() -> None:
    check_rows([])
    check_rows([0, 5])
    check_spans([1, 2], [1, 3])
    check_times("gpu_ns", 0)
    check_times("gpu_ns", 7.5, [1, 2, 3])  # one for all
    check_times("gpu_ns", [1, 2.5], [7, 8])
    check_times("gpu_ns", np.ones((2, 3)), [7, 8], most_dimensions=2)
    check_part("part", [0.0, 1.0], [4, 5])
    check_group([0, 999_999], [4, 5])
