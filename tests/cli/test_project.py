"""`[tool.traceanalyzer]` of pyproject.toml beside the command line, the summary of a job of CI, and `--fail-on`."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.commands import call, written
from tests.report import report_samples as samples
from traceanalyzer.cli import diagnose as command
from traceanalyzer.cli import report_output
from traceanalyzer.cli.config import read_config
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import GivenStep
from traceanalyzer.render.data.ci import fingerprint

TODAY = datetime.date(2026, 6, 15)


def project(folder: Path, table: str) -> Path:
    """A folder with such a table."""
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(f"[tool.traceanalyzer]\n{table}\n")
    return folder


@pytest.mark.parametrize(("until", "ignored"), [("2026-06-14", False), ("2026-06-15", True), ("2026-06-16", True)])
def test_a_rule_is_ignored_up_to_the_last_day_of_its_entry(until: str, ignored: bool, tmp_path: Path) -> None:
    table = f'ignore = [{{rule = "cold-start", reason = "known", until = {until}}}]'
    config = read_config(project(tmp_path, table), TODAY)
    assert config.ignore == (("cold-start",) if ignored else ())
    assert config.over == (() if ignored else ("cold-start",))


def test_the_nearest_file_at_or_above_the_folder_counts(tmp_path: Path) -> None:
    project(tmp_path, "step-ms = 1")
    inner = project(tmp_path / "inner", "step-ms = 2")
    (deep := inner / "deep").mkdir()
    (beside := tmp_path / "beside").mkdir()
    told = [read_config(folder, TODAY).step_ms for folder in (deep, inner, beside, tmp_path)]
    assert told == [GivenStep(ms, ms, ms) for ms in (2, 2, 1, 1)]


@pytest.mark.parametrize("value", ['"18:19"', "[18, 19, 18.5]"])
def test_step_time_of_a_project_may_be_a_range(value: str, tmp_path: Path) -> None:
    assert read_config(project(tmp_path, f"step-ms = {value}"), TODAY).step_ms == GivenStep(18.5, 18.0, 19.0)


@pytest.mark.parametrize(
    "table",
    [
        'fail-on = "severe"',
        "fail-on = ",
        "colour = true",
        "select = 3",
        "select = [3]",
        "step-ms = 0",
        "step-ms = -1",
        "step-ms = 86400000",
        f"step-ms = {'9' * 400}",
        "step-ms = true",
        'limits = {"no-dot" = 3}',
        'limits = {"scheduler-gap.min_gap_ns" = true}',
        "limits = 3",
        "ignore = 3",
        'ignore = ["cold-start"]',
        'ignore = [{rule = 3, reason = "x", until = 2030-01-01}]',
        'ignore = [{rule = "cold-start", reason = "", until = 2030-01-01}]',
        'ignore = [{rule = "cold-start", reason = "x", until = "soon"}]',
        'ignore = [{rule = "cold-start", reason = "x", until = 2030-01-01T00:00:00}]',
        'ignore = [{rule = "cold-start", reason = "x", until = 2030-01-01, more = 1}]',
    ],
)
def test_what_a_table_cannot_mean_is_refused(table: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"tool\.traceanalyzer|is no TOML"):
        read_config(project(tmp_path, table), TODAY)


def test_a_step_of_a_project_may_take_almost_a_day(tmp_path: Path) -> None:
    told = read_config(project(tmp_path, "step-ms = 86399999.5"), TODAY).step_ms
    assert told == GivenStep(*[86_399_999.5] * 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tool = 3", None),
        ("[tool]\nother = 3", None),
        ("[tool]\ntraceanalyzer = 3", r"tool\.traceanalyzer is no table"),
        ("[tool.traceanalyzer", "is no TOML"),
        ("a = " + "[" * 50_000, "is no TOML"),
        ('[tool.traceanalyzer]\nlimits = {"a.b" = 0.5, "c.d" = "e"}', None),
        ('[tool.traceanalyzer]\nfail-on = "never"', None),
        ("[tool.traceanalyzer]\nsettings = 3", "has no key 'settings'\n.*fail-on, ignore, limits, select"),
        ('[tool.traceanalyzer]\nselect = ["a", 3]', "has select"),
        ('[tool.traceanalyzer]\nignore = [{rule = "a", reason = " ", until = 2030-01-01}]', "without rule"),
        ('[tool.traceanalyzer]\nignore = [{rule = "a", until = 2030-01-01}]', "without rule, reason"),
    ],
)
def test_missing_table_is_empty_and_wrong_table_is_refused(text: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    if said is None:
        read_config(tmp_path, TODAY)
        return
    with pytest.raises(BadOption, match=said):
        read_config(tmp_path, TODAY)


def test_limits_are_as_the_command_line_would_give_them(tmp_path: Path) -> None:
    config = read_config(project(tmp_path, 'limits = {"a.b" = 0.5, "c.d" = "e", "f.g" = 7}'), TODAY)
    assert config.settings == {"a.b": "0.5", "c.d": "e", "f.g": "7"}


TABLE = """
fail-on = "low"
select = ["hotspot", "cold-start"]
step-ms = 7
ignore = [{rule = "loss-head", reason = "known", until = 2999-01-01}]
limits = {"scheduler-gap.min_gap_ns" = 3, "host-gap.min_gap_ns" = 4}
"""


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ((), {}),
        (("--fail-on", "never"), {"fail_on": "never"}),
        (("--select", "trace-health"), {"select": ("trace-health",)}),
        (("--select", "compile, ,a-b", "--select", "c"), {"select": ("compile", "a-b", "c")}),
        (
            ("--set", "a.b = 3=4", "--no-config"),
            {"fail_on": "never", "select": (), "ignore": (), "step_ms": None} | {"settings": {"a.b": "3=4"}},
        ),
        (("--ignore", "compile"), {"ignore": ("compile", "loss-head")}),
        (("--step-ms", "9"), {"step_ms": GivenStep(9.0, 9.0, 9.0)}),
        (
            ("--set", "host-gap.min_gap_ns=5"),
            {"settings": {"scheduler-gap.min_gap_ns": "3", "host-gap.min_gap_ns": "5"}},
        ),
        (("--no-config",), {"fail_on": "never", "select": (), "ignore": (), "step_ms": None, "settings": {}}),
    ],
)
def test_command_line_overrides_the_project(
    options: tuple[str, ...], changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules to ignore add up, and limits do one by one."""
    requests: list[command.Request] = []
    monkeypatch.chdir(project(tmp_path, TABLE))
    monkeypatch.setattr(command, "_run", requests.append)
    assert call("diagnose", "trace.json", *options).exit_code == 0
    usual = {
        "fail_on": "low",
        "select": ("hotspot", "cold-start"),
        "ignore": ("loss-head",),
        "step_ms": GivenStep(7.0, 7.0, 7.0),
        "settings": {"scheduler-gap.min_gap_ns": "3", "host-gap.min_gap_ns": "4"},
    }
    assert {name: getattr(requests[0], name) for name in usual} == usual | changed


