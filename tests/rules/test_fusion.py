"""What one kernel in place of a chain takes, how chains are cut into parts, and how their ops are told."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.rules.kernels.unfused_pointwise.fusion import equal_parts, first_ops, fused_ns, shown


@pytest.mark.parametrize(
    ("durations", "whole", "fused"),
    [
        ([100, 40, 80], [1, 1, 1], 40),
        ([100, 25, 80], [1, 1, 1], 25),  # just a quarter of the longest is of the whole size
        ([100, 24, 80], [1, 1, 1], 80),
        ([100, 40, 300], [1, 1, 0], 40),  # what is not whole neither counts nor is the longest
        ([100, 10, 80], [1, 0, 1], 80),
    ],
)
def test_a_fused_kernel_takes_as_long_as_the_shortest_of_the_whole_size(
    durations: list[int], whole: list[int], fused: float
) -> None:
    """Beside another chain, which has no part in it."""
    found = fused_ns(
        np.array([*durations, 7, 9]),
        np.array([0, 0, 0, 1, 1]),
        np.array([*whole, 1, 1], bool),
        0.25,
    )
    assert found.tolist() == [fused, 7.0]


@pytest.mark.parametrize(
    ("length", "parts"),
    [
        (3, [3]),
        (10, [10]),
        (11, [6, 5]),
        (20, [10, 10]),
        (21, [7, 7, 7]),
    ],
)
def test_long_chains_are_cut_into_equal_parts_of_ten_kernels_at_most(length: int, parts: list[int]) -> None:
    found = equal_parts(np.array([0] * length + [1] * 2), 10)
    assert np.bincount(found).tolist() == [*parts, 2]
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["add", "mul"], "add > mul"),
        (["mul"] * 12, " > ".join(["mul"] * 12)),
        (["mul"] * 13, " > ".join(["mul"] * 12) + " > ..."),
        (["x" * 200] * 3, "x" * 200 + " (3 in a row)"),
        (["x" * 200, "mul"], "x" * 200 + " > ..."),
        (["x" * 200], "x" * 200),
        (["x" * 57] * 3, "x" * 57 + " (3 in a row)"),  # of two names and what is between them 120 letters
        (["x" * 56] * 3, f"{'x' * 56} > {'x' * 56} > ..."),
    ],
)
def test_a_sequence_is_told_as_far_as_a_reader_takes_it_in(names: list[str], text: str) -> None:
    assert shown(names) == text


@pytest.mark.parametrize(("count", "told"), [(6, 6), (7, 7), (8, 6)])
def test_a_sentence_has_six_ops_unless_one_is_left(count: int, told: int) -> None:
    names = [f"op{number}" for number in range(count)]
    more = ["..."] if told < count else []
    assert first_ops(" > ".join(names)) == " > ".join([*names[:told], *more])
