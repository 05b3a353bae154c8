"""Every rule over every recorded fixture, against findings.json: a change shows whom else a rule accuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.loaded import reported as _report
from tests.recorded import FIXTURES, FOLDERS, HEALTHY, RECORDED, TRACES, UNRECORDED, name_of
from traceanalyzer import Finding
from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.rule.registry import all_rules


def _said(path: Path) -> dict[str, Any]:
    """What the rules say of one trace, without the occurrences: short enough to be read in a diff."""
    report = _report(path)
    findings = [_short(found) for found in report.findings]
    unclear = {one.rule: one.why for one in report.outcomes if one.status not in (Status.CLEAR, Status.FOUND)}
    return dict(json.loads(json.dumps({"findings": findings, "not applicable": unclear})))


SAID = ("rule", "cause", "by", "severity", "confidence", "message", "count", "steps", "cost_ns")
PLACE = ("device", "stream", "thread", "step", "event_ids")


def _short(found: Finding) -> dict[str, Any]:
    """Without what is null, and the saving to the percent."""
    saving = found.saving and [
        round(x, 2) for x in (found.saving.low_share, found.saving.share, found.saving.high_share)
    ]
    said = {name: getattr(found, name) for name in (*SAID, *PLACE)} | {"saving": saving}
    return {name: value for name, value in said.items() if value is not None}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_rules_say_of_every_fixture_what_they_said(folder: Path, request: pytest.FixtureRequest) -> None:
    said = {name_of(path).split("/")[1]: _said(path) for path in TRACES if path.parent == folder}
    expected = folder / "findings.json"
    if request.config.getoption("--update-findings"):
        expected.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert said == json.loads(expected.read_text(encoding="utf-8"))


@pytest.mark.parametrize("slug", RECORDED)
def test_every_rule_finds_its_bad_fixture_and_clears_its_good_one(slug: str) -> None:
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
    (once,) = (
        f for f in _report(FIXTURES / "scheduler-gap" / "once.json.gz").findings if f.cause.endswith("-once")
    )
    assert once.severity is Severity.INFO
    assert "in one step only" in once.message


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_no_rule_fails(path: Path) -> None:
    assert [outcome for outcome in _report(path).outcomes if outcome.status is Status.FAILED] == []


def _status(path: Path, slug: str) -> Status:
    return next(outcome.status for outcome in _report(path).outcomes if outcome.rule == slug)
