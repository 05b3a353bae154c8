"""`--format github|junit|sarif|markdown`, the baseline and the configuration of a project."""

import contextlib
import datetime
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.commands import call, refused
from tests.report import report_samples as samples
from traceanalyzer.cli.config import read_config
from traceanalyzer.cli.report_output import baseline_severities
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Outcome, Severity, Status
from traceanalyzer.render.data.ci import render_junit
from traceanalyzer.rule.registry import all_rules

FIXTURES = Path(__file__).parents[2] / "fixtures"
PLACED = FIXTURES / "implicit-sync" / "bad.json.gz"  # low, at capture/workloads/reading_back.py(19)
SEVERE = FIXTURES / "exposed-copy" / "bad.json.gz"

COMMAND = re.compile(r"^::(error|warning|notice) ((?:[a-zA-Z]+=[^,:\r\n]*)(?:,[a-zA-Z]+=[^,:\r\n]*)*)::([^\r\n]+)$")
"""What GitHub's runner reads (ActionCommand.cs): properties with escaped colons and commas, one line."""


def output(*arguments: object, code: int = 0) -> str:
    result = call("diagnose", *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_github_reads_each_line_as_a_command_at_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lines = output(PLACED, "--format", "github").splitlines()
    commands = [COMMAND.match(line) for line in lines]
    assert commands
    assert all(commands)
    placed = next(line for line in lines if "implicit-sync" in line)
    assert placed.startswith(
        "::notice file=capture/workloads/reading_back.py,line=19,title=aten%3A%3Aitem reads a value back"
    )
    assert summary.read_text("utf-8") == output(PLACED, "--format", "markdown")


def test_sarif_holds_the_findings_with_a_line() -> None:
    document = json.loads(output(PLACED, "--format", "sarif"))
    results = document["runs"][0]["results"]
    assert {"implicit-sync", "hotspot"} == {result["ruleId"] for result in results}
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "capture/workloads/reading_back.py"
    assert place["region"]["startLine"] == 19
    rules = {rule.slug: rule.title for rule in all_rules()}
    for one in document["runs"][0]["tool"]["driver"]["rules"]:
        assert one["shortDescription"]["text"] == rules[one["id"]]
    names = [result["partialFingerprints"]["traceanalyzer/v1"] for result in results]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("folder", ["implicit-sync", "host-round-trip", "repeated-calls"])  # with stacks
def test_what_sarif_says_of_a_finding_is_what_the_report_says(folder: str) -> None:
    """Every field against the JSON, whose own numbers are held against the trace."""
    trace = FIXTURES / folder / "bad.json.gz"
    report = json.loads(output(trace, "--format", "json"))
    levels = {"high": "error", "medium": "warning", "low": "note", "info": "none"}
    expected = []
    for one in report["findings"]:
        line = next(iter((one["evidence"] or {}).get("lines") or ()), None)
        if line is not None:
            file, number = line.partition("): ")[0].rsplit("(", 1)
            said = f"{one['title']}. {one['message']}. {one['advice']}"
            saving = None if one["saving"] is None else one["saving"]["share"]
            properties = one["severity"], one["cause"], saving
            expected.append((one["rule"], levels[one["severity"]], said, file, int(number), *properties))
    found = []
    run = json.loads(output(trace, "--format", "sarif"))["runs"][0]
    for one in run["results"]:
        place = one["locations"][0]["physicalLocation"]
        where = place["artifactLocation"]["uri"], place["region"]["startLine"]
        values = [one["properties"][name] for name in ("severity", "cause", "saving")]
        found.append((one["ruleId"], one["level"], one["message"]["text"], *where, *values))
        assert run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
    assert expected
    assert found == expected


def test_sarif_is_read_by_a_model_of_its_schema() -> None:
    model = pytest.importorskip("sarif_pydantic")
    for trace in (PLACED, SEVERE):
        read = model.Sarif.model_validate_json(output(trace, "--format", "sarif"))
        assert read.version == "2.1.0"


def test_junit_fails_the_rules_that_fail_the_run(tmp_path: Path) -> None:
    text = output(SEVERE, "--format", "junit", "--fail-on", "high", code=1)
    suite = ElementTree.fromstring(text)[0]
    cases = {case.get("name"): case for case in suite}
    assert int(suite.get("tests", "")) == len(cases) > 40
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert int(suite.get("failures", "")) == len(failed)
    assert "exposed-copy" in failed
    assert int(suite.get("skipped", "")) == sum(case.find("skipped") is not None for case in cases.values())
    assert 'failures="0"' in output(SEVERE, "--format", "junit")
    parser = pytest.importorskip("junitparser")
    path = tmp_path / "report.xml"
    path.write_text(text, "utf-8")
    assert parser.JUnitXml.fromfile(str(path)).failures in (None, len(failed))


def test_junit_fails_rules_by_findings_of_their_rank() -> None:
    outcomes = tuple(Outcome(rule, Status.FOUND, None, rank) for rule, rank in (("a", None), ("b", 0), ("b", 1)))
    failing = [replace(samples.finding(0), rule=rule, rank=rank) for rule, rank in (("a", 1), ("b", 1))]
    job = replace(samples.two_ranks(), outcomes=outcomes)
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(render_junit(job, failing))}
    assert {name: suite.get("failures") for name, suite in suites.items()} == {
        "all ranks": "1",
        "rank0.json": "0",
        "rank1.json": "1",
    }
    assert {name: len(suite.findall("*/failure")) for name, suite in suites.items()} == {
        "all ranks": 1,
        "rank0.json": 0,
        "rank1.json": 1,
    }


