"""The recorder within a program: which process records, and that no fault of it reaches the program."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import program
from traceanalyzer.recorder.notes import NOTHING, STARTED
from traceanalyzer.recorder.program import VARIABLE, Recorder, start_from_environment
from traceanalyzer.recorder.session import Options


class Session:
    """Notes what it is asked."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.seen, self.closed, self.graphs, self.device_failed = 0, False, False, False
        self.did: list[Any] = []
        self.doubt: Callable[[], str | None] = lambda: None
        self.at_close: Callable[[], None] = lambda: None
        SESSIONS.append(self)

    def step(self, unit: str) -> None:
        self.seen += 1
        self.did.append((unit, self.graphs))

    def restart(self, already: int) -> bool:
        self.did.append(f"restart with {already}")
        return self.seen < 3

    def close(self) -> None:
        self.did.append("close")

    def leave(self) -> None:
        self.did.append("leave")


SESSIONS: list[Session] = []


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of the process, which a fork changes; sessions that only take notes."""
    SESSIONS.clear()
    number = [100]
    watch = SimpleNamespace(graphs=True, doubt="which step?", remove=lambda: None)
    monkeypatch.setattr(program, "Session", Session)
    monkeypatch.setattr(program, "watch", lambda step, restart, every: watch)
    monkeypatch.setattr(program.os, "getpid", lambda: number[0])
    return number


def events_in(folder: Path) -> list[str]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["event"] for line in lines]


def test_steps_are_passed_on_with_graphs_and_doubt(process: list[int], tmp_path: Path) -> None:
    recorder = Recorder(Options("t.json", notes=str(tmp_path)))
    for _ in range(2):
        recorder.step("forward pass")
    assert SESSIONS[0].did == [("forward pass", True)] * 2
    assert SESSIONS[0].doubt() == "which step?"
    assert recorder.restart(2) is True
    recorder.step("call")
    assert recorder.restart(0) is False
    recorder.close()
    assert SESSIONS[0].did[-1] == "close"


def test_a_process_without_a_step_reports_nothing(process: list[int], tmp_path: Path) -> None:
    Recorder(Options("t.json", notes=str(tmp_path))).close()
    assert SESSIONS[0].did == []


def test_a_child_of_a_recorded_process_is_not_recorded(process: list[int], tmp_path: Path) -> None:
    recorder = Recorder(Options("t.json", notes=str(tmp_path)))
    recorder.step("call")
    process[0] = 101
    for _ in range(3):
        recorder.step("call")
    recorder.close()
    assert SESSIONS[0].did == [("call", True)]
    assert SESSIONS[0].closed
    assert len(SESSIONS) == 1
    assert events_in(tmp_path) == []


def test_children_are_recorded(process: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recording is written at its end, at which no exit handlers run."""
    from multiprocessing import util

    ends: list[Any] = []
    monkeypatch.setattr(util, "Finalize", lambda obj, call, exitpriority: ends.append(call))
    recorder = Recorder(Options("t.json", notes=str(tmp_path)))
    process[0] = 101
    for _ in range(3):
        recorder.step("call")
    assert [session.seen for session in SESSIONS] == [0, 3]
    assert events_in(tmp_path) == [STARTED]
    (end,) = ends
    end()
    assert SESSIONS[1].did[-1] == "close"


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_that_fail_are_reported_and_harm_nothing(
    fails: bool, process: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("give pkg.module:function")

    ends: list[Any] = []
    monkeypatch.setattr(program.atexit, "register", ends.append)
    if fails:
        monkeypatch.setattr(program, "watch", refuse)
    monkeypatch.setenv(VARIABLE, json.dumps({"path": "t.json", "steps": 2, "notes": str(tmp_path)}))
    start_from_environment()
    assert events_in(tmp_path) == ([STARTED, NOTHING] if fails else [STARTED])
    assert len(ends) == (not fails)
    assert [session.options for session in SESSIONS] == (
        [] if fails else [Options("t.json", steps=2, notes=str(tmp_path))]
    )
