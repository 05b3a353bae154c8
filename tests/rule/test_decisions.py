"""Decisions of the framework and its helpers, each by an example just at either side of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import MS, kernels, scope
from traceanalyzer.rule.claims import Claims, resolve_claims
from traceanalyzer.rule.grouping import _typical, group_hits
from traceanalyzer.rule.hits import clamp_to_floor
from traceanalyzer.rule.registry import Rule, all_rules
from traceanalyzer.rules.kernels.throttling import after_ramp, usual_at_full_clock
from traceanalyzer.timeline.collective_waits import at_most


def rows(**columns: Any) -> Any:
    """What stands for a view, by the columns that a function reads."""
    return SimpleNamespace(**{name: np.array(column) for name, column in columns.items()})


def test_work_is_not_quicker_than_the_floor() -> None:
    found = rows(dur_ns=[8_000, 8_000, 2_000, 5_000])
    least = clamp_to_floor(np.array([10.0, 6_000.0, 10.0, 4_999.0]), found, 5_000)
    assert least.tolist() == [5_000, 6_000, 2_000, 5_000]


def test_the_ramp_ends_after_the_first_kernel_at_full_clock() -> None:
    assert after_ramp(rows(start_ns=[0, 10, 20]), np.array([False, True, True])).tolist() == [
        False,
        False,
        True,
    ]
    assert after_ramp(rows(start_ns=[0, 10]), np.array([False, False])).tolist() == [False, False]


@pytest.mark.parametrize(
    ("durations", "full", "usual"),
    [
        ([3, 1, 2, 90], [True, True, True, False], 2.0),
        ([3, 1], [True, True], 3.0),  # of two the longer
        ([3, 1, 90], [True, False, False], np.nan),  # fewer than two at full clock
    ],
)
def test_the_usual_time_is_the_median_at_full_clock(
    durations: list[int], full: list[bool], usual: float
) -> None:
    same = SimpleNamespace(code=np.zeros(len(durations), np.int64))
    found: Any = SimpleNamespace(dur_ns=np.array(durations), text=lambda column: same)
    np.testing.assert_equal(usual_at_full_clock(found, np.array(full), 2), np.full(len(full), usual))


def a_rule(slug: str, specificity: int = 0, since: str = "0.1") -> Rule:
    return replace(all_rules()[0], slug=slug, specificity=specificity, since=since)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "small",
    [
        a_rule("z-small", specificity=1, since="0.10"),
        a_rule("z-small", since="0.2"),
        a_rule("a-small", since="0.10"),
    ],
)
def test_of_one_order_no_loss_decides_but_what_the_rules_declare(small: Rule, turned: bool) -> None:
    """The more specific rule first, then the older, then by name; whichever is given first."""
    large = a_rule("b-large", since="0.10")
    given = [
        replace(pending, precedence=rule.precedence)
        for rule, hits in ((small, kernels((0, MS))), (large, kernels((0, 3 * MS))))
        for pending in group_hits(rule.slug, Claims.EVENT, [hits])
    ]
    whole = scope()
    all_pending = resolve_claims(given[::-1] if turned else given, (whole.start_ns, whole.end_ns))
    owned = {
        pending.rule: sum(int((end - start).sum()) for start, end in [pending.own]) for pending in all_pending
    }
    assert owned == {small.slug: MS, large.slug: 2 * MS}


def test_usual_occurrence_reaches_half_of_the_cost() -> None:
    steps = np.array([0, 0, 0])
    assert _typical(np.array([9, 1, 1]), np.array([0, 5, 5]), steps) == 2
    assert _typical(np.array([9, 1, 1]), np.array([1, 4, 6]), steps) == 2
    assert _typical(np.array([9, 1, 1]), np.array([1, 7, 5]), steps) == 1


def test_collective_takes_at_least_its_best_rate_time() -> None:
    """Ten elements that take as long as a thousand waited: latency, and a hundredth of the thousand's time."""
    same, elements, took = (
        np.array(one) for one in ([0, 0, 0], [1_000, 10, 1_000], [1_000_000, 1_000_000, 2_000_000])
    )
    assert at_most(same, same, same, elements, took).tolist() == [1_000_000, 110_000, 1_000_000]
