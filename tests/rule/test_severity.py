"""How severe a finding is, over all shares that it may cost and that the device may idle."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.peer_comparison import LATE_SHARE
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.rule.severity import (
    blocking_severity,
    fault_severity,
    graded,
    job_severity,
    lengthens_step,
    severity_of,
)
from traceanalyzer.rule.views import IdleTime, Work

SHARES = (0.0, 0.004, 0.005, 0.02, 0.03, 0.05, 0.09, MIN_OPEN_SHARE, 0.5, 1.0)
MOST = (Severity.HIGH, Severity.MEDIUM, Severity.INFO)


def test_the_next_lower_severity_takes_less_and_info_has_none() -> None:
    assert [one.below for one in Severity] == [*list(Severity)[1:], Severity.INFO]
    assert [one.at_most(one.below) for one in Severity] == [one.below for one in Severity]
    assert all(Severity.of(one.least_share) is one for one in Severity)
    assert [Severity.of(one.least_share - 1e-9) for one in list(Severity)[:-1]] == list(Severity)[1:]


@pytest.mark.parametrize("view", [IdleTime, Work])
def test_severity_without_saving_is_limited_by_bounds(view: type) -> None:
    """What it cost, what its rule allows, and for idle time how long the device idles without the profiler: where that
    is less than the replay's error, low at most."""
    occurrences: Any = analysed(FIXTURES / "scheduler-gap" / "bad.json.gz").index(view)
    for cost, idle, most in product(SHARES, (None, *SHARES), MOST):
        hits = hits_of(max_severity=most, occurrences=occurrences)
        bounds = [Severity.of(cost), most]
        if view is IdleTime and idle is not None and idle < MIN_OPEN_SHARE:
            bounds += [Severity.of(idle), Severity.LOW]
        lowest = max(bounds, key=lambda one: one.rank)
        assert severity_of(hits, cost, None, idle) is lowest, (cost, idle, most)


@pytest.mark.parametrize(("share", "severity"), [(0.05, Severity.MEDIUM), (0.0499, Severity.INFO)])
def test_what_is_normal_is_less_than_the_normal_share(share: float, severity: Severity) -> None:
    """Of what it costs, or of what its fix saves."""
    hits = hits_of(normal_share=0.05, max_severity=Severity.HIGH, occurrences=())
    assert severity_of(hits, share, None, None) is severity
    assert severity_of(hits, 0.0, saved(share, share), None) is severity


def hits_of(**fields: Any) -> Any:
    """What severity looks at of hits."""
    usual = {"info": False, "normal_share": 0.0, "max_severity": Severity.HIGH, "measured_share": None}
    usual["evidence"] = {}
    return SimpleNamespace(**{**usual, "occurrences": (), **fields})


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"measured_share": 0.3}, Severity.HIGH),
        ({"measured_share": 0.04}, Severity.MEDIUM),
        ({"measured_share": 0.3, "max_severity": Severity.MEDIUM}, Severity.MEDIUM),
        ({"measured_share": 0.3, "info": True}, Severity.INFO),
    ],
)
def test_a_measured_share_decides_the_severity(fields: dict[str, Any], severity: Severity) -> None:
    """Whatever it cost in the trace, and whatever a fix is predicted to save."""
    assert severity_of(hits_of(**fields), 0.0, saved(0.01, 0.0), None) is severity


def saved(share: float, low: float) -> Saving:
    return Saving(1, 1, 1, share, low, share, "replayed")


@pytest.mark.parametrize(
    ("share", "low", "severity"),
    [
        (0.2, 0.03, Severity.HIGH),  # the low end reaches the class below
        (0.2, 0.029, Severity.MEDIUM),
        (0.2, 0.004, Severity.LOW),
        (0.2, 0.0, Severity.LOW),  # cannot be told from nothing
        (0.2, -0.1, Severity.LOW),
        (0.05, 0.005, Severity.MEDIUM),
        (0.05, 0.004, Severity.LOW),
        (0.05, 0.0, Severity.LOW),
        (0.02, 0.001, Severity.LOW),
        (0.02, 0.0, Severity.INFO),
        (0.004, 0.003, Severity.INFO),
    ],
)
def test_a_saving_counts_at_both_its_ends(share: float, low: float, severity: Severity) -> None:
    """Whatever it cost."""
    assert graded(0.5, saved(share, low)) is severity
    hits = hits_of(normal_share=0.0, max_severity=Severity.INFO, occurrences=())
    assert severity_of(hits, 0.0, saved(share, low), 0.0) is severity
    hits.info = True
    assert severity_of(hits, 0.5, saved(share, low), None) is Severity.INFO
    assert graded(0.05, None) is Severity.MEDIUM


@pytest.mark.parametrize(("share", "longer"), [(-0.004, False), (-0.005, True), (0.2, False)])
def test_a_fix_that_makes_the_step_longer_is_info(share: float, longer: bool) -> None:
    assert lengthens_step(saved(share, share)) is longer
    assert not lengthens_step(None)


def test_fault_severity_is_its_worst_or_its_sum() -> None:
    low, medium = Severity.LOW, Severity.MEDIUM
    assert fault_severity([low, medium], 0.001, saved(0.01, 0.01)) is medium
    assert fault_severity([low, low], 0.001, saved(0.2, 0.2)) is Severity.HIGH
    assert fault_severity([low, low], 0.04, None) is medium


def finding(severity: Severity, cause: str = "", late: float | None = None) -> Any:
    evidence = {} if late is None else {LATE_SHARE: late}
    return SimpleNamespace(severity=severity, cause=cause, cost_share=0.2, evidence=evidence)


@pytest.mark.parametrize(
    ("severity", "cause", "saving", "expected"),
    [
        (Severity.HIGH, "", saved(0.02, 0.02), Severity.LOW),
        (Severity.LOW, "", saved(0.2, 0.2), Severity.HIGH),
        (Severity.INFO, "", saved(0.2, 0.2), Severity.INFO),
        (Severity.HIGH, "waiting", saved(0.04, 0.04), Severity.MEDIUM),
        (Severity.HIGH, "waiting", None, Severity.INFO),
        (Severity.HIGH, "transfer", None, Severity.HIGH),
    ],
)
def test_job_finding_severity_is_the_jobs_saving(
    severity: Severity, cause: str, saving: Saving | None, expected: Severity
) -> None:
    """Without a saving waiting is others' doing."""
    assert job_severity(finding(severity, cause), saving) is expected


@pytest.mark.parametrize(
    ("severity", "late", "expected"),
    [
        (Severity.INFO, 0.03, Severity.LOW),
        (Severity.INFO, 0.0299, Severity.INFO),
        (Severity.INFO, None, Severity.INFO),
        (Severity.HIGH, 0.5, Severity.HIGH),
    ],
)
def test_what_others_wait_for_long_is_low_at_least(
    severity: Severity, late: float | None, expected: Severity
) -> None:
    assert blocking_severity(finding(severity, late=late)) is expected


@pytest.mark.parametrize(
    ("evidence", "expected"), [({}, Severity.HIGH), ({"guessed_rate": True}, Severity.LOW)]
)
def test_guessed_rates_of_a_device_give_a_job_no_more_than_low(
    evidence: dict[str, Any], expected: Severity
) -> None:
    guessed = finding(Severity.LOW)
    guessed.evidence |= evidence
    assert job_severity(guessed, saved(0.2, 0.2)) is expected
