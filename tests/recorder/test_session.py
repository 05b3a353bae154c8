"""Parts of a recording without a program: how many steps it takes, its files, its times, what it keeps to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import session, timer
from traceanalyzer.recorder.launch import _outcome, _read, _waiting, command_of
from traceanalyzer.recorder.metadata import without_secrets
from traceanalyzer.recorder.notes import NO_STEP, NOTHING, STARTED, STEPPING, WRITTEN, Notes
from traceanalyzer.recorder.session import Options, path_of_rank, rank_and_world
from traceanalyzer.recorder.timer import StepTimer


@pytest.mark.parametrize(
    ("timed", "block", "recorded", "total"), [(6, 2, (12, 17), 25), (7, 3, (15, 20), 31), (1, 1, (9, 14), 19)]
)
def test_steps_are_timed_in_three_equal_blocks_before_and_after_the_window(
    timed: int, block: int, recorded: tuple[int, int], total: int
) -> None:
    """6 left to warm-up; 2 under the profiler before the 3 that are recorded; 2 between these and the timed ones."""
    wanted = Options("trace.json", steps=3, skip=6, timed=timed)
    assert wanted.block == block
    assert (wanted.recorded_from, wanted.recorded_to) == recorded
    assert wanted.total == total


@pytest.mark.parametrize("few", [{"steps": 0}, {"timed": 0}, {"skip": -1}])
def test_a_recording_of_nothing_is_refused(few: dict[str, int]) -> None:
    Options("trace.json", steps=1, timed=1, skip=0)
    with pytest.raises(ValueError, match="steps and timed are at least 1, skip at least 0"):
        Options("trace.json", **few)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "of_one", "of_rank_3"),
    [
        ("out/t.json.gz", "out/t.json.gz", "out/t-rank3.json.gz"),
        ("t.json", "t.json", "t-rank3.json"),
        ("trace", "trace", "trace-rank3"),
        ("r{rank}/t.json", "r0/t.json", "r3/t.json"),
    ],
)
def test_each_rank_of_several_writes_a_file_of_its_own(
    path: str, of_one: str, of_rank_3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known, wanted in (((0, 1), of_one), ((3, 4), of_rank_3)):
        monkeypatch.setattr(session, "rank_and_world", lambda known=known: known)
        assert path_of_rank(path) == wanted


@pytest.mark.parametrize(
    ("available", "initialized", "environment", "known"),
    [
        (True, True, {"RANK": "1", "WORLD_SIZE": "2"}, (5, 8)),
        (True, False, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (False, True, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (True, False, {}, (0, 1)),
        (True, False, {"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
        (True, False, {"RANK": "", "WORLD_SIZE": "2"}, (0, 2)),
        (True, False, {"RANK": "one", "WORLD_SIZE": "2"}, (0, 1)),
    ],
)
def test_the_rank_is_that_of_the_process_group_or_else_of_the_launcher(
    available: bool,
    initialized: bool,
    environment: dict[str, str],
    known: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group: Any = SimpleNamespace(
        is_available=lambda: available,
        is_initialized=lambda: initialized,
        get_rank=lambda: 5,
        get_world_size=lambda: 8,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_and_world() == known


def test_processes_of_one_run_write_files_of_their_own(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path))
    wanted = "/out/t.json.gz"
    assert [notes.free_path(wanted) for _ in range(3)] == [wanted, "/out/t-2.json.gz", "/out/t-3.json.gz"]
    assert notes.free_path("/out/u.json") == "/out/u.json"
    assert [Notes().free_path(wanted) for _ in range(2)] == [wanted] * 2
    assert notes.beside(wanted) == str(tmp_path)
    assert Notes().beside(wanted) == "/out"
    assert Notes().beside("t.json.gz") == os.getcwd()


def test_without_a_command_that_listens_standard_error_is_told_what_matters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for event in (STARTED, STEPPING, NOTHING, WRITTEN):
        Notes().tell(event, f"it {event}")
    said = capsys.readouterr()
    assert said.err == "traceanalyzer record: it nothing\ntraceanalyzer record: it written\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["train.py", "--api-key", "abc", "--lr", "1"], ["train.py", "--api-key", "***", "--lr", "1"]),
        (["train.py", "--token=abc", "x"], ["train.py", "--token=***", "x"]),
        (["train.py", "HF_TOKEN=abc", "x"], ["train.py", "HF_TOKEN=***", "x"]),
        (["train.py", "--no-auth", "--lr", "1"], ["train.py", "--no-auth", "--lr", "1"]),
        (["tokenize.py", "data"], ["tokenize.py", "data"]),
        (["train.py", "--url", "https://me:pw@host/x"], ["train.py", "--url", "https://***@host/x"]),
        (["train.py", "me@host"], ["train.py", "me@host"]),
        (["train.py", "https://host/me@x"], ["train.py", "https://host/me@x"]),
    ],
)
def test_keys_passwords_and_logins_of_a_command_are_not_written(command: list[str], shown: list[str]) -> None:
    assert without_secrets(command) == shown


def test_a_step_is_timed_by_the_device_between_marks_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 steps that take 8 and 20 ms."""

    class Event:
        at, waited, ends = 0.0, 0, iter((1.0, 9.0, 29.0))

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = next(self.ends)

        def synchronize(self) -> None:
            waited.append(self.at)

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    class On:
        def __init__(self, device: int) -> None:
            assert device == 2

        def __enter__(self) -> None:
            """Of the device that was current at the first mark."""

        def __exit__(self, *_: object) -> None:
            """No more."""

    waited: list[float] = []
    there = lambda: True  # noqa: E731
    cuda = SimpleNamespace(
        is_available=there, is_initialized=there, current_device=lambda: 2, device=On, Event=Event
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    blocks = StepTimer(4)
    assert blocks.step_ms() == []
    for _ in range(3):
        blocks.mark()
    assert blocks.step_ms() == [2.0, 5.0]
    assert waited == [29.0]


def test_without_cuda_at_the_first_mark_a_clock_times_the_blocks_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether CUDA is there but unused, or is used from the second block on."""
    used = iter([False, True, True])
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: next(used))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    clock = iter([1.0, 1.008, 1.028])
    monkeypatch.setattr(timer, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    blocks = StepTimer(4)
    for _ in range(3):
        blocks.mark()
    assert blocks.step_ms() == [pytest.approx(2.0), pytest.approx(5.0)]


def test_traces_of_a_job_are_told_in_the_order_of_its_ranks() -> None:
    notes = [
        {"event": WRITTEN, "path": f"/out/t-rank{rank}.json", "rank": rank} for rank in ("10", "2", "1", None)
    ]
    found = _outcome(0, notes)
    assert [path.name for path in found.written] == [
        f"t-rank{rank}.json" for rank in ("None", "1", "2", "10")
    ]
    assert (found.exit_code, found.problem) == (0, None)


def test_why_nothing_is_recorded_is_what_the_process_with_most_steps_says() -> None:
    notes = [
        {"event": STARTED, "text": ""},
        {"event": NOTHING, "text": "no step"},
        {"event": NOTHING, "text": "too few", "seen": 9},
        {"event": NOTHING, "text": "fewer", "seen": 1},
    ]
    assert _outcome(0, notes).problem == "too few"
    stepping = [{"event": STARTED, "text": ""}, {"event": STEPPING, "text": ""}]
    assert "did not report a recording" in str(_outcome(-9, stepping).problem)
    assert _outcome(-9, stepping).exit_code == 137
    assert _outcome(0, stepping[:1]).problem == NO_STEP
    assert "exit code 3 before it had a step" in str(_outcome(3, stepping[:1]).problem)
    assert "no process of the program imported torch" in str(_outcome(3, []).problem)


def test_notes_of_several_processes_are_read_in_the_order_of_time_but_for_a_line_that_is_being_written(
    tmp_path: Path,
) -> None:
    """Of equal times by process."""
    for process, times in (("7", (2, 5)), ("12", (1, 5))):
        lines = [json.dumps({"at": at}) + "\n" for at in times]
        (tmp_path / f"{process}.jsonl").write_text("".join(lines) + '{"at": 3, "te')
    read = [(note["at"], note["process"]) for note in _read(str(tmp_path))]
    assert read == [(1, "12"), (2, "7"), (5, "12"), (5, "7")]


def test_a_script_is_run_by_the_python_on_the_path_and_a_program_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (python := tmp_path / "python").write_text("#!/bin/sh\n")
    (runs := tmp_path / "runs.py").write_text("#!/bin/sh\n")
    for program in (python, runs):
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert command_of(["train.py", "-x"]) == [str(python), "train.py", "-x"]
    assert command_of(["-m", "train"]) == [str(python), "-m", "train"]
    assert command_of([str(runs), "-x"]) == [str(runs), "-x"]
    assert command_of(["torchrun", "train.py"]) == ["torchrun", "train.py"]
    monkeypatch.setenv("PATH", "")
    assert command_of(["train.py"])[0] == sys.executable


def test_ctrl_c_is_the_programs_and_it_is_waited_for_until_it_ends() -> None:
    class Program:
        returncode: int | None = None
        answers = iter((KeyboardInterrupt(), subprocess.TimeoutExpired("train.py", 0.2), None))

        def wait(self, seconds: float) -> None:
            answer = next(self.answers)
            if answer is not None:
                raise answer
            self.returncode = 0

    program: Any = Program()
    assert len(list(_waiting(program))) == 2
    assert program.returncode == 0
