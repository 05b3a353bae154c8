"""How a recording ends otherwise: for the program's own profiler, with a failed device, or given up."""

import gzip
import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.recorder.worlds import World, files_in, metadata_of, reported, session_in
from traceanalyzer.recorder import profile
from traceanalyzer.recorder.notes import NO_STEP, NOTHING, READY, RIVAL
from traceanalyzer.recorder.session import METADATA, Options


def test_a_fault_of_the_recorder_does_not_reach_the_program(world: World, tmp_path: Path) -> None:
    world.fails = "export"
    recording = session_in(tmp_path)
    world.run(recording, 20)
    assert (recording.closed, recording.seen) == (True, 16)
    assert reported(tmp_path)[-1]["text"] == "the recording failed: no room"
    assert files_in(tmp_path) == []
    recording.close()
    assert len(reported(tmp_path)) == 2


def test_a_running_profiler_is_stopped_when_giving_up(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 12)
    recording.give_up(ValueError("odd"))
    assert world.when("stop") == [11]
    world.run(recording, 20)
    assert recording.seen == 12


def test_nothing_is_written_once_the_command_is_gone(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 14)
    shutil.rmtree(tmp_path / "notes")
    recording.close()
    assert files_in(tmp_path) == []


def test_changes_of_the_program_are_taken_back_at_the_end(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    left: list[int] = []
    recording.at_close = lambda: left.append(world.now)
    world.run(recording, 30)
    assert left == [25]


def test_nothing_touches_the_profiler_of_a_failed_device(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 14)
    world.device_failed = True
    recording.close()
    assert recording.device_failed
    assert world.when("stop") == []
    assert "the device failed within the recorded steps" in reported(tmp_path)[-1]["text"]


def test_a_step_that_meets_a_failed_device_stops_nothing(world: World, tmp_path: Path) -> None:
    """The recorder's call is the first to fail where the program does not wait for the device."""
    recording = session_in(tmp_path)
    world.run(recording, 14)
    world.device_failed, world.fails = True, "step"
    world.run(recording, 1)
    assert (recording.closed, recording.device_failed) == (True, True)
    assert world.when("stop") == []


def test_a_device_that_fails_after_the_window_loses_nothing(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 17)
    world.device_failed = True
    recording.close()
    assert (recording.device_failed, reported(tmp_path)[-1]["event"]) == (False, READY)


# -- the program's own profiler


def test_the_window_waits_for_the_profiler_of_the_program(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 8)
    world.rivals.begin()  # type: ignore[attr-defined]
    world.run(recording, 20)
    assert world.when("start") == []
    world.rivals.end("/out/theirs.json")  # type: ignore[attr-defined]
    world.run(recording, 30)
    assert world.when("start") == [34]
    assert metadata_of(tmp_path)["recorded_steps"] == 3


@pytest.mark.parametrize(("steps", "starts"), [(12, [10, 18]), (14, [10])])
def test_other_profiler_has_precedence(steps: int, starts: list[int], world: World, tmp_path: Path) -> None:
    """Steps that are recorded by then stay; without any the window is tried again."""
    recording = session_in(tmp_path)
    world.run(recording, steps)
    world.rivals.begin()  # type: ignore[attr-defined]
    assert world.when("stop") == [steps - 1]
    world.run(recording, 18 - steps)
    world.rivals.end("/out/theirs.json")  # type: ignore[attr-defined]
    world.run(recording, 20)
    assert world.when("start") == starts
    assert metadata_of(tmp_path)["recorded_steps"] == (1 if steps == 14 else 3)


def test_after_three_attempts_the_program_is_left_alone(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    for steps in (12, 2, 2):
        world.run(recording, steps)
        world.rivals.begin()  # type: ignore[attr-defined]
        world.rivals.end("/out/theirs.json")  # type: ignore[attr-defined]
    assert recording.closed
    nothing, *rivals = reported(tmp_path)[1:]
    assert nothing["event"] == NOTHING
    assert "the program has a profiler of its own" in nothing["text"]
    assert [note["event"] for note in rivals] == [RIVAL] * len(rivals)
    assert {note["path"] for note in rivals} == {"/out/theirs.json"}


# -- profile()


@pytest.mark.parametrize("fails", [False, True])
def test_profile_writes_when_its_block_is_left(
    fails: bool, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "t.json.gz"
    with (
        pytest.raises(ZeroDivisionError) if fails else nullcontext(),
        profile(str(path), skip=4, timed=6, steps=2, stacks=True, memory=True, tensors=False) as recording,
    ):
        world.run(recording, 21)
        assert recording.written is None
        assert 1 // (not fails)
    assert recording.written == str(path)
    metadata = json.loads(gzip.decompress(path.read_bytes()))[METADATA]
    assert {name: metadata["options"][name] for name in ("steps", "stacks", "memory", "shapes")} == {
        "steps": 2,
        "stacks": True,
        "memory": True,
        "shapes": False,
    }
    assert metadata["unit"] == "optimizer step"
    assert list(path.parent.iterdir()) == [path]
    assert "2 steps recorded" in capsys.readouterr().err


def test_profile_reports_a_loop_without_steps(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with profile() as recording:
        assert recording.options == Options("trace.json.gz", steps=6, skip=10, timed=24)
    assert recording.written is None
    assert capsys.readouterr().err == f"traceanalyzer record: {NO_STEP}\n"


def test_a_failed_write_leaves_no_part_of_a_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = session_in(tmp_path, notes=False)
    world.run(recording, 24)

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    recording.close()
    assert "the recording could not be written: the disk is full" in capsys.readouterr().err
    assert (recording.written, files_in(tmp_path)) == (None, [])
