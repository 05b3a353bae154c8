"""The command's side: how it starts the program, what it makes of its reports, and what it leaves."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from traceanalyzer.recorder import launch
from traceanalyzer.recorder.files import Recording, existing_outputs, path_of_rank
from traceanalyzer.recorder.launch import NoFolder, Outcome, command_of
from traceanalyzer.recorder.notes import NO_STEP, NOTHING, STARTED, STEPPING, Notes

HAND_OVER = """
import json, os, sys
notes = json.loads(os.environ["TRACEANALYZER_RECORD"])["notes"]
sys.path.insert(0, {repository!r})
from traceanalyzer.recorder.files import Recording
from traceanalyzer.recorder.notes import READY, STARTED, Notes
Notes(notes).tell(STARTED, "")
for rank in {ranks}:
    raw = os.path.join(notes, f"raw-{{rank}}.json")
    open(raw, "w").write('{{"traceEvents": []}}')
    path = {path!r}.replace("RANK", str(rank))
    Recording(path, raw, {{"rank": rank}}, recorded=3, rank=rank, world=len({ranks})).save()
    if {tells}:
        Notes(notes).tell(READY, raw, raw=raw)
{ends}
"""


def runs(folder: Path, ranks: tuple[int, ...], ends: str = "", tells: bool = True, **options: Any) -> Outcome:
    """A program that hands over a recording for each rank, and ends so."""
    name = "t-rankRANK.json.gz" if len(ranks) > 1 else "t.json.gz"
    repository = str(Path(launch.__file__).parents[2])
    given = {"ranks": ranks, "path": str(folder / name), "repository": repository}
    command = [sys.executable, "-I", "-c", HAND_OVER.format(**given, ends=ends, tells=tells)]
    lines: list[str] = []
    outcome = launch.run(command, {"path": str(folder / "t.json.gz"), **options}, lines.append)
    (folder / "lines.txt").write_text("\n".join(lines))
    return outcome


def python(folder: Path, code: str) -> Outcome:
    """A program that does this."""
    return launch.run([sys.executable, "-c", code], {"path": str(folder / "t.json")}, print)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lines.txt")


def test_recordings_are_published_in_the_order_of_ranks(tmp_path: Path) -> None:
    outcome = runs(tmp_path, (10, 2, 1))
    (job,) = outcome.jobs
    assert [path.name for path in job] == [f"t-rank{rank}.json.gz" for rank in (1, 2, 10)]
    assert (outcome.exit_code, outcome.problem) == (0, None)
    document = json.loads(gzip.decompress(job[0].read_bytes()))
    assert document == {"traceanalyzer_recording": {"rank": 1}, "traceEvents": []}


@pytest.mark.parametrize("tells", [True, False])
def test_the_recording_of_a_killed_program_is_published(tells: bool, tmp_path: Path) -> None:
    outcome = runs(tmp_path, (0,), "os.kill(os.getpid(), 9)", tells=tells)
    assert (outcome.exit_code, outcome.jobs) == (137, ((tmp_path / "t.json.gz",),))
    assert ("killed before steps were timed again" in (tmp_path / "lines.txt").read_text()) is not tells
    assert names_in(tmp_path) == ["t.json.gz"]


@pytest.mark.parametrize(("force", "name"), [(False, "t-2.json.gz"), (True, "t.json.gz")])
def test_a_file_is_replaced_only_with_force(force: bool, name: str, tmp_path: Path) -> None:
    """Also one that another program wrote while this one ran."""
    ends = f"open({str(tmp_path / 't.json.gz')!r}, 'w').write('theirs')"
    outcome = runs(tmp_path, (0,), ends, tells=False, force=force)
    assert outcome.jobs == ((tmp_path / name,),)
    if not force:
        assert (tmp_path / "t.json.gz").read_text() == "theirs"


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(self: Recording, *_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recording, "publish", publish)
    outcome = runs(tmp_path, (0,))
    assert outcome.problem == f"{tmp_path / 't.json.gz'} cannot be written: No space left on device"
    assert names_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoFolder) as refused:
        launch.run(["true"], {"path": str(tmp_path / "missing" / "t.json")}, print)
    assert isinstance(refused.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(("ends", "code"), [("raise SystemExit(3)", 3), ("signal.raise_signal(15)", 143)])
def test_the_exit_code_is_the_programs(ends: str, code: int, tmp_path: Path) -> None:
    outcome = python(tmp_path, f"import signal; {ends}")
    assert (outcome.exit_code, outcome.jobs) == (code, ())
    assert names_in(tmp_path) == []


def test_folders_of_killed_commands_are_removed(tmp_path: Path) -> None:
    """Those of commands that run stay."""
    (ended := subprocess.Popen(["true"])).wait()
    for number in (ended.pid, os.getppid()):
        (tmp_path / f".traceanalyzer-record-{number}-x").mkdir()
    (tmp_path / ".traceanalyzer-record-notes").mkdir()
    launch.run(["true"], {"path": str(tmp_path / "t.json")}, print)
    assert names_in(tmp_path) == [f".traceanalyzer-record-{os.getppid()}-x", ".traceanalyzer-record-notes"]


TOO_FEW = (NOTHING, {"text": "too few", "seen": 9})


@pytest.mark.parametrize(
    ("events", "exit_code", "problem"),
    [
        ([(STARTED, {}), (NOTHING, {"text": "no step"}), TOO_FEW], 0, "too few"),
        ([(STARTED, {}), (STEPPING, {})], 9, "ended with exit code 9 and did not report a recording"),
        ([(STARTED, {})], 0, NO_STEP),
        ([(STARTED, {})], 3, "exit code 3 before it had a step"),
        ([], 0, "no process of the program executed torch"),
    ],
)
def test_the_reason_for_no_recording_is_reported(
    events: list[tuple[str, dict[str, Any]]], exit_code: int, problem: str, tmp_path: Path
) -> None:
    """That of the process with the most steps."""
    lines = [json.dumps({"event": event, "text": "", "at": 1.0, **more}) for event, more in events]
    code = (
        "import json, os, sys; notes = json.loads(os.environ['TRACEANALYZER_RECORD'])['notes']; "
        f"open(notes + '/1.jsonl', 'w').write({''.join(line + chr(10) for line in lines)!r}); sys.exit({exit_code})"
    )
    assert problem in str(python(tmp_path, code).problem)


def test_the_path_of_the_program_follows_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}/b")
    output = tmp_path / "path.txt"
    code = f"import os; open({str(output)!r}, 'w').write(os.environ['PYTHONPATH'])"
    python(tmp_path, code)
    hook, *rest = output.read_text().split(os.pathsep)
    assert (Path(hook) / "sitecustomize.py").is_file()
    assert rest == ["/a", "/b"]


def test_a_script_is_run_by_the_python_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (python := tmp_path / "python").write_text("#!/bin/sh\n")
    (executable := tmp_path / "runs.py").write_text("#!/bin/sh\n")
    for program in (python, executable):
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert command_of(["train.py", "-x"]) == [str(python), "train.py", "-x"]
    assert command_of(["-m", "train"]) == [str(python), "-m", "train"]
    assert command_of([str(executable), "-x"]) == [str(executable), "-x"]
    assert command_of(["torchrun", "train.py"]) == ["torchrun", "train.py"]
    monkeypatch.setenv("PATH", "")
    assert command_of(["train.py"])[0] == sys.executable


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_reach_the_program(number: signal.Signals, tmp_path: Path) -> None:
    """It ends after its handler, with the code of its choice."""
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(41))\n"
        f"os.kill(os.getppid(), {int(number)})\ntime.sleep(20)\n"
    )
    before = signal.signal(number, signal.SIG_DFL)  # under nohup SIGHUP is ignored, and not passed on
    try:
        assert python(tmp_path, code).exit_code == 41
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


# -- names of files


@pytest.mark.parametrize(
    ("path", "of_one", "of_rank_3"),
    [
        ("out/t.json.gz", "out/t.json.gz", "out/t-rank3.json.gz"),
        ("t.json", "t.json", "t-rank3.json"),
        ("trace", "trace", "trace-rank3"),
        ("r{rank}/t.json", "r0/t.json", "r3/t.json"),
    ],
)
def test_each_rank_has_a_file(path: str, of_one: str, of_rank_3: str) -> None:
    assert path_of_rank(path, 0, 1) == of_one
    assert path_of_rank(path, 3, 4) == of_rank_3


@pytest.mark.parametrize(
    ("name", "is_output"),
    [
        *(("t.json.gz", True), ("t-2.json.gz", True), ("t-rank3.json.gz", True), ("t-rank3-2.json.gz", True)),
        *(("t.et.json.gz", True), ("t-2.et.json.gz", True), ("t-x.json.gz", False), ("tt.json.gz", False)),
    ],
)
def test_files_of_ranks_and_processes_count_as_outputs(name: str, is_output: bool, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert existing_outputs(str(tmp_path / "t.json.gz")) == [str(tmp_path / name)] * is_output


def test_processes_of_one_run_write_files_of_their_own(tmp_path: Path) -> None:
    paths: list[str] = []
    for number in range(3):
        (raw := tmp_path / f"raw{number}").write_text('{"traceEvents": []}')
        recording = Recording(str(tmp_path / "t.json.gz"), str(raw), {}, recorded=1)
        paths.append(recording.publish("key", force=True, taken=paths))
    assert [Path(path).name for path in paths] == ["t.json.gz", "t-2.json.gz", "t-3.json.gz"]


def test_a_step_that_was_cut_off_loses_its_mark(tmp_path: Path) -> None:
    content = '{"traceEvents": [\n{"name": "ProfilerStep#4"},\n{"name": "ProfilerStep#5"}]}'
    (raw := tmp_path / "raw").write_text(content)
    recording = Recording(str(tmp_path / "t.json"), str(raw), {"a": 1}, recorded=1, cut_off="ProfilerStep#5")
    recording.publish("key", force=False)
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["key"] == {"a": 1}
    assert [event["name"] for event in document["traceEvents"]] == ["ProfilerStep#4", "ProfilerStep cut off"]


def test_without_a_command_notes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (STARTED, STEPPING, NOTHING):
        Notes().tell(event, f"it {event}")
    assert capsys.readouterr() == ("", "traceanalyzer record: it nothing\n")
