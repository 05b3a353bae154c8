"""Every rule over every recorded fixture: found in its bad one, clear in its good one, silent on healthy ones."""

from pathlib import Path

import pytest

from tests.support.cached_reports import reported as _report
from tests.support.cached_reports import selected
from tests.support.fixtures import FIXTURES, FOLDERS, HEALTHY, RECORDED, TRACES, UNRECORDED, name_of
from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.rule.registry import all_rules


@pytest.mark.parametrize("slug", RECORDED)
def test_rules_find_bad_fixtures_and_clear_good_ones(slug: str) -> None:
    bad, good = (FIXTURES / slug / f"{name}.json.gz" for name in ("bad", "good"))
    assert _status(bad, slug) is Status.FOUND
    accusations = [found for found in _report(good).findings if found.rule == slug]
    assert all(found.severity is Severity.INFO for found in accusations), accusations


def test_what_is_said_to_have_no_pair_has_none() -> None:
    assert UNRECORDED.isdisjoint(folder.name for folder in FOLDERS)
    assert {rule.slug for rule in all_rules()} >= UNRECORDED


@pytest.mark.parametrize("path", HEALTHY, ids=name_of)
def test_nobody_is_accused_on_a_healthy_trace(path: Path) -> None:
    assert [found for found in _report(path).findings if found.severity is not Severity.INFO] == []


def test_a_gap_that_happens_once_is_said_to_be_a_hiccup() -> None:
    path = FIXTURES / "scheduler-gap" / "once.json.gz"
    (once,) = (found for found in _report(path).findings if found.cause == "once")
    assert (once.rule, once.severity) == ("host-gap", Severity.INFO)
    assert "this pause does not recur" in once.message
    (alone,) = (found for found in selected(path, "scheduler-gap").findings if found.cause.endswith("-once"))
    assert alone.severity is Severity.INFO
    assert "in one step only" in alone.message


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_no_rule_fails(path: Path) -> None:
    assert [outcome for outcome in _report(path).outcomes if outcome.status is Status.FAILED] == []


def _status(path: Path, slug: str) -> Status:
    return next(outcome.status for outcome in _report(path).outcomes if outcome.rule == slug)
