"""Which findings fail a run, at either side of the severity that was asked for and of what a baseline knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from traceanalyzer.cli.gate import failing
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.source_lines import fingerprint

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
def test_what_a_baseline_knows_fails_only_where_it_is_more_severe_now(known: str, fails: bool) -> None:
    medium = EVERY[1]
    told = {fingerprint(medium): Severity(known).rank}
    found = failing(REPORT, "medium", told)
    assert [one.rule for one in found] == ["high", "medium"][: 1 + fails]
    assert failing(REPORT, "never", told) == []
