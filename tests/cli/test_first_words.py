"""What the first word of a command line means, and what standard output and the environment have after a command."""

from __future__ import annotations

import gc
import io
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.commands import call, refused, written
from traceanalyzer.cli import app


@pytest.mark.parametrize("name", ["absent.json", "absent.json.gz", "absent.json.zst", "no/such", "-"])
def test_a_trace_that_is_absent_is_missed_as_a_trace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(name)
    assert said.startswith("<standard input>: " if name == "-" else f"{name}: ")


@pytest.mark.parametrize("name", ["absent.txt", "absent.zst", "absent.json.xz"])
def test_another_word_is_an_unknown_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"No such command '{name}'. No file has this name either." in call(name).stderr


def test_standard_input_is_diagnosed(tmp_path: Path) -> None:
    given = written(tmp_path / "trace.json").read_bytes()
    result = CliRunner().invoke(app.cli, ["-", "--quiet"], input=given)
    assert result.exception is None
    assert result.stdout == call("diagnose", tmp_path / "trace.json", "--quiet").stdout != ""


@pytest.mark.parametrize("option", ["--frobnicate", "-q"])
def test_an_unknown_option_is_no_command(option: str) -> None:
    said = call(option).stderr
    assert "No such option" in said
    assert "No such command" not in said


@pytest.mark.parametrize(("command", "set_"), [("rules", True), ("record", False)])
def test_a_recorded_program_keeps_its_threads(
    command: str, set_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["traceanalyzer", command])
    monkeypatch.setattr(app, "run", lambda arguments: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(SystemExit):
        app.main()
    assert os.environ == ({"OPENBLAS_NUM_THREADS": "1"} if set_ else {})


def test_the_path_in_an_error_stays_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "of many words and longer than a line of it/that is absent.json"
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    assert app.run(["diagnose", str(path)]) == 2
    assert sum(str(path) in line for line in stream.getvalue().splitlines()) == 1


def test_a_word_after_two_dashes_is_an_option_still() -> None:
    assert "No file has this name" not in call("--", "--frobnicate").stderr


def test_what_a_skill_says_of_itself_is_no_output(tmp_path: Path) -> None:
    result = call("skill", "--install", tmp_path)
    files = sum(path.is_file() for path in (tmp_path / "traceanalyzer").rglob("*"))
    assert (result.stdout, result.stderr) == ("", f"{tmp_path / 'traceanalyzer'}: {files} files\n")
    assert files > 1


def test_help_whose_reader_left_ends_as_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click ends the program with 1 then, which is the code of a gate that failed."""

    def main(*_: object, **__: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(app.cli, "main", main)
    assert app.run(["--help"]) == 141