def test_markdown_is_a_table_with_the_verdict_before_it() -> None:
    text = output(SEVERE, "--format", "markdown")
    assert text.startswith("## ")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert "exposed-copy" in text
    assert "█" in text


@pytest.mark.parametrize("form", ["json", "baseline"])
def test_only_what_is_new_or_more_severe_fails(form: str, tmp_path: Path) -> None:
    known = tmp_path / "findings.json"
    output(SEVERE, "--format", form, "-o", known)
    output(SEVERE, "--fail-on", "low", code=1)
    output(SEVERE, "--fail-on", "low", "--baseline", known)
    output(PLACED, "--fail-on", "low", "--baseline", known, code=1)
    document = json.loads(known.read_text())
    for finding in document["findings"]:
        finding["severity"] = "info"
    known.write_text(json.dumps(document))
    output(SEVERE, "--fail-on", "low", "--baseline", known, code=1)
    assert "without --fail-on" in refused("diagnose", SEVERE, "--baseline", known)


def test_annotations_mark_what_the_baseline_does_not_know(tmp_path: Path) -> None:
    known = tmp_path / "findings.json"
    output(PLACED, "--format", "baseline", "-o", known)
    assert len(known.read_bytes()) < 2_000
    same = output(PLACED, "--format", "github", "--baseline", known).splitlines()
    assert all(line.startswith("::notice ") and "%2C known)::" in line for line in same)
    other = output(SEVERE, "--format", "github", "--baseline", known).splitlines()
    assert other[0].startswith("::error ")
    assert "%2C new)::" in other[0]
    run = json.loads(output(PLACED, "--format", "sarif", "--baseline", known))["runs"][0]
    assert {one["baselineState"] for one in run["results"]} == {"unchanged"}


def project(folder: Path, table: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.traceanalyzer]\n{table}\n")
    return folder


def test_command_line_fail_on_overrides_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = '{{rule = "exposed-copy", reason = "known", until = {}}}'
    monkeypatch.chdir(project(tmp_path, f'fail-on = "high"\nignore = [{entry.format("2999-01-01")}]'))
    assert "exposed-copy" not in output(SEVERE, "--format", "markdown").partition("\n")[2]
    output(SEVERE, "--no-config")
    project(tmp_path, f'fail-on = "high"\nignore = [{entry.format("2001-01-01")}]')
    result = call("diagnose", SEVERE)
    assert result.exit_code == 1
    assert "exposed-copy is no longer ignored" in result.stderr
    output(SEVERE, "--fail-on", "never")
    project(tmp_path, 'limits = {"no-rule.limit" = 3}')
    assert "no-rule" in refused("diagnose", SEVERE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["rule", "cause", "severity", "evidence", "lines", "findings", "by"]), inner)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(document=VALUES, whole=st.booleans())
def test_any_baseline_is_read_or_refused(document: Any, whole: bool, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"findings": [document]} if whole else document))
    with contextlib.suppress(BadOption):
        assert all(0 <= rank <= 3 for rank in baseline_severities(path).values())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=60))
def test_any_table_is_read_or_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(f"[tool.traceanalyzer]\n{text}".encode("utf-8", "surrogatepass"))
    with contextlib.suppress(BadOption):
        read_config(tmp_path, datetime.date(2026, 1, 1))


def test_baseline_keeps_the_worst_severity_of_equal_findings(tmp_path: Path) -> None:
    """Ranks have the same finding, at one worse than at another."""
    finding = {"rule": "exposed-copy", "cause": "pageable", "by": None, "evidence": {}}
    for severities in itertools.permutations(("high", "low", "info")):
        path = tmp_path / "known.json"
        path.write_text(json.dumps({"findings": [{**finding, "severity": one} for one in severities]}))
        assert list(baseline_severities(path).values()) == [Severity.HIGH.rank], severities


KNOWN = {
    "rule": "implicit-sync",
    "cause": "item",
    "by": "aten::item",
    "evidence": {"lines": {"/ci/a/train.py(19): step": 900, "/ci/a/train.py(40): main": 100}},
}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"evidence": {"lines": {"/ci/b/job/train.py(21): step": 1, "other.py(1): f": 0.5}}}, True),
        ({"evidence": {"lines": {"<built-in method item>": 9, "train.py(19): step": 2, "(1): f": 5}}}, True),
        ({"evidence": {"lines": {"z.py(1): f": 5, "train.py(19): step": 5, "a.py(2): g": None}}}, True),
        ({"evidence": {"lines": {"/ci/a/train.py(19): step": 100, "/ci/a/train.py(40): main": 900}}}, False),
        ({"evidence": {"lines": {"/ci/a/serve.py(19): step": 900}}}, False),
        ({"evidence": {}}, False),
        ({"rule": "host-round-trip"}, False),
        ({"cause": "nonzero"}, False),
        ({"by": "aten::nonzero"}, False),
        ({"by": None}, False),
    ],
)
def test_finding_is_recognised_after_lines_have_moved(changes: dict[str, Any], same: bool, tmp_path: Path) -> None:
    """By its rule, cause and what it names, and by the name of the file and the function that have most of its time."""
    names = []
    for finding in (KNOWN, {**KNOWN, **changes}):
        path = tmp_path / "known.json"
        path.write_text(json.dumps({"findings": [{**finding, "severity": "low"}]}))
        names.append(list(baseline_severities(path)))
    assert (names[0] == names[1]) is same
