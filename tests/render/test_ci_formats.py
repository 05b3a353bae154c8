"""What CI systems read: escapes, levels and places of GitHub's commands, of SARIF and of JUnit's XML."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.render.data.ci import render_github, render_junit, render_sarif, source_line


def placed(lines: Any, **changes: Any) -> Finding:
    """A finding with its time by line."""
    return samples.finding(0, evidence={"lines": lines}, **changes)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ({"a.py(3): f": 5, "b.py(4): g": 9}, ("b.py", 4, "g")),
        ({"b.py(4): g": 5, "a.py(3): f": 5}, ("a.py", 3, "f")),
        ({"<built-in method item>": 9, "a.py(3): f": 5}, ("a.py", 3, "f")),
        ({"a.py(3): f": None, "b.py(4): g": 0.5}, ("b.py", 4, "g")),
        ({"my (1) dir/a.py(30): <lambda>": 1}, ("my (1) dir/a.py", 30, "<lambda>")),
        ({"a.pyx(3): f": 5}, None),
        ({}, None),
        (["a.py(3): f"], None),
        (None, None),
    ],
)
def test_the_line_of_a_finding_is_that_with_most_of_its_time(
    lines: Any, place: tuple[str, int, str] | None
) -> None:
    found = source_line(placed(lines))
    assert (found and (found.file, found.line, found.function)) == place


def test_commands_of_github_escape_what_would_end_them() -> None:
    found = placed(
        {"C:\\a,b.py(3): f": 1}, cause="", by=None, rule="a:b,c%d", message="100 %:\r\nso, it", advice="Do."
    )
    assert render_github(samples.report(findings=(found,))) == (
        "::error file=C%3A\\a%2Cb.py,line=3,title=a%3Ab%2Cc%25d (high)::100 %25:%0D%0Aso, it. Do.\n"
    )


def test_github_is_told_of_what_is_above_info_by_its_severity() -> None:
    every = tuple(replace(samples.finding(0), severity=severity) for severity in Severity)
    lines = render_github(samples.report(findings=every)).splitlines()
    assert [line.split(" title=")[0] for line in lines] == ["::error", "::warning", "::notice"]


def test_sarif_has_uris_lines_from_one_and_each_rule_once() -> None:
    found = (
        placed({"my dir\\a.py(0): f": 1}, rule="z-rule"),
        samples.finding(0, rule="unplaced"),
        placed({"b.py(7): g": 1}, rule="a-rule", severity=Severity.INFO, saving=samples.saving()),
        placed({"c.py(8): g": 1}, rule="z-rule", severity=Severity.LOW),
    )
    run = json.loads(render_sarif(samples.report(findings=found), {"a-rule": "What A is"}))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert rules == [
        {"id": "a-rule", "shortDescription": {"text": "What A is"}},
        {"id": "z-rule", "shortDescription": {"text": "z-rule"}},
    ]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert [(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in places] == [
        ("my%20dir/a.py", 1),
        ("b.py", 7),
        ("c.py", 8),
    ]
    assert [(one["ruleIndex"], one["level"]) for one in run["results"]] == [
        (1, "error"),
        (0, "none"),
        (1, "note"),
    ]
    assert [one["properties"]["saving"] for one in run["results"]] == [None, 0.5, None]


def test_junit_counts_what_failed_was_skipped_and_could_not_run() -> None:
    outcomes = (
        Outcome("a", Status.FOUND),
        Outcome("b", Status.FOUND),
        Outcome("c", Status.NOT_APPLICABLE, "no \x1b\ud800steps"),
        Outcome("d", Status.NOT_APPLICABLE),
        Outcome("e", Status.FAILED, "ZeroDivisionError"),
        Outcome("f", Status.CLEAR, "costs too little"),
    )
    failing = [replace(samples.finding(0), rule="a", message=f"says {at}", advice="Do.") for at in range(2)]
    (suite,) = ElementTree.fromstring(render_junit(samples.report(outcomes=outcomes), failing))
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "1", "errors": "1", "skipped": "2"}
    inside = {case.get("name"): [(one.tag, one.get("message")) for one in case] for case in suite}
    assert inside == {
        "a": [("failure", "high: says 0. Do.")],
        "b": [],
        "c": [("skipped", "no \ufffd\\ud800steps")],
        "d": [("skipped", "")],
        "e": [("error", "ZeroDivisionError")],
        "f": [],
    }
    assert suite.findtext("testcase/failure") == "high: says 0. Do.\nhigh: says 1. Do."
