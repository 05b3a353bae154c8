"""What ops do with numbers for each pair, what inputs are broadcast to, and how much of it stays."""

from __future__ import annotations

import pytest

from tests.support.op_calls import op, signature
from traceanalyzer.rules.tensors.materialised_pairs import _pairs_of, _rest, _staying
from traceanalyzer.rules.tensors.materialised_pairs.listed import _equals, _keeps, _measures, _size
from traceanalyzer.rules.tensors.materialised_pairs.pair_ops import (
    Limits,
    passes,
    picked,
    product_size,
    selects,
    weighs,
)
from traceanalyzer.tensors.signatures import Signature, number_bytes

F32, HALF, LONG, BOOL = "float", "c10::Half", "long int", "bool"
FEW = Limits(min_times=8.0, min_elements=512, min_side_elements=16)


@pytest.mark.parametrize(
    ("call", "made", "summed"),
    [
        (op("mm", [4, 5], [5, 6]), 24, 5),
        (op("bmm", [2, 4, 5], [2, 5, 6]), 48, 5),
        (op("baddbmm", [2, 4, 6], [2, 4, 5], [2, 5, 6]), 48, 5),
        (op("_cdist_forward", [2, 4, 3], [2, 6, 3]), 48, 3),
        (op("mm", [4, 5]), 0, 0),  # the second one is not recorded
    ],
)
def test_a_product_makes_so_many_numbers_and_sums_so_many_for_each(
    call: Signature, made: int, summed: int
) -> None:
    assert product_size(call) == (made, summed)
    assert product_size(op("mul", [4, 5], [4, 5]))[0] == 0


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (op("amin", [4, 6], "[1]", "False"), 4),
        (op("amin", [4, 6], "[-2]", "False"), 6),
        (op("min", [4, 6], "0", "False"), 6),
        (op("max", [4, 2, 6], "-1", "False"), 8),
        (op("max", [4, 6], ""), 4),  # along which is not recorded: the longest
    ],
)
def test_a_selection_leaves_one_number_of_each_row(call: Signature, left: int) -> None:
    assert picked(call) == left


@pytest.mark.parametrize(
    ("call", "one_of_each", "all_of_them"),
    [
        (op("min", [4, 6], "1", "False"), True, True),
        (op("amax", [4, 6], "[1]", "False"), True, True),
        (op("min", [4, 6]), False, False),  # of all of them
        (op("max", [4, 6], [4, 6]), False, False),  # of each two
        (op("argmin", [4, 6], "1", "False"), False, False),
        (op("sqrt", [4, 6]), False, True),
        (op("sum", [4, 6], "[1]"), False, False),
        (op("mm", [4, 6], [6, 4]), False, False),
    ],
)
def test_what_selects_or_makes_another_number_of_each_needs_the_selected_ones(
    call: Signature, one_of_each: bool, all_of_them: bool
) -> None:
    assert selects(call) is one_of_each
    assert passes(call) is all_of_them


@pytest.mark.parametrize(
    ("name", "kinds", "weighs_it"),
    [
        ("copy_", [F32, BOOL], True),
        ("copy_", [HALF, BOOL], True),
        ("copy_", [LONG, BOOL], False),  # counts
        ("copy_", [F32, F32], False),
        ("mul", [F32, BOOL], False),
        ("copy_", [], False),
    ],
)
def test_a_mask_that_is_copied_into_floating_numbers_weighs(
    name: str, kinds: list[str], weighs_it: bool
) -> None:
    call = signature(name, [[4, 6], [4, 6]], kinds)
    assert weighs(call, (4, 6)) is weighs_it
    assert not weighs(call, (6, 4))


def test_numbers_of_an_unknown_type_have_four_bytes() -> None:
    assert number_bytes(signature("amin", [[4, 6]], [HALF])) == 2
    assert number_bytes(signature("amin", [[4, 6]], ["double", HALF])) == 8
    assert number_bytes(signature("amin", [[4, 6]], [])) == number_bytes(signature("amin", [[]], [""])) == 4


@pytest.mark.parametrize(
    ("call", "sides"),
    [
        (op("sub", [16, 1, 4], [1, 16, 4]), [(16, 1, 4), (1, 16, 4)]),  # 1,024 of 128
        (op("sub", [15, 1, 4], [1, 16, 4]), None),  # 960 of 124
        (op("sub", [16, 1], [1, 32]), [(16, 1), (1, 32)]),  # 512 of 48
        (op("sub", [16, 1], [1, 31]), None),
        (op("sub", [15, 1], [1, 64]), None),  # coefficients
        (signature("eq", [[15, 1], [1, 64]], [LONG, LONG]), [(15, 1), (1, 64)]),
        (op("mm", [64, 64], [64, 64]), None),
        (op("exp", [16, 64]), None),
        (
            signature("mul", [[16, 64], [16, 64]], [F32, F32], strides=[[1, 0], [0, 1]]),
            [(16, 1), (1, 64)],
        ),
        (signature("mul", [[16, 64], [16, 64]], [F32, F32], strides=[[64, 1], [64, 1]]), None),
    ],
)
def test_pairs_are_eight_times_as_many_as_both_sides(
    call: Signature, sides: list[tuple[int, ...]] | None
) -> None:
    pairs = _pairs_of(call, FEW)
    assert (list(pairs.inputs) if pairs else None) == sides


