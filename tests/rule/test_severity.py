"""How severe a finding is, over all shares that it may cost and that the device may idle."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.loaded import analysed
from tests.recorded import FIXTURES
from traceanalyzer.model.finding import Severity
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.rule.severity import severity_of
from traceanalyzer.rule.views import IdleTime, Work

SHARES = (0.0, 0.004, 0.005, 0.02, 0.03, 0.05, 0.09, MIN_OPEN_SHARE, 0.5, 1.0)
MOST = (Severity.HIGH, Severity.MEDIUM, Severity.INFO)


def test_the_next_lower_severity_takes_less_and_info_has_none() -> None:
    assert [one.below for one in Severity] == [*list(Severity)[1:], Severity.INFO]
    assert [one.at_most(one.below) for one in Severity] == [one.below for one in Severity]
    assert all(Severity.of(one.least_share) is one for one in Severity)
    assert [Severity.of(one.least_share - 1e-9) for one in list(Severity)[:-1]] == list(Severity)[1:]


@pytest.mark.parametrize("view", [IdleTime, Work])
def test_without_a_saving_a_finding_is_as_severe_as_all_that_bounds_it_allows(view: type) -> None:
    """What it cost, what its rule allows, and for idle time how long the device idles without the profiler: where that
    is less than the replay's error, low at most."""
    occurrences: Any = analysed(FIXTURES / "scheduler-gap" / "bad.json.gz").index(view)
    for cost, idle, most in product(SHARES, (None, *SHARES), MOST):
        hits: Any = SimpleNamespace(info=False, normal_share=0.0, max_severity=most, occurrences=occurrences)
        bounds = [Severity.of(cost), most]
        if view is IdleTime and idle is not None and idle < MIN_OPEN_SHARE:
            bounds += [Severity.of(idle), Severity.LOW]
        lowest = max(bounds, key=lambda one: one.rank)
        assert severity_of(hits, cost, None, idle) is lowest, (cost, idle, most)
