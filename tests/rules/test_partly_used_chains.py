"""How far back only a part of what ops make is needed, on a few ops in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.rules.kernel_programs import changed, found, program
from tests.rules.test_partly_used import CAST, head, select
from tests.rules.test_readers import in_order
from tests.support.op_calls import op
from traceanalyzer.rules.tensors.partly_used import Thresholds, chains
from traceanalyzer.rules.tensors.partly_used.sources import cuts_alike
from traceanalyzer.tensors.signatures import Signature

LIMITS = Thresholds(max_part=0.3, near_ops=4, tried=4, min_ns=1.0)
FIRST = op("select", [4, 9, 7], "0", "0")
HALF, PRODUCT = op("slice", [8, 9, 5], "0", "0", "4", "1"), op("bmm", [4, 9, 5], [4, 5, 7])


def makers(*ops: Signature, views: Sequence[int] = ()) -> list[tuple[list[int], float]]:
    """Positions of the ops of which a part is enough, and the largest share of what one of them makes."""
    alike = chains(in_order(*ops, views=views), np.full(len(ops), 100.0), LIMITS)
    return [(sorted(one.makers.tolist()), one.part) for one in alike]


def test_slices_of_slices_multiply_their_parts() -> None:
    cut = op("slice", [8, 9, 7], "0", "0", "4", "1")
    ops = [op("relu", [8, 9, 7]), cut, op("tanh", [4, 9, 7]), FIRST]
    assert makers(*ops, views=[1]) == [([0, 1, 2], 1 / 4)]


def test_a_slice_before_an_op_of_several_tensors_ends_the_chain() -> None:
    """What it keeps of one of them says nothing of the others."""
    assert makers(op("relu", [8, 9, 5]), HALF, PRODUCT, FIRST, views=[1]) == [([2], 1 / 4)]
    assert makers(op("relu", [4, 9, 5]), op("tanh", [4, 5, 7]), PRODUCT, FIRST) == [([0, 1, 2], 1 / 4)]


MEAN, LAYER = op("mean", [4, 9, 7], "[1]", "False"), op("linear", [4, 9, 5], [7, 5])


@pytest.mark.parametrize(
    ("ops", "views", "places"),
    [
        ([LAYER, MEAN], [], [0]),
        ([op("linear", [36, 5], [7, 5]), op("view", [36, 7], "[4, 9, 7]"), MEAN], [1], [0, 1]),
        ([LAYER, op("relu", [4, 9, 7]), MEAN], [], []),  # a mean of what is no product
        ([op("bmm", [4, 9, 5], [4, 5, 7]), MEAN], [], []),  # each row of the mean has a matrix of its own
        ([op("linear", [4, 9, 5], [7, 5], [7]), MEAN], [], [0]),
        ([op("exp", [4, 9, 5]), LAYER, MEAN], [], [1]),
    ],
)
def test_averages_after_views_move_before_the_product(
    ops: list[Signature], views: list[int], places: list[int]
) -> None:
    assert makers(*ops, views=views) == ([(places, 1 / 9)] if places else [])


def test_a_part_that_is_taken_twice_beside_the_cut_counts_twice() -> None:
    """Of 40 rows one is taken, and two times two others."""
    whole = [40, 9]
    beside = op("slice", whole, "0", "4", "6", "1")
    ops = [op("relu", whole), op("select", whole, "0", "0"), beside, beside]
    assert makers(*ops) == [([0], 1 / 40 + 2 * (2 / 40))]
    assert makers(*ops[:3]) == [([0], 1 / 40 + 2 / 40)]


@pytest.mark.parametrize(("other", "places"), [("[0]", [0, 1, 2]), ("[1]", [1, 2])])
def test_parts_along_other_dimensions_end_the_chain(other: str, places: list[int]) -> None:
    """Two sums over a tensor of four by four: an item of the second one's result is its second dimension's."""
    whole, added = [4, 4, 5, 7], op("add", [4, 5, 7], [4, 5, 7])
    sums = [op("sum", whole, other, "False"), op("sum", whole, "[0]", "False")]
    ((own, _),) = makers(*sums, added, op("select", [4, 5, 7], "0", "0"))
    assert own == places


def test_an_index_by_nothing_takes_no_part() -> None:
    for call in (op("index", [8, 64]), Signature("aten::index", ([8, 64], [[], []]), ("float", ""), ())):
        assert list(cuts_alike(in_order(call), 0.5)) == []
    known = Signature("aten::index", ([8, 64], []), ("float", ""), ())  # by indices that are not recorded
    assert [places.tolist() for places in cuts_alike(in_order(known), 0.5)] == [[0]]


@pytest.mark.parametrize(
    ("category", "name", "counts"),
    [
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", True),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", True),
        ("gpu_memset", "Memset (Device)", True),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", False),
    ],
)
def test_copies_to_the_device_are_of_the_chain(category: str, name: str, counts: bool) -> None:
    """A product of 900 us, and a conversion for 450 us of which the last position is all that is used."""

    def copies(event: dict[str, Any]) -> None:
        if event.get("name") == "moves":
            event.update(cat=category, name=name)

    trace = changed(
        program(head(select("", 1, -1), [8, 32_000], replace(CAST, kernel="moves"))),
        copies,
    )
    (one,) = found(trace, "partly-used")
    assert one.cost_ns == pytest.approx(6e3 * (900 + 450 * counts) * (1 - 1 / 512))
