"""Work on whole rows after topk: how near its mask is, and how far it goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import Op, found, program
from tests.rules.test_reordered_work import F32, MOVE, sampled

SLUG, WHOLE = "whole-after-topk", [64, 128_256]
OTHER = Op("aten::relu", MOVE, 5, [[64, 9]], [F32])


def after(count: int, *, at: int = 2) -> list[Op]:
    """So many other ops at a place: 2 is between topk and the comparison, 3 between that and the mask."""
    ops = sampled()
    return [*ops[:at], *[OTHER] * count, *ops[at:]]


@pytest.mark.parametrize(("count", "said"), [(4, True), (5, False)])
def test_the_mask_is_among_the_six_ops_after_topk(count: int, said: bool) -> None:
    assert bool(found(program(after(count)), SLUG)) is said
    view = Op("aten::view", "", 0, [[64, 9], []], [F32, ""])
    ops = sampled()
    assert len(found(program([*ops[:2], *[view] * 9, *ops[2:]]), SLUG)) == 1


def test_rows_are_compared_with_one_number_for_each() -> None:
    for dims in ([WHOLE, WHOLE], [WHOLE, [64]], [[64, 9], [64, 1]]):
        ops = [replace(one, dims=dims) if one.name == "aten::lt" else one for one in sampled()]
        assert found(program(ops), SLUG) == []


def test_the_mask_is_of_the_rows() -> None:
    ops = [replace(one, dims=[[64, 9]] * 2) if "masked" in one.name else one for one in sampled()]
    assert found(program(ops), SLUG) == []


def test_each_topk_keeps_its_own_part() -> None:
    """12,000 of 128,256 numbers are worth more than the least time of a kernel."""
    few, many = sampled(), sampled(kept=12_000)
    (one,), (other,), (both,) = (found(program(ops), SLUG) for ops in (few, many, [*few, *many]))
    assert other.cost_ns == pytest.approx(6e3 * (2 * 15 + 900 * (1 - 12_000 / 128_256)), rel=0.001)
    assert both.cost_ns == pytest.approx(one.cost_ns + other.cost_ns, rel=1e-6)
    assert (both.evidence["kept"], both.evidence["length"]) == (12_000, 128_256)


def test_other_results_do_not_end_work_on_rows() -> None:
    fill = Op("aten::zeros_like", MOVE, 30, [[64, 9]], [F32])
    relu = Op("aten::relu", MOVE, 300, [WHOLE], [F32])
    (alone,), (one,) = (found(program(sampled(*last)), SLUG) for last in ((), (fill, relu)))
    assert one.cost_ns == alone.cost_ns + 6_000 * (25 + 295)


@pytest.mark.parametrize(
    ("length", "kept", "said"), [(4_096, 512, True), (4_095, 500, False), (4_096, 513, False)]
)
def test_an_eighth_of_4096_numbers_is_a_small_part_of_a_long_row(length: int, kept: int, said: bool) -> None:
    assert bool(found(program(sampled(length=length, kept=kept)), SLUG)) is said
