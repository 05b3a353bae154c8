"""The recorder within a program: which process records, what it says, and that no fault of it reaches the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import launch, metadata, program
from traceanalyzer.recorder.launch import _environment, _outcome, _tell_new
from traceanalyzer.recorder.notes import NOTHING, PARTLY, STARTED, STEPPING, WRITTEN, Notes
from traceanalyzer.recorder.program import VARIABLE, Recorder, start_from_environment
from traceanalyzer.recorder.session import Options
from traceanalyzer.recorder.timer import _catch_up


class Session:
    """Notes what it is asked."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.seen, self.closed, self.graphs = 0, False, False
        self.did: list[Any] = []
        self.fault: BaseException | None = None
        SESSIONS.append(self)

    def step(self, unit: str) -> None:
        self.seen += 1
        self.did.append((unit, self.graphs))
        if self.fault is not None:
            raise self.fault

    def restart(self) -> bool:
        self.did.append("restart")
        return self.seen < 3

    def close(self) -> None:
        self.did.append("close")

    def give_up(self, error: Exception) -> None:
        self.closed = True
        self.did.append(f"gave up: {error}")


SESSIONS: list[Session] = []


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of the process, which a fork changes; sessions that only take notes."""
    SESSIONS.clear()
    number = [100]
    monkeypatch.setattr(program, "Session", Session)
    monkeypatch.setattr(program, "watch", lambda step, restart, every: SimpleNamespace(graphs=True))
    monkeypatch.setattr(program.os, "getpid", lambda: number[0])
    return number


def recorder(tmp_path: Path) -> Recorder:
    return Recorder(Options("t.json", notes=str(tmp_path)))


def said(tmp_path: Path) -> list[str]:
    lines = [line for path in sorted(tmp_path.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["event"] for line in lines]


def test_steps_are_handed_on_with_what_is_known_of_graphs(process: list[int], tmp_path: Path) -> None:
    one = recorder(tmp_path)
    for _ in range(2):
        one.step("forward pass")
    assert SESSIONS[0].did == [("forward pass", True)] * 2
    assert one.restart() is True
    one.step("call")
    assert one.restart() is False
    one.close()
    assert SESSIONS[0].did[-1] == "close"


def test_a_fault_of_the_recorder_ends_it_and_not_the_program(process: list[int], tmp_path: Path) -> None:
    one = recorder(tmp_path)
    SESSIONS[0].fault = RuntimeError("no room")
    for _ in range(3):
        one.step("call")
    assert SESSIONS[0].did == [("call", True), "gave up: no room"]


def test_an_end_that_was_asked_for_is_no_fault(process: list[int], tmp_path: Path) -> None:
    one = recorder(tmp_path)
    SESSIONS[0].fault = SystemExit(0)
    with pytest.raises(SystemExit):
        one.step("call")


def test_a_process_without_a_step_says_nothing_at_its_end(process: list[int], tmp_path: Path) -> None:
    recorder(tmp_path).close()
    assert SESSIONS[0].did == []


def test_a_child_of_a_process_that_has_steps_neither_records_nor_ends_its_parents_recording(
    process: list[int], tmp_path: Path
) -> None:
    one = recorder(tmp_path)
    one.step("call")
    process[0] = 101
    for _ in range(3):
        one.step("call")
    one.close()
    assert SESSIONS[0].did == [("call", True)]
    assert SESSIONS[0].closed
    assert len(SESSIONS) == 1
    assert said(tmp_path) == []


def test_a_child_of_a_process_without_steps_has_a_recording_of_its_own(
    process: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written at the end of the child, which runs no exit handlers."""
    from multiprocessing import util

    ends: list[Any] = []
    monkeypatch.setattr(util, "Finalize", lambda obj, call, exitpriority: ends.append(call))
    one = recorder(tmp_path)
    process[0] = 101
    for _ in range(3):
        one.step("call")
    assert [len(session.did) for session in SESSIONS] == [0, 3]
    assert SESSIONS[1].options == SESSIONS[0].options
    assert said(tmp_path) == [STARTED]
    (end,) = ends
    end()
    assert SESSIONS[1].did[-1] == "close"


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_that_fail_are_said_and_the_program_goes_on(
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
    assert said(tmp_path) == ([STARTED, NOTHING] if fails else [STARTED])
    assert len(ends) == (not fails)
    assert SESSIONS[0].options == Options("t.json", steps=2, notes=str(tmp_path))


# -- the command's side ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "expected"), [(None, []), ("", []), ("/a", ["/a"]), ("/a:/b", ["/a", "/b"])])
def test_the_programs_own_path_stands_behind_the_hook(
    own: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if own is not None:
        monkeypatch.setenv("PYTHONPATH", own)
    environment = _environment({"path": "t.json"})
    hook, *rest = environment["PYTHONPATH"].split(os.pathsep)
    assert (Path(hook) / "sitecustomize.py").is_file()
    assert rest == expected
    assert (json.loads(environment[VARIABLE]), environment["KEPT"]) == ({"path": "t.json"}, "1")


def test_traces_are_told_once_each_as_they_come(tmp_path: Path) -> None:
    notes, heard = Notes(str(tmp_path)), list[str]()
    for event in (STARTED, STEPPING, WRITTEN):
        notes.tell(event, f"first {event}", path="t.json")
    known = _tell_new(str(tmp_path), 0, heard.append)
    assert (len(known), heard) == (3, ["first written"])
    assert _tell_new(str(tmp_path), 3, heard.append) == []
    for event in (PARTLY, NOTHING):
        notes.tell(event, f"then {event}", seen=7)
    (partly, nothing) = _tell_new(str(tmp_path), 3, heard.append)
    assert heard == ["first written", "then partly"]
    assert (partly["event"], nothing["seen"], known[2]["path"]) == (PARTLY, 7, "t.json")


def test_a_note_has_its_rank_and_none_is_left_where_the_command_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    Notes(str(tmp_path)).tell(WRITTEN, "t")
    (told,) = launch._read(str(tmp_path))
    assert (told["rank"], told["process"]) == ("3", str(os.getpid()))
    Notes(str(tmp_path / "gone")).tell(WRITTEN, "t")
    assert not (tmp_path / "gone").exists()


def test_a_trace_that_was_written_twice_is_one_and_needs_no_reason() -> None:
    """As of a program that was killed afterwards, in which another process recorded nothing."""
    note = {"event": WRITTEN, "path": "/out/t.json", "rank": None}
    found = _outcome(-15, [note, {"event": NOTHING, "text": "no step"}, note])
    assert (found.exit_code, found.written, found.problem) == (143, (Path("/out/t.json"),), None)


@pytest.mark.parametrize("ends", ["by itself", "is interrupted"])
def test_a_command_leaves_nothing_but_what_was_recorded(ends: str, tmp_path: Path) -> None:
    """The notes lie beside the trace while the program runs."""
    show = "import os, json; print(json.loads(os.environ['TRACEANALYZER_RECORD'])['notes']); "
    kill = (
        "import signal; signal.raise_signal(signal.SIGTERM)"
        if ends == "is interrupted"
        else "raise SystemExit(3)"
    )
    found = launch.run([sys.executable, "-c", show + kill], {"path": str(tmp_path / "t.json")}, print)
    assert found.exit_code == (143 if ends == "is interrupted" else 3)
    assert found.written == ()
    assert list(tmp_path.iterdir()) == []


# -- what a recording says of its program ----------------------------------------------------------------


@pytest.mark.parametrize(("available", "gpu"), [(True, "H100"), (False, None)])
def test_versions_device_command_and_switches_are_written_and_no_other_variable(
    available: bool, gpu: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = SimpleNamespace(
        __version__="2.9",
        version=SimpleNamespace(cuda="12.6", hip=None),
        cuda=SimpleNamespace(is_available=lambda: available, get_device_name=lambda: "H100"),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "abc"])
    monkeypatch.setattr(metadata, "_commit", lambda: "abc+")
    for name in metadata.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert metadata.described() == {
        "torch": "2.9",
        "cuda": "12.6",
        "hip": None,
        "gpu": gpu,
        "python": sys.version.split()[0],
        "command": ["train.py", "--api-key", "***"],
        "commit": "abc+",
        "environment": {"RANK": "0", "CUDA_VISIBLE_DEVICES": ""},
    }


def test_the_commit_has_a_mark_where_files_that_git_knows_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert metadata._commit() is None
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    (tmp_path / "train.py").write_text("1")
    for words in (("init", "-q"), ("add", "train.py"), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True)
    commit = metadata._commit()
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "new.py").write_text("2")
    assert metadata._commit() == commit
    (tmp_path / "train.py").write_text("2")
    assert metadata._commit() == f"{commit}+"
    monkeypatch.setenv("PATH", "")
    assert metadata._commit() is None


@pytest.mark.parametrize(
    ("accelerator", "available", "cuda", "waits"),
    [(True, True, False, 1), (True, False, False, 0), (True, True, True, 0), (False, True, False, 0)],
)
def test_an_accelerator_that_is_neither_cuda_nor_rocm_is_waited_for(
    accelerator: bool, available: bool, cuda: bool, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: cuda))
    if accelerator:
        torch.accelerator = SimpleNamespace(
            is_available=lambda: available, synchronize=lambda: waited.append(1)
        )
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    _catch_up()
    assert len(waited) == waits
