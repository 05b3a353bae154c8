"""Commands, options, outputs and exit codes, in one process."""

import json
from itertools import product
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import MS, call, diagnosed, refused, written
from tests.support.sample_rules import sample_rules  # noqa: F401 - a fixture
from traceanalyzer.cli.app import run
from traceanalyzer.render.text.explain import rule_page
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.version import __version__

pytestmark = pytest.mark.usefixtures("sample_rules")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two kernels with 6 ms between them: idle is found, high."""
    return written(tmp_path / "trace.json")


def test_text_is_the_default(trace: Path) -> None:
    text = diagnosed(trace)
    assert text.startswith("trace.json   H200 ")
    assert "\n1  Idle twice, 6.02 ms in all\n" in text
    assert "  high  idle-device\n" in text
    assert "always-failing: ZeroDivisionError" in text
    assert "\x1b" not in text


def test_json_and_lines_go_to_standard_output(trace: Path) -> None:
    document = json.loads(diagnosed(trace, "--format", "json"))
    lines = diagnosed(trace, "--format", "jsonl").splitlines()
    assert document["traces"][0]["source"] == str(trace)
    assert len(lines) == 1 + sum(len(document[key]) for key in ("traces", "accounting", "findings", "outcomes"))


def test_every_output_at_once(trace: Path, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"out.{name}" for name in ("output", "parquet", "accounting")}
    options = [part for name, path in paths.items() for part in (f"--{name}", path)]
    assert diagnosed(trace, "--format", "json", *options) == ""
    document = json.loads(paths["output"].read_text())
    rows = pq.read_table(paths["parquet"]).to_pylist()
    assert [row["cost_ns"] for row in rows] == [finding["cost_ns"] for finding in document["findings"]]
    books = pd.read_parquet(paths["accounting"])
    assert json.loads(pq.read_schema(paths["accounting"]).metadata[b"traceanalyzer.sources"]) == [str(trace)]
    assert books["ns"].sum() == sum(document["accounting"][0]["parts_ns"].values())


def test_a_report_in_a_file_is_always_eighty_wide(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert diagnosed(trace, "--output", tmp_path / "report.txt") == ""
    assert len((tmp_path / "report.txt").read_text().splitlines()[0]) == 80
    assert len(diagnosed(trace).splitlines()[0]) == 120


def test_existing_outputs_are_refused_before_the_trace_is_read(tmp_path: Path) -> None:
    there = tmp_path / "report.json"
    there.write_text("old")
    absent = tmp_path / "absent.json"
    assert "report.json: already exists" in refused("diagnose", absent, "--output", there)
    assert "absent.json" in refused("diagnose", absent, "--output", there, "--force")
    assert there.read_text() == "old"


def test_force_replaces(trace: Path, tmp_path: Path) -> None:
    there = tmp_path / "report.json"
    there.write_text("old")
    diagnosed(trace, "--format", "json", "--output", there, "--force")
    assert json.loads(there.read_text())["findings"]


@pytest.mark.parametrize(("level", "code"), [("high", 1), ("medium", 1), ("low", 1), ("never", 0)])
def test_fail_on_is_the_exit_code(trace: Path, level: str, code: int) -> None:
    assert call("diagnose", trace, "--fail-on", level, "--ignore", "always-failing").exit_code == code


def test_fail_on_looks_at_severity(trace: Path) -> None:
    assert call("diagnose", trace, "--fail-on", "low", "--ignore", "idle-device,always-failing").exit_code == 0


def test_select_ignore_and_set(trace: Path) -> None:
    options = ("--select", "idle-device,nothing-wrong", "--ignore", "nothing-wrong", "--format", "json")
    document = json.loads(diagnosed(trace, *options, "--set", "idle-device.min_gap_ns=20000000"))
    assert [outcome["rule"] for outcome in document["outcomes"]] == ["idle-device"]
    assert document["findings"] == []
    assert document["limits"]["idle-device.min_gap_ns"] == 20_000_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--ignore", "xyz"), "The rules are: always-failing"),
        (("--set", "idle-device.max_gap=1"), "Its thresholds are: min_share, min_gap_ns, least."),
        (("--set", "idle-device.min_gap_ns=1.5"), "not a whole number"),
        (("--set", "idle-device.min_gap_ns=-1"), "a threshold is finite and not negative"),
        (("--set", "idle-device.least=nan"), "a threshold is finite and not negative"),
        (("--window", "90ms:95ms"), "outside the trace"),
    ],
)
def test_wrong_values_say_what_is_right(trace: Path, options: tuple[str, ...], says: str) -> None:
    assert says in refused("diagnose", trace, *options)


@pytest.mark.parametrize(
    "arguments",
    [
        ("diagnose",),
        ("diagnose", "trace.json", "--format", "xml"),
        ("diagnose", "trace.json", "--set", "nonsense"),
        ("diagnose", "trace.json", "--set", "nolimit=3"),
        ("diagnose", "trace.json", "--set", "rule.limit"),
        ("report", "trace.json", "-o", "a.html", "--step-ms", "0"),
        ("explain",),
        ("daignose", "trace.json"),
    ],
)
def test_wrong_usage_is_code_two(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(list(arguments)) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Error:" in streams.err


def test_a_window_is_analysed_alone(trace: Path) -> None:
    document = json.loads(diagnosed(trace, "--window", "1ms:3ms", "--format", "json"))
    assert document["traces"][0]["window"]["length_ns"] == 2 * MS
    assert document["traces"][0]["asked"] is True


def test_quiet_prints_findings_alone(trace: Path) -> None:
    assert diagnosed(trace, "--quiet").startswith("1  Idle twice")


def test_several_traces_are_ranks_of_one_job(trace: Path, tmp_path: Path) -> None:
    second = written(tmp_path / "second.json")
    document = json.loads(diagnosed(trace, second, "--format", "json"))
    assert [(one["rank"], one["source"]) for one in document["traces"]] == [(0, str(trace)), (1, str(second))]
    assert {finding["rank"] for finding in document["findings"]} == {0, 1}
    for given in ((trace, second), (tmp_path,)):
        assert "warning: 2 of the 2 traces declare no rank" in call("diagnose", *given).stderr
    assert "warning: 2 of" not in call("diagnose", trace).stderr


def test_declared_ranks_count_and_must_differ(tmp_path: Path) -> None:
    for rank in (5, 2):
        written(tmp_path / f"rank{rank}.json", distributedInfo={"rank": rank})
    five, two = tmp_path / "rank5.json", tmp_path / "rank2.json"
    document = json.loads(diagnosed(five, two, "--format", "json"))
    assert [one["rank"] for one in document["traces"]] == [2, 5]
    written(tmp_path / "other.json", distributedInfo={"rank": 5, "world_size": 2})
    assert "two traces of rank 5" in refused("diagnose", five, two, tmp_path / "other.json")


def test_explain_prints_the_page_and_the_limits() -> None:
    page = call("explain", "idle-device").stdout
    assert "idle-device  (group support, added in version 0.1)" in page
    assert "Between two kernels the device waits" in page
    assert "\n  min_share=0.0, min_gap_ns=10000, least=0.5\n" in page
    assert "a launch takes about as long" not in page
    whole = call("explain", "idle-device", "--verbose").stdout
    assert "idle-device.min_gap_ns=10000 (10.0 µs)\n        a launch takes about as long" in whole
    for rule in all_rules():
        for width, verbose in product((60, 80, 120), (False, True)):
            assert max(map(len, rule_page(rule, width, verbose=verbose).splitlines())) <= width
    assert "Did you mean idle-device?" in refused("explain", "idle-devices")


def test_version_and_help() -> None:
    assert call("--version").stdout == f"traceanalyzer {__version__}\n"
    assert "TRACE alone means `diagnose TRACE`" in call("-h").stdout
    for command in ("diagnose", "rules", "explain", "export"):
        assert f"  traceanalyzer {command}" in call(command, "--help").stdout


def test_the_time_of_a_step_is_taken_and_must_be_one(trace: Path) -> None:
    assert diagnosed(trace, "--step-ms", "12.5").startswith("trace.json ")
    for wrong in ("0", "-3", "fast"):
        assert call("diagnose", trace, "--step-ms", wrong).exit_code == 2


def test_profile_says_how_long_each_part_took(trace: Path) -> None:
    result = call("diagnose", trace, "--profile")
    for name in ("in total", "start-up", "reading"):
        assert f"  {name}\n" in result.stderr
    for part in ("DeviceWork", "idle-device"):
        assert f"  {part}\n" in result.stderr
    assert "-" not in "".join(line.split()[0] for line in result.stderr.splitlines())  # nothing took less than 0
    assert result.stdout == call("diagnose", trace).stdout
