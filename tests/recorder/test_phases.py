"""A recording from its first step to the written file, with a profiler and a clock that only note what they are asked."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import profile, session
from traceanalyzer.recorder.notes import NO_STEP, NOTHING, PARTLY, STEPPING, WRITTEN
from traceanalyzer.recorder.session import METADATA, Options, Session

SMALL = {"skip": 4, "timed": 6, "steps": 3}
"""Steps 4 to 10 are timed, 11 and 12 warm the profiler, 13 to 15 are recorded, and 17 to 23 are timed again."""


class World:
    """What a session does to torch, and when: the number of the step that has just ended, from 0."""

    def __init__(self) -> None:
        self.now = -1
        self.did: list[tuple[str, int]] = []
        self.asked: dict[str, Any] = {}
        self.capturing = False
        self.fails: str | None = None

    def note(self, what: str) -> None:
        self.did.append((what, self.now))
        if self.fails == what:
            raise RuntimeError("no room")

    def when(self, what: str) -> list[int]:
        return [at for name, at in self.did if name == what]

    def run(self, recording: Session, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            recording.step("optimizer step")


class Profiler:
    """As torch's: its export is a trace without events."""

    def __init__(self, world: World, **asked: Any) -> None:
        self.world = world
        world.asked = asked

    def start(self) -> None:
        self.world.note("start")

    def step(self) -> None:
        self.world.note("step")

    def stop(self) -> None:
        self.world.note("stop")

    def export_chrome_trace(self, path: str) -> None:
        self.world.note("export")
        Path(path).write_text('\n {"traceEvents": [{"name": "a{b"}]}')


class Timer:
    """Two ms a step for each block."""

    def __init__(self, world: World, block: int) -> None:
        self.world, self.block, self.marks = world, block, 0

    def mark(self) -> None:
        self.world.note("mark")
        self.marks += 1

    def step_ms(self) -> list[float]:
        return [2.0] * max(self.marks - 1, 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: made.capturing)
    profiler = SimpleNamespace(
        profile=lambda **asked: Profiler(made, **asked),
        schedule=lambda **told: told,
        supported_activities=lambda: ["cpu", "gpu"],
    )
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="12.4"), profiler=profiler)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "StepTimer", lambda block: Timer(made, block))
    monkeypatch.setattr(session, "described", lambda: {"torch": "2"})
    monkeypatch.setattr(session, "rank_and_world", lambda: (0, 1))
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    yield made
    os.environ.pop("TEARDOWN_CUPTI", None)


def made(folder: Path, **options: Any) -> Session:
    """A session of 25 steps, whose notes are in a folder."""
    (folder / "notes").mkdir(exist_ok=True)
    return Session(Options(str(folder / "t.json"), notes=str(folder / "notes"), **{**SMALL, **options}))


def told(folder: Path) -> list[dict[str, Any]]:
    """What the command reads of this process."""
    lines = (folder / "notes" / f"{os.getpid()}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def left(folder: Path) -> list[str]:
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and path.suffix not in (".jsonl", ".claim")
    )


def test_a_whole_recording_does_each_thing_at_its_step(world: World, tmp_path: Path) -> None:
    recording = made(tmp_path, shapes=True)
    world.run(recording, 24)
    assert recording.written == str(tmp_path / "t.json")
    assert world.when("mark") == [4, 6, 8, 10, 17, 19, 21, 23]
    assert world.when("start") == [10]
    assert world.when("step") == [11, 12, 13, 14, 15]
    assert world.when("stop") == world.when("export") == [15]
    assert world.asked == {
        "activities": ["cpu", "gpu"],
        "schedule": {"wait": 0, "warmup": 2, "active": 3, "repeat": 1},
        "record_shapes": True,
        "with_stack": False,
        "profile_memory": False,
    }
    document = json.loads((tmp_path / "t.json").read_text())
    assert document.pop("traceEvents") == [{"name": "a{b"}]
    switches = {"shapes": True, "stacks": False, "memory": False, "stop": False, "every_call_of": None}
    assert document == {
        METADATA: {
            "format": 1,
            "torch": "2",
            "unit": "optimizer step",
            "recorded_steps": 3,
            "before_ms": [2.0] * 3,
            "after_ms": [2.0] * 3,
            "options": {**SMALL, **switches},
        }
    }
    assert [(one["event"], one["text"]) for one in told(tmp_path)] == [
        (STEPPING, "optimizer step"),
        (WRITTEN, f"{tmp_path / 't.json'}: 3 steps recorded"),
    ]
    assert told(tmp_path)[1]["path"] == str(tmp_path / "t.json")
    assert left(tmp_path) == ["t.json"]
    recording.close()
    world.run(recording, 9)
    assert (recording.seen, len(told(tmp_path))) == (24, 2)