def test_job_summary_is_appended_and_never_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("of another step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    report_output.rendered("github", samples.report(), [])
    assert summary.read_bytes() == b"of another step\n" + report_output.rendered("markdown", samples.report(), [])
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert report_output.rendered("github", samples.report(), [])
    assert "summary cannot be written: Is a directory" in capsys.readouterr().err


SEVERITIES = list(Severity)


@pytest.mark.parametrize("known", [None, *SEVERITIES])
@pytest.mark.parametrize("fail_on", ["high", "medium", "low", "info", "never"])
def test_failing_findings_are_severe_and_new_or_worse(fail_on: str, known: Severity | None) -> None:
    """Of each severity one; the baseline knows all of them, as of one severity."""
    found = [replace(samples.findings()[0], severity=one, rule=one.value) for one in SEVERITIES]
    report = replace(samples.report(), findings=tuple(found))
    before = None if known is None else {fingerprint(one): known.rank for one in found}
    least = -1 if fail_on == "never" else Severity(fail_on).rank
    worst = [one for one in found if one.severity.rank <= least]
    expected = [one for one in worst if known is None or one.severity.rank < known.rank]
    assert report_output.failing(report, fail_on, before) == expected
    if known is not None:
        assert report_output.failing(report, fail_on, {}) == worst


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is no report of findings"),
        ('{"findings": 3}', "is no report of findings"),
        ("{", "is no JSON"),
        pytest.param("[" * 100_000, "is no JSON", id="nested too deep"),
        ('{"findings": [3]}', "one of its findings cannot be read"),
    ],
)
def test_why_a_baseline_is_none_is_said(text: str, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "known.json").write_text(text)
    with pytest.raises(BadOption, match=said):
        report_output.baseline_severities(path)
    with pytest.raises(BadOption, match="cannot be read: No such file"):
        report_output.baseline_severities(tmp_path / "none.json")


def test_tables_name_the_trace_of_each_row(tmp_path: Path) -> None:
    traces = [
        written(tmp_path / f"{name}.json", distributedInfo={"rank": at, "world_size": 2})
        for at, name in enumerate("ab")
    ]
    books, found = tmp_path / "books.parquet", tmp_path / "found.parquet"
    assert call("diagnose", *traces, "--accounting", books, "--parquet", found).exit_code == 0
    metadata = b"".join(pq.read_schema(books).metadata.values())
    assert b"a.json" in metadata
    assert b"b.json" in metadata
    assert pq.read_table(found).num_rows
