"""`traceanalyzer compare` and `baseline save`: forms, gates, exit codes, errors."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.commands import call, refused
from tests.comparison.programs import ADDED, MM, built
from tests.rules.kernel_programs import Op

FIXTURES = Path(__file__).parents[2] / "fixtures"
SLOW = Op(MM.name, MM.kernel, 700, MM.dims, MM.types)


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """Before, and after a kernel got slower and a read-back was added."""
    before = built([MM, ADDED]).write(tmp_path / "before.json")
    return before, built([SLOW, ADDED], syncs=1).write(tmp_path / "after.json")


def test_the_text_leads_with_the_verdict_and_fits_the_page(traces: tuple[Path, Path]) -> None:
    result = call("compare", *traces)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith("slower")
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert any("synchronisations" in line and "0 -> 1" in line for line in lines)


def test_quiet_keeps_the_verdict(traces: tuple[Path, Path]) -> None:
    assert len(call("compare", *traces, "--quiet").stdout.splitlines()) < 16


def test_the_json_adds_up_and_is_always_the_same(traces: tuple[Path, Path]) -> None:
    first, second = (call("compare", *traces, "--format", "json").stdout for _ in range(2))
    assert first == second
    told = json.loads(first)
    assert {"verdict", "axes", "waterfall", "rows", "faults", "schema_version"} <= told.keys()
    fall = told["waterfall"]
    assert fall["base_ns"] + sum(part["delta_ns"] for part in fall["parts"]) == fall["new_ns"]
    assert told["verdict"]["word"] == "slower"


def test_the_parquet_has_the_rows_and_all_else_beside_them(traces: tuple[Path, Path], tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    assert call("compare", *traces, "--parquet", rows).exit_code == 0
    table = pq.read_table(rows)
    told = json.loads(call("compare", *traces, "--format", "json").stdout)
    assert table.column("op").to_pylist() == [row["op"] for row in told["rows"]]
    rest = json.loads(table.schema.metadata[b"traceanalyzer.comparison"])
    assert rest["waterfall"] == told["waterfall"]


def test_the_csv_has_the_rows(traces: tuple[Path, Path]) -> None:
    rows = list(csv.DictReader(call("compare", *traces, "--format", "csv").stdout.splitlines()))
    document = json.loads(call("compare", *traces, "--format", "json").stdout)
    assert [(row["op"], row["word"], int(row["delta_ns"])) for row in rows] == [
        (row["op"], row["word"], row["delta_ns"]) for row in document["rows"]
    ]
    assert rows[0]["base_count"] == "1.0"


def test_markdown_is_for_a_pull_request(traces: tuple[Path, Path]) -> None:
    text = call("compare", *traces, "--format", "markdown").stdout
    assert text.startswith("### traceanalyzer: slower\n")
    assert "| synchronisations | 0 -&gt; 1 | aten::item |" in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--fail-on", "slower"), 1),
        (("--gate", "launches=0"), 0),
        (("--gate", "syncs=0"), 1),
        (("--gate", "syncs=1"), 0),
        (("--gate", "step=5%"), 1),
        (("--gate", "step=90%"), 0),
        (("--gate", "gpu=5%", "--gate", "launches=10%"), 1),
        (("--gate", "launches=0", "--fail-on", "slower"), 1),
    ],
)
def test_gates_decide_the_exit_code(traces: tuple[Path, Path], options: tuple[str, ...], code: int) -> None:
    """What was broken is said on standard error."""
    result = call("compare", *traces, *options)
    assert result.exit_code == code
    assert ("gate: " in result.stderr) is (code == 1 and "--fail-on" not in options)
    assert "gate: " not in result.stdout


def test_only_what_is_slower_fails(traces: tuple[Path, Path]) -> None:
    gates = ("--fail-on", "slower", "--gate", "syncs=0", "--gate", "step=0%")
    for given in ((traces[0], traces[0]), traces[::-1]):
        assert call("compare", *given, *gates).exit_code == 0


def test_gates_that_make_no_sense_are_refused(traces: tuple[Path, Path]) -> None:
    assert "not NAME=NUMBER" in refused("compare", *traces, "--gate", "launches")
    assert "no such counter" in refused("compare", *traces, "--gate", "lunches=0")
    assert "needs a share" in refused("compare", *traces, "--gate", "step=5")


def test_a_missing_file_and_an_output_that_is_there_are_refused(traces: tuple[Path, Path], tmp_path: Path) -> None:
    assert "no such file" in refused("compare", traces[0], tmp_path / "none.json")
    assert "overwrite" in refused("compare", *traces, "--output", traces[0], "--force")
    there = tmp_path / "there.json"
    there.write_text("")
    assert "already exists" in refused("compare", *traces, "--format", "json", "--output", there)


def test_a_baseline_is_saved_once_and_compared(
    traces: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("baseline", "save", "main", traces[0]).exit_code == 0
    assert (tmp_path / ".traceanalyzer/main.parquet").stat().st_size < 200_000
    assert "already exists" in refused("baseline", "save", "main", traces[0])
    same = call("compare", "baseline:main", traces[0])
    assert same.stdout.splitlines()[0].endswith("identical")
    assert call("compare", "baseline:main", traces[1], "--fail-on", "slower").exit_code == 1


def test_a_baseline_of_several_captures_knows_all_of_them(tmp_path: Path) -> None:
    captures = [built([MM, ADDED], jitter=seed).write(tmp_path / f"{seed}.json") for seed in (7, 11, 13, 17, 19)]
    kept = tmp_path / "kept.parquet"
    said = call("baseline", "save", kept, *captures[:3])
    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == f"{kept}: {kept.stat().st_size:,} bytes\n"
    for given, counts in ((("--new", captures[4]), [3, 2]), (("--base", captures[4]), [4, 1])):
        told = call("compare", f"baseline:{kept}", captures[3], *given, "--format", "json").stdout
        assert json.loads(told)["axes"]["step"]["captures"] == counts


def test_no_folder_is_made_but_that_of_the_baselines(
    traces: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "its folder does not exist" in refused("baseline", "save", "sub/a.parquet", traces[0])
    assert not (tmp_path / "sub").exists()
    assert call("baseline", "save", "main", traces[0]).exit_code == 0
    assert [one.name for one in (tmp_path / ".traceanalyzer").iterdir()] == ["main.parquet"]


def test_a_folder_of_files_without_ranks_is_captures(tmp_path: Path) -> None:
    for side, slow in (("a", MM), ("b", SLOW)):
        (tmp_path / side).mkdir()
        for seed in (7, 11, 13):
            built([slow, ADDED], jitter=seed).write(tmp_path / side / f"{seed}.json")
    told = json.loads(call("compare", tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    assert told["axes"]["step"]["captures"] == [3, 3]
    assert told["axes"]["step"]["low"] > 0


def test_median_of_several_timed_steps_counts(traces: tuple[Path, Path]) -> None:
    options = ("--base-ms", "9,2.50, 2.55,", "--new-ms", "2", "--format", "json")
    step = json.loads(call("compare", *traces, *options).stdout)["axes"]["step"]
    assert (step["base_ns"], step["new_ns"], step["measured"]) == (2_550_000, 2_000_000, True)
    assert "timed on one side only" in refused("compare", *traces, "--new-ms", "2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0", "a time is positive"),
        ("1,-1", "a time is positive"),
        ("inf", "a time is positive"),
        ("1;2", "is no time in ms"),
    ],
)
def test_a_time_of_a_step_is_a_positive_number(given: str, said: str, traces: tuple[Path, Path]) -> None:
    for option, other in (("--base-ms", "--new-ms"), ("--new-ms", "--base-ms")):
        result = call("compare", *traces, option, given, other, "1")
        assert result.exit_code == 2
        assert said in result.stderr


def test_ledger_rows_are_appended_with_the_spread_of_times(tmp_path: Path) -> None:
    """Of one fault that is gone; else nothing, and that is said."""
    bad, good = (FIXTURES / "no-tensor-cores" / f"{name}.json.gz" for name in ("bad", "good"))
    ledger = tmp_path / "ledger.csv"
    for base_ms in ("10,10.2,10.5", None):
        timed = ("--base-ms", base_ms, "--new-ms", "3") if base_ms else ()
        assert call("compare", bad, good, "--to-ledger", ledger, *timed).exit_code == 0
    rows = list(csv.DictReader(ledger.read_text().splitlines()))
    assert [(row["rule"], row["spread"], row["fitted"]) for row in rows] == [
        ("no-tensor-cores", "0.0500", "no"),
        ("no-tensor-cores", "", "yes"),
    ]
    before = ledger.read_text()
    assert "nothing added" in call("compare", good, good, "--to-ledger", ledger).stderr
    assert ledger.read_text() == before


def test_a_page_is_written_beside_the_verdict(traces: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert call("compare", *traces, "--page", page).stdout == call("compare", *traces).stdout
    assert "<!doctype html>" in page.read_text("utf-8")[:50].lower()
    assert "already exists" in refused("compare", *traces, "--page", page)
