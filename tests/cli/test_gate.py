"""Which findings fail a run, at either side of the severity that was asked for and of what a baseline knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report import report_samples as samples
from traceanalyzer.cli.report_output import baseline_severities, failing
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.ci import fingerprint

EVERY = tuple(replace(samples.finding(0), rule=str(severity), severity=severity) for severity in Severity)
REPORT = samples.report(findings=EVERY)
NAMES = [str(severity) for severity in Severity]


@pytest.mark.parametrize(
    ("fail_on", "count"), [("never", 0), ("high", 1), ("medium", 2), ("low", 3), ("info", 4)]
)
def test_what_is_as_severe_as_was_asked_for_fails(fail_on: str, count: int) -> None:
    assert [one.rule for one in failing(REPORT, fail_on, None)] == NAMES[:count]
    assert [one.rule for one in failing(REPORT, fail_on, {})] == NAMES[:count]


@pytest.mark.parametrize(
    ("known", "fails"), [("high", False), ("medium", False), ("low", True), ("info", True)]
)
def test_baselined_finding_fails_only_if_more_severe(known: str, fails: bool) -> None:
    medium = EVERY[1]
    told = {fingerprint(medium): Severity(known).rank}
    found = failing(REPORT, "medium", told)
    assert [one.rule for one in found] == ["high", "medium"][: 1 + fails]
    assert failing(REPORT, "never", told) == []


ONE = {"rule": "exposed-copy", "cause": "pageable", "by": None, "severity": "low", "evidence": {}}


def test_every_finding_of_a_baseline_is_known_with_its_severity(tmp_path: Path) -> None:
    """By what they name, too; one without evidence is one."""
    told = [
        {**ONE, "severity": severity, "by": by, "evidence": None}
        for severity, by in (("info", "aten::mm"), ("high", "aten::to"), ("medium", None))
    ]
    (path := tmp_path / "known.json").write_text(json.dumps({"findings": told}))
    assert list(baseline_severities(path).values()) == [Severity(one["severity"]).rank for one in told]
    del told[1]["evidence"]
    path.write_text(json.dumps({"findings": told}))
    assert len(baseline_severities(path)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "bad"},
        {"severity": None},
        {"severity": ["low"]},
        {"evidence": 3},
        {"rule": ...},
        {"cause": ...},
        {"severity": ...},
    ],
)
def test_one_finding_that_cannot_be_read_is_enough(changes: dict[str, Any], tmp_path: Path) -> None:
    odd = {key: value for key, value in {**ONE, **changes}.items() if value is not ...}
    (path := tmp_path / "known.json").write_text(json.dumps({"findings": [ONE, odd]}))
    with pytest.raises(BadOption, match="one of its findings cannot be read"):
        baseline_severities(path)


def test_json_that_is_nested_too_deep_to_be_read_is_none(tmp_path: Path) -> None:
    (path := tmp_path / "known.json").write_text("[" * 100_000)
    with pytest.raises(BadOption, match="is no JSON"):
        baseline_severities(path)
