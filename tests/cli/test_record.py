"""`record`: what it passes on to the recorder, and what it says of the outcome; no program is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, refused, written
from traceanalyzer.recorder import launch
from traceanalyzer.recorder.launch import Outcome

OPTIONS = {
    "steps": 6,
    "skip": 10,
    "timed": 24,
    "shapes": False,
    "stacks": False,
    "memory": False,
    "tensors": None,
    "max_wait": 60.0,
    "force": False,
    "stop": False,
    "every_call_of": None,
}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], dict[str, Any]]]:
    """What the recorder was asked for; nothing is recorded."""
    asked: list[tuple[list[str], dict[str, Any]]] = []

    def run(words: list[str], options: dict[str, Any], say: Callable[[str], None]) -> Outcome:
        asked.append((words, options))
        return Outcome(7, (), "it never stepped")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "run", run)
    return asked


@pytest.mark.parametrize(
    ("given", "words", "changed"),
    [
        (
            ("--", "python", "train.py", "-m", "--steps", "3"),
            ["python", "train.py", "-m", "--steps", "3"],
            {},
        ),
        (("python", "train.py", "--stop"), ["python", "train.py", "--stop"], {}),
        (("-m", "package.train", "--batch", "64"), ["-m", "package.train", "--batch", "64"], {}),
        (
            ("--steps", "1", "--skip", "0", "--timed", "1", "a.py"),
            ["a.py"],
            {"steps": 1, "skip": 0, "timed": 1},
        ),
        (("--shapes", "--memory", "a.py"), ["a.py"], {"shapes": True, "memory": True}),
        (("--stacks", "--stop", "a.py"), ["a.py"], {"stacks": True, "stop": True}),
        (("--every-call-of", "serve:answer", "a.py"), ["a.py"], {"every_call_of": "serve:answer"}),
        (("-o", "b.json", "a.py"), ["a.py"], {"path": "b.json"}),
        (("--no-tensors", "--max-wait", "5", "a.py"), ["a.py"], {"tensors": False, "max_wait": 5.0}),
        (("--force", "a.py"), ["a.py"], {"force": True}),
    ],
)
def test_options_before_the_command_go_to_the_recorder(
    given: tuple[str, ...],
    words: list[str],
    changed: dict[str, Any],
    begun: list[tuple[list[str], dict[str, Any]]],
) -> None:
    result = call("record", *given)
    assert begun == [(words, {"path": "trace.json.gz", **OPTIONS, **changed})]
    assert result.exit_code == 7
    assert result.stdout == ""
    assert result.stderr == "traceanalyzer record: nothing is recorded: it never stepped\n"


@pytest.mark.parametrize("option", ["--steps", "--timed", "--skip"])
def test_too_few_steps_are_refused(option: str, begun: list[tuple[list[str], dict[str, Any]]]) -> None:
    assert call("record", option, "-1" if option == "--skip" else "0", "a.py").exit_code == 2
    assert begun == []


def test_an_existing_file_is_replaced_only_with_force(
    begun: list[tuple[list[str], dict[str, Any]]], tmp_path: Path
) -> None:
    (tmp_path / "trace.json.gz").touch()
    assert "already exists" in refused("record", "a.py")
    assert begun == []
    assert call("record", "--force", "a.py").exit_code == 7


@pytest.mark.parametrize(
    "name", ["trace.json.gz", "trace-rank1.json.gz", "trace-2.json.gz", "trace.et.json.gz"]
)
def test_no_file_of_another_recording_is_replaced(
    name: str, begun: list[tuple[list[str], dict[str, Any]]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text("theirs")
    assert f"{name}: already exists" in refused("record", "a.py")
    assert begun == []


@pytest.mark.parametrize(("exit_code", "required"), [(0, 2), (5, 5)])
def test_require_makes_no_recording_an_error(
    exit_code: int, required: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the program failed by itself."""
    monkeypatch.setattr(launch, "run", lambda *_: Outcome(exit_code, (), "it never stepped"))
    assert call("record", "-o", tmp_path / "t.json", "a.py").exit_code == exit_code
    assert call("record", "-o", tmp_path / "t.json", "--require", "a.py").exit_code == required


def test_the_trace_of_the_programs_profiler_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = written(tmp_path / "theirs.json")
    problem = "the program has a profiler of its own"
    monkeypatch.setattr(launch, "run", lambda *_: Outcome(0, (), problem, (theirs,)))
    result = call("record", "-o", tmp_path / "t.json", "a.py")
    assert f"this is the trace of the program's own profiler: {theirs}" in result.stderr
    assert f"\n{theirs.name}   " in result.stderr


def test_a_diagnosis_that_fails_keeps_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (broken := tmp_path / "broken.json").write_text("{")
    monkeypatch.setattr(launch, "run", lambda *_: Outcome(3, ((broken,),), None))
    result = call("record", "-o", tmp_path / "t.json", "a.py")
    assert result.exit_code == 3
    assert "the recording is complete, and its diagnosis failed" in result.stderr


def test_every_rank_is_diagnosed_on_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is the program's, and so is the exit code."""
    ranks = tuple(
        written(tmp_path / f"trace-rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
        for rank in (0, 1)
    )

    def run(words: list[str], options: dict[str, Any], say: Callable[[str], None]) -> Outcome:
        say("6 steps are in trace-rank0.json")
        return Outcome(3, (ranks,), None)

    monkeypatch.setattr(launch, "run", run)
    result = call("record", "-o", tmp_path / "new.json", "a.py")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("traceanalyzer record: 6 steps are in trace-rank0.json\n2 ranks  ")
    assert "\x1b" not in result.stderr
    assert not result.stderr.endswith("\n\n")


def test_a_command_that_fails_to_start_is_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: list[str], options: dict[str, Any], say: Callable[[str], None]) -> Outcome:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(launch, "run", run)
    said = refused("record", "-o", tmp_path / "trace.json", "--", "my program", "--key", "secret")
    assert said.startswith("'my program' cannot be started: No such file or directory\n")