@pytest.mark.parametrize("switch", ["shapes", "stacks", "memory"])
def test_each_switch_of_the_profiler_is_its_own(switch: str, world: World, tmp_path: Path) -> None:
    world.run(made(tmp_path, **{switch: True}), 11)
    names = {"shapes": "record_shapes", "stacks": "with_stack", "memory": "profile_memory"}
    assert {name: world.asked[name] for name in names.values()} == {
        name: one == switch for one, name in names.items()
    }


@pytest.mark.parametrize("skip", [0, 1])
def test_the_first_mark_is_at_the_first_step_that_is_not_skipped(
    skip: int, world: World, tmp_path: Path
) -> None:
    world.run(made(tmp_path, skip=skip), 20 + skip)
    assert world.when("mark") == [at + skip for at in (0, 2, 4, 6, 13, 15, 17, 19)]
    assert (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("steps", "recorded", "said"),
    [
        (
            13,
            0,
            "the program ended after 13 steps, and the first recorded step ends with step 14; lower --skip or --timed",
        ),
        (
            14,
            1,
            "ended after 14 steps, so only 1 of 3 steps were recorded, and steps were not timed again after the window",
        ),
        (
            15,
            2,
            "ended after 15 steps, so only 2 of 3 steps were recorded, and steps were not timed again after the window",
        ),
        (16, 3, "ended after 16 steps, so steps were not timed again after the window"),
        (19, 3, "ended after 19 steps, so steps were not timed again after the window"),
        (20, 3, None),
    ],
)
def test_of_a_program_that_ends_early_what_there_is_is_written_and_what_lacks_is_said(
    steps: int, recorded: int, said: str | None, world: World, tmp_path: Path
) -> None:
    """After 20 steps one block was timed again."""
    recording = made(tmp_path)
    world.run(recording, steps)
    recording.close()
    notes = told(tmp_path)[1:]
    assert [one["event"] for one in notes] == (
        [NOTHING] if not recorded else [WRITTEN] if said is None else [WRITTEN, PARTLY]
    )
    assert said is None or notes[-1]["text"].endswith(said)
    assert len(world.when("stop")) == 1
    assert left(tmp_path) == ["t.json"] * bool(recorded)
    if recorded:
        assert f": {recorded} step{'' if recorded == 1 else 's'} recorded" in notes[0]["text"]
        assert json.loads((tmp_path / "t.json").read_text())[METADATA]["recorded_steps"] == recorded
    else:
        assert notes[0]["seen"] == steps


def test_steps_during_a_capture_are_none(world: World, tmp_path: Path) -> None:
    recording = made(tmp_path)
    world.run(recording, 5)
    world.capturing = True
    world.run(recording, 7)
    world.capturing = False
    world.run(recording, 19)
    assert (recording.seen, recording.written) == (24, str(tmp_path / "t.json"))
    assert world.when("mark")[:2] == [4, 13]


@pytest.mark.parametrize(("seen", "again"), [(10, True), (11, False)])
def test_a_better_kind_of_step_counts_from_nothing_until_the_profiler_runs(
    seen: int, again: bool, world: World, tmp_path: Path
) -> None:
    """It starts when the eleventh step has ended; marks of the other kind are forgotten."""
    recording = made(tmp_path)
    world.run(recording, seen)
    assert recording.restart() is again
    world.run(recording, 24 if again else 24 - seen)
    assert recording.written is not None
    assert len(json.loads((tmp_path / "t.json").read_text())[METADATA]["before_ms"]) == 3


@pytest.mark.parametrize(("stop", "seen"), [(True, 24), (False, 30)])
def test_the_program_ends_well_once_all_is_written_where_that_is_wanted(
    stop: bool, seen: int, world: World, tmp_path: Path
) -> None:
    recording = made(tmp_path, stop=stop)
    world.run(recording, 23)
    assert recording.written is None
    if stop:
        with pytest.raises(SystemExit) as ended:
            world.run(recording, 1)
        assert ended.value.code == 0
    else:
        world.run(recording, 1)
    assert recording.written == str(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("graphs", "cuda", "detached"), [(False, "12.4", "1"), (True, "12.4", None), (True, "12.6", "1")]
)
def test_the_tracer_is_detached_unless_graphs_would_break(
    graphs: bool, cuda: str, detached: str | None, world: World, tmp_path: Path
) -> None:
    sys.modules["torch"].version.cuda = cuda
    recording = made(tmp_path)
    recording.graphs = graphs
    world.run(recording, 10)
    assert "TEARDOWN_CUPTI" not in os.environ
    world.run(recording, 1)
    assert os.environ.get("TEARDOWN_CUPTI") == detached


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
