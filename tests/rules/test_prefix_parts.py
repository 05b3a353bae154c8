"""What is extended by new elements, what is scaled by its own rows' numbers, and products over the long side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tests.support.op_calls import op
from traceanalyzer.rule.views import Calls
from traceanalyzer.rules.tensors.product_order import _gram, _pair, _used_as_gram
from traceanalyzer.rules.tensors.recomputed_prefix import _causal, _extended, _first_of_steps, _Growth
from traceanalyzer.rules.tensors.repeated_preparation import _chains, _results
from traceanalyzer.tensors.signatures import Signature

QUERY = [2, 4, 9, 8]


@pytest.mark.parametrize(
    ("more", "causal"),
    [
        (["", "0.", "True"], True),
        (["", "0.", "False"], False),
        ([[9, 9], "0.", "False"], True),  # a mask may hide later positions
        ([], False),
    ],
)
def test_attention_hides_later_positions_by_a_mask_or_by_itself(
    more: list[list[int] | str], causal: bool
) -> None:
    assert _causal(op("scaled_dot_product_attention", QUERY, QUERY, QUERY, *more)) is causal


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        ([op("cat", [2, 5, 8], [2, 1, 8])], 1),
        ([op("cat", [10, 8], [2, 8])], 1),  # rows of two sequences of 5
        ([op("cat", [2, 1, 8], [2, 5, 8])], 0),  # before the others
        ([op("cat", [2, 5, 8], [2, 2, 8])], 0),  # two new ones
        ([op("cat", [2, 5, 8], [1, 8])], 0),
        ([op("cat", [2, 4, 8], [2, 1, 8])], 0),  # another length
        ([op("slice", [2, 9, 8], "1", "0", "6", "1")], 1),
        ([op("slice", [2, 9, 8], "1", "6", "9", "1")], 0),
        ([op("slice", [2, 9, 8], "1", "0", "6", "1"), op("cat", [6, 8], [1, 8])], 1),
        ([op("slice", [2, 9, 8], "1", "0", "6", "1"), op("cat", [5, 8], [1, 8])], 2),
    ],
)
def test_a_sequence_is_extended_by_cat_or_by_a_longer_slice(calls: list[Signature], count: int) -> None:
    growth = _Growth(op("linear", [2, 5, 8], [8, 8]), frozenset({5, 6, 7}), 1)
    assert _extended(growth, calls) == count


def test_the_shortest_length_of_a_step_is_computed_once_if_there_are_longer_ones() -> None:
    ops = cast("Calls", SimpleNamespace(step=np.array([0, 0, 0, 0, 1, 1, 2])))
    known = np.array([5, 0, 5, 6, 7, 7, 0])
    assert _first_of_steps(ops, known).tolist() == [True, False, True, False, False, False, False]


NORM, TABLE = op("linalg_vector_norm", [6, 4], "2", "[1]"), (6, 4)


@pytest.mark.parametrize(
    ("after", "places"),
    [
        ([op("clamp_min", [6, 1], "0"), op("div", [6, 4], [6, 1])], [0, 1, 2]),
        ([op("div", [6, 4], [6])], [0, 1]),
        ([op("div", [6, 4], [4])], [0, 1]),
        ([op("div", [6, 4], [1, 4])], [0, 1]),
        ([op("div", [6, 4], [2, 1])], [0]),
        ([op("mm", [6, 4], [4, 1]), op("div", [6, 4], [6, 1])], [0]),
        ([op("div", [6, 4], [6, 1]), NORM, op("exp", [6, 4])], [0, 1, 2]),
    ],
)
def test_scaling_by_a_norm_of_the_rows_goes_with_it(after: list[Signature], places: list[int]) -> None:
    every = [NORM, *after]
    number = np.array([every.index(one) for one in every])
    assert _chains(np.flatnonzero(number == 0), number, every, TABLE).tolist() == places


@pytest.mark.parametrize(
    ("call", "elements"),
    [
        (op("sum", [6, 4], "[1]"), 0),
        (op("topk", [6, 4], "2"), 0),
        (op("mm", [6, 4], [4, 9]), 54),
        (op("addmm", [9], [6, 4], [4, 9]), 54),
        (op("bmm", [2, 6, 4], [2, 4, 9]), 108),
        (op("exp", [6, 4]), None),
    ],
)
def test_a_product_makes_so_many_numbers_and_a_reduction_none(call: Signature, elements: int | None) -> None:
    assert _results(call) == elements


LONG, LARGE = [8, 2], [8, 8]
SQUARE, APPLY = op("mm", LARGE, LARGE), op("mm", LARGE, LONG)


@pytest.mark.parametrize(
    ("call", "gram"),
    [
        (op("mm", [8, 2], [2, 8]), (8, 2)),
        (op("bmm", [3, 8, 2], [3, 2, 8]), (3, 8, 2)),
        (op("mm", [4, 2], [2, 4]), (4, 2)),  # just twice as long
        (op("mm", [3, 2], [2, 3]), None),
        (op("mm", [2, 8], [8, 2]), None),
        (op("mm", [8, 2], [2, 9]), None),
    ],
)
def test_a_gram_matrix_is_over_the_long_side(call: Signature, gram: tuple[int, ...] | None) -> None:
    assert _gram(call, 2.0) == gram


@pytest.mark.parametrize(
    ("following", "parts"),
    [
        ([SQUARE, APPLY], {0: 1 / 64, 1: 1 / 4}),
        ([op("mul", LARGE, "2"), SQUARE, op("relu", LONG), APPLY], {0: 1 / 16, 1: 1 / 64, 3: 1 / 4}),
        ([SQUARE, op("mm", [2, 8], LARGE)], {0: 1 / 64, 1: 1 / 4}),
        ([APPLY], {}),  # never squared
        ([SQUARE], {}),  # never applied
        ([SQUARE, op("exp", LARGE), APPLY], {}),
        ([SQUARE, op("mm", LARGE, [8, 3])], {}),
        ([op("addmm", LARGE, LARGE, LARGE), APPLY], {0: 1 / 64, 1: 1 / 4}),
    ],
)
def test_a_gram_matrix_that_is_squared_and_applied_is_smaller_over_the_short_side(
    following: list[Signature], parts: dict[int, float]
) -> None:
    assert _used_as_gram((8, 2), following) == parts


def test_two_products_may_be_taken_in_the_other_order() -> None:
    """(8x2 2x8) 8x2: 8*2*8*2 operations of each product, and 2*8*2 twice in the other order."""
    first = op("mm", [8, 2], [2, 8])
    after, before = _pair(first, op("mm", [8, 8], [8, 2])), _pair(first, op("mm", [2, 8], [8, 8]))
    assert after is not None
    assert before is not None
    assert (after.matrices, after.between) == (((8, 2), (2, 8), (8, 2)), (8, 8))
    assert (before.matrices, before.between) == (((2, 8), (8, 2), (2, 8)), (8, 8))
    assert after.operations == before.operations == 64 / 256
    assert _pair(first, op("mm", [8, 7], [7, 2])) is None
    assert _pair(first, op("bmm", [1, 8, 8], [1, 8, 2])) is None
