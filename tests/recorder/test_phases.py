"""The phases of a recording, each at its step: what is timed, what is recorded, and what is written at its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.recorder.worlds import SMALL, World, left, made, told
from traceanalyzer.recorder.notes import NOTHING, PARTLY, STEPPING, WRITTEN
from traceanalyzer.recorder.session import METADATA, _capturing


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


def test_blocks_of_three_steps_are_timed_again_from_their_own_begin(world: World, tmp_path: Path) -> None:
    """Two steps after the window."""
    world.run(made(tmp_path, timed=9), 30)
    assert world.when("mark") == [4, 7, 10, 13, 20, 23, 26, 29]
    assert world.when("stop") == [18]


@pytest.mark.parametrize(
    ("initialized", "captures", "expected"), [(False, True, False), (True, True, True), (True, False, False)]
)
def test_a_program_that_has_not_used_cuda_captures_nothing(
    initialized: bool, captures: bool, expected: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking for a stream's state would make CUDA begin."""
    world.capturing = captures
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_initialized", lambda: initialized)
    assert _capturing() is expected