def test_numbers_for_each_pair_that_later_ops_read_stay() -> None:
    """Differences of 16 and 64 rows of 32 columns; of the sums over one dimension, 16x64 are half as many as 64x32."""
    difference = op("sub", [16, 1, 32], [1, 64, 32])
    pairs = _pairs_of(difference, FEW)
    assert pairs is not None
    large = {(16, 64), (16, 64, 1), (64, 32), (1, 64, 32)}
    assert _rest(pairs, Limits(min_times=0.4, min_elements=512)) == large
    assert _rest(pairs, Limits(min_times=0.1, min_elements=1_024)) == large
    assert _rest(pairs, Limits(min_times=0.5, min_elements=512)) == {(64, 32), (1, 64, 32)}
    rest: set[tuple[int, ...]] = {(16, 64), (64, 32)}
    square, root, layer = op("pow", [16, 64, 32], "2"), op("sqrt", [16, 64]), op("mm", [64, 32], [32, 9])
    calls = [difference, square, root, op("exp", [64, 32]), layer]
    assert _staying(pairs, rest, calls, FEW).tolist() == [1 / 16, 1 / 16, 1, 1, 1]
    assert _staying(pairs, rest, [difference, square, root, layer], FEW).tolist() == [1 / 32, 1 / 32, 1, 1]
    assert _staying(pairs, rest, [difference, square, layer], FEW).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("following", "size"),
    [
        ([op("relu", [9, 9]), op("unbind", [70, 3], "1")], 70),
        ([op("index_select", [3, 70], "0", [1])], 70),
        ([op("relu", [70, 2]), op("unbind", [50, 3], "1")], 50),  # two numbers for each are no pairs of three
        ([op("relu", [70, 3, 1])], None),
        ([op("nonzero", [8, 8, 8]), op("unbind", [70, 3], "1")], None),
        ([], None),
    ],
)
def test_a_list_has_an_index_for_each_dimension(following: list[Signature], size: int | None) -> None:
    assert _size(following, 3) == size


@pytest.mark.parametrize(
    ("call", "measures"),
    [
        (op("cdist", [16, 3], [64, 3]), True),
        (op("cdist", [16, 4], [64, 4]), False),
        (op("cdist", [64, 3], [16, 3]), False),
        (op("_euclidean_dist", [16, 2], [64, 2]), True),
        (op("mm", [16, 3], [3, 64]), True),
        (op("mm", [16, 4], [4, 64]), False),
        (op("addmm", [64], [16, 3], [3, 64]), True),
        (op("addmm", [3], [16, 4], [4, 64]), False),
        (op("sub", [16, 1], [1, 64]), False),
    ],
)
def test_distances_are_of_points_of_three_coordinates_or_fewer(call: Signature, measures: bool) -> None:
    assert _measures(call, (16, 64), Limits()) is measures


def test_distances_of_each_item_are_of_the_item_alone() -> None:
    assert _measures(op("cdist", [8, 16, 3], [8, 64, 3]), (8, 16, 64), Limits())
    assert _measures(op("cdist", [1, 16, 3], [8, 64, 3]), (8, 16, 64), Limits())
    assert not _measures(op("cdist", [8, 16, 3], [8, 64, 3]), (16, 64), Limits())


@pytest.mark.parametrize(
    ("sides", "each_with_each"),
    [
        ([[8, 16, 1], [8, 1, 64]], True),
        ([[16, 1], [8, 1, 64]], True),
        ([[1, 16, 1], [8, 1, 64]], True),
        ([[4, 16, 1], [8, 1, 64]], False),
        ([[8, 64, 1], [8, 1, 16]], False),
        ([[8, 16, 1], [9, 8, 1, 64]], False),
        ([[8, 16, 64]], False),
    ],
)
def test_keys_of_each_item_are_compared_each_with_each(sides: list[list[int]], each_with_each: bool) -> None:
    assert _equals(signature("eq", sides, [LONG] * len(sides)), (8, 16, 64)) is each_with_each
    assert not _equals(signature("ne", sides, [LONG] * len(sides)), (8, 16, 64))


@pytest.mark.parametrize(
    ("call", "keeps"),
    [
        (signature("sum", [[16, 64], []], [BOOL, ""]), True),
        (signature("sum", [[16, 64], []], [F32, ""]), False),
        (signature("any", [[16, 64], []], [BOOL, ""]), True),
        (signature("argwhere", [[16, 64]], [BOOL]), True),
        (signature("sqrt", [[16, 64]], [F32]), True),
        (signature("softmax", [[16, 64], []], [F32, ""]), False),
        (signature("mean", [[16, 64], []], [BOOL, ""]), False),
    ],
)
def test_listing_and_counting_what_passes_needs_no_other_pairs(call: Signature, keeps: bool) -> None:
    assert _keeps(call) is keeps
