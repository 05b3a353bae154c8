"""What ops do with numbers for each pair, what inputs are broadcast to, and how much of it stays."""

from __future__ import annotations

import pytest

from tests.support.op_calls import op, signature
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
def test_product_size_counts_results_and_summands(call: Signature, made: int, summed: int) -> None:
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
def test_selections_and_pointwise_ops_need_only_selected(
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
