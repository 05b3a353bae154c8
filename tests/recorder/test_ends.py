"""How a recording ends otherwise: given up, not written, or with the `with` that it is in."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.recorder.worlds import SMALL, World, left, made, told
from traceanalyzer.recorder import profile, session
from traceanalyzer.recorder.notes import NO_STEP, NOTHING
from traceanalyzer.recorder.session import METADATA, Options


def test_what_the_user_says_of_the_tracer_stays(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", "0")
    world.run(made(tmp_path), 11)
    assert os.environ["TEARDOWN_CUPTI"] == "0"


def test_a_recording_that_cannot_be_written_is_said_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.fails = "export"
    recording = made(tmp_path)
    world.run(recording, 15)
    with pytest.raises(RuntimeError):
        world.run(recording, 1)
    recording.give_up(RuntimeError("no room"))
    assert recording.closed
    assert told(tmp_path)[-1]["text"] == "the recording failed: no room"
    assert left(tmp_path) == []
    recording.close()
    assert len(told(tmp_path)) == 2


def test_a_profiler_that_runs_is_stopped_when_the_recording_is_given_up(world: World, tmp_path: Path) -> None:
    recording = made(tmp_path)
    world.run(recording, 12)
    recording.give_up(ValueError("odd"))
    assert world.when("stop") == [11]
    world.run(recording, 20)
    assert recording.seen == 12


def test_a_part_of_a_file_is_removed_where_writing_it_failed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = made(tmp_path)
    world.run(recording, 23)

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(session.shutil, "copyfileobj", full)
    recording.close()
    assert told(tmp_path)[-1]["event"] == NOTHING
    assert told(tmp_path)[-1]["text"] == "the recording could not be written: the disk is full"
    assert (recording.written, left(tmp_path)) == (None, [])


@pytest.mark.parametrize("fails", [False, True])
def test_a_loop_in_a_with_is_written_when_it_is_left(
    fails: bool, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its end or by an error."""
    path = tmp_path / "new" / "t.json.gz"
    with (
        pytest.raises(ZeroDivisionError) if fails else nullcontext(),
        profile(str(path), skip=4, timed=6, steps=2, stacks=True, memory=True) as recording,
    ):
        world.run(recording, 21)
        assert recording.written is None
        assert 1 // (not fails)
    assert recording.written == str(path)
    document = json.loads(gzip.decompress(path.read_bytes()))
    options = document[METADATA]["options"]
    wanted = {**SMALL, "steps": 2, "shapes": False, "stacks": True, "memory": True}
    assert {name: options[name] for name in wanted} == wanted
    assert document[METADATA]["unit"] == "optimizer step"
    assert list(path.parent.iterdir()) == [path]
    assert "2 steps recorded" in capsys.readouterr().err


def test_a_with_says_where_no_step_was_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with profile() as recording:
        assert recording.options == Options("trace.json.gz", steps=6, skip=10, timed=24)
    assert recording.written is None
    assert capsys.readouterr().err == f"traceanalyzer record: {NO_STEP}\n"
