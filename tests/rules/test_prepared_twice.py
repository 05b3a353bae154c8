"""Constant tensors that are prepared in every step: which sizes count, and several ops on one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import Op, found, program
from tests.rules.test_repeated_preparation import LONG, SUM, filtered, searched

SLUG = "repeated-preparation"
KNOWN = 12_000_000


def test_each_op_that_sorts_or_counts_has_a_finding_of_its_own() -> None:
    counted = Op("aten::bincount", SUM, 1_000, [[KNOWN], [], []], [LONG, "Scalar", "Scalar"])
    facts = found(program([*filtered(name="aten::sort"), counted]), SLUG)
    assert {one.evidence["sorter"]: one.cost_ns for one in facts} == {
        "aten::sort": 6 * 2_000_000,
        "aten::bincount": 6 * 1_000_000,
    }
    assert {one.evidence["calls_a_step"] for one in facts} == {1.0}
    assert all("times" not in one.message for one in facts)


def test_an_op_that_runs_twice_a_step_says_so() -> None:
    again = filtered(name="aten::sort")[-1]
    (one,) = found(program([*filtered(name="aten::sort"), again]), SLUG)
    assert "goes through aten::sort in every step, 2 times" in one.message
    assert one.cost_ns == 6 * 2 * 2_000_000


@pytest.mark.parametrize(("known", "said"), [(1 << 23, True), ((1 << 23) - 1, False)])
def test_a_sorted_tensor_of_64_mb_does_not_fit_into_a_cache(known: int, said: bool) -> None:
    assert bool(found(program(filtered(known=known, name="aten::sort")), SLUG)) is said


@pytest.mark.parametrize(("rows", "said"), [(1 << 18, True), ((1 << 18) - 1, False)])
def test_a_normalised_tensor_of_128_mb_does_not_fit_into_a_cache(rows: int, said: bool) -> None:
    """Rows of 256 numbers of two bytes; the layer before is too short to have written them."""
    layer, *rest = searched(rows=rows)
    assert bool(found(program([replace(layer, dur=10), *rest]), SLUG)) is said


@pytest.mark.parametrize(("steps", "said"), [(3, True), (2, False)])
def test_three_steps_show_that_nothing_changes(steps: int, said: bool) -> None:
    assert bool(found(program(searched(), steps=steps), SLUG)) is said
    assert bool(found(program(filtered(), steps=steps), SLUG)) is said


def test_a_search_takes_five_us_at_least() -> None:
    ops = filtered()
    few = Op("aten::isin", SUM, 2_000, [[4], [KNOWN], [], []], [LONG, LONG, "Scalar", "Scalar"])
    (one,) = found(program([*ops[:-1], few]), SLUG)
    assert one.cost_ns == 6 * (2_000 - 5) * 1_000
