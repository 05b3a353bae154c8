"""What a user meets before any trace is read: help, short forms, misspelt commands, bad files, colour."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.commands import call, diagnosed, refused, written
from tests.support.sample_rules import sample_rules  # noqa: F401 - a fixture
from traceanalyzer.cli import app
from traceanalyzer.cli.app import cli
from traceanalyzer.cli.output import colourful

pytestmark = pytest.mark.usefixtures("sample_rules")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two kernels with 6 ms between them: idle is found, high."""
    return written(tmp_path / "trace.json")


def test_every_command_is_listed_whole() -> None:
    page = call("--help").stdout
    assert all(f"  {name} " in page for name in app.NAMES)
    assert "..." not in page.replace("TRACE... |", "").replace("[ARGS]...", "")


def test_help_fits_eighty_columns() -> None:
    for name in ("", *app.NAMES):
        page = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*([name] if name else []), "--help"]).stdout
        assert max(map(len, page.splitlines())) <= 80, name


def test_a_trace_alone_is_diagnosed(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = diagnosed(trace)
    assert call(trace).stdout == told
    assert call(trace, "--quiet").stdout == call("--quiet", trace).stdout == diagnosed(trace, "--quiet")
    assert call(tmp_path).stdout == told
    assert "no such file" in refused("absent.json")
    assert "no such file" in refused("no/such/folder")
    monkeypatch.chdir(tmp_path)
    trace.rename("plain-name")
    assert call("plain-name").stdout.startswith("plain-name ")
    written(tmp_path / "rules")
    assert call("rules").stdout.startswith("always-failing")
    assert call("./rules").stdout.startswith("rules ")


def test_options_of_a_diagnosis_may_come_first(trace: Path) -> None:
    told = diagnosed(trace, "--format", "json")
    assert call("--format=json", trace).stdout == told
    assert call("--format", "json", trace).stdout == told
    piped = CliRunner().invoke(cli, ["-", "--quiet"], input=trace.read_bytes())
    assert piped.stdout == diagnosed(trace, "--quiet")


def test_a_command_that_is_none_and_no_file_either() -> None:
    for misspelt in ("daignose", "diagnos"):
        result = call(misspelt, "trace.json")
        assert result.exit_code == 2
        assert f"No such command '{misspelt}'. Did you mean 'diagnose'?" in result.stderr
    assert "No such command 'xyz'. No file has this name either." in call("xyz").stderr
    assert "No such option '--bogus'" in call("--bogus").stderr.replace(": --bogus", " '--bogus'")
    assert "Diagnose:" in call().output


@pytest.mark.parametrize("command", ["diagnose", "export", "facts", "memory", "ops", "table"])
def test_every_command_says_what_is_wrong_with_its_trace(command: str, tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "folder").mkdir()
    more = [tmp_path / "out"] if command == "export" else []
    for name, problem in {
        "absent.json": "no such file",
        "empty.json": "the file is empty",
        "other.json": "",
        "folder": "no trace of torch.profiler",
    }.items():
        problem_said, remedy = refused(command, tmp_path / name, *more).split("\n")
        assert problem_said.startswith(f"{tmp_path / name}: {problem}")
        assert remedy.endswith(".")
    assert not (tmp_path / "out").exists()


def test_export_into_a_file_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "frames").touch()
    assert "frames: is a file, not a folder\n  Name" in refused("export", tmp_path / "absent", tmp_path / "frames")


def test_damage_is_said_also_where_no_report_shows_it(trace: Path) -> None:
    whole = trace.read_bytes()
    trace.write_bytes(whole[: whole.rindex(b'"name"')])
    result = call("diagnose", trace, "--quiet")
    assert f"warning: {trace}: " in result.stderr
    assert "warning" not in result.stdout


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR": "0"}, True, False),
        ({"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
    ],
)
def test_colour_is_where_terminal_and_environment_want_it(
    environment: dict[str, str], terminal: bool, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert colourful() is colour


@pytest.mark.parametrize(
    ("arguments", "before", "after"),
    [
        (["--version"], None, "1"),
        (["--version"], "4", "4"),
        (["record", "--help"], None, None),
        (["record", "--help"], "4", "4"),
        (["rules", "--nonsense"], None, "1"),
    ],
)
def test_blas_threads_are_one_unless_the_user_sets_them(
    arguments: list[str], before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "OPENBLAS_NUM_THREADS"
    monkeypatch.setenv(name, before or "")
    if before is None:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["traceanalyzer", *arguments])
    monkeypatch.setattr("gc.freeze", lambda: None)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == (2 if "--nonsense" in arguments else 0)
    assert os.environ.get(name) == after
    os.environ.pop(name, None)


def test_the_code_of_a_command_is_that_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = written(tmp_path / "trace.json")
    assert app.run(["diagnose", str(trace), "--fail-on", "low", "--select", "idle-device"]) == 1
    assert app.run(["diagnose", str(trace)]) == 0
    assert app.run(["diagnose", str(trace), "--window", "90ms:95ms"]) == 2
    assert "outside the trace" in capsys.readouterr().err
