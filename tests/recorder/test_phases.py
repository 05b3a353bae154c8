"""The phases of a recording, each at its step: what is timed, what is recorded, and what is written at its end."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.recorder.worlds import SMALL, World, files_in, metadata_of, reported, session_in
from traceanalyzer.recorder.notes import NOTHING, READY, STEPPING
from traceanalyzer.recorder.session import METADATA


def test_each_phase_begins_at_its_step(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path, shapes=True)
    world.run(recording, 26)
    assert world.when("measure") == [4, 19]
    assert world.when("measured") == [10, 25]
    assert world.when("start") == [10]
    assert world.when("step") == [11, 12, 13, 14, 15]
    assert world.when("stop") == world.when("export") == [15]
    schedule = {"wait": 0, "warmup": 2, "active": 3, "repeat": 1}
    switches = {"record_shapes": True, "with_stack": False, "profile_memory": False}
    assert world.asked == {"activities": ["cpu", "gpu"], "schedule": schedule, **switches}
    assert [note["event"] for note in reported(tmp_path)] == [STEPPING, READY]
    world.run(recording, 9)
    assert recording.seen == 26


def test_the_metadata_holds_each_step_and_the_options(world: World, tmp_path: Path) -> None:
    world.times_ms = [10.0] * 5 + [10.0, 20.0] * 3
    world.run(session_in(tmp_path), 26)
    metadata = metadata_of(tmp_path)
    measured = metadata.pop("measured")
    assert measured["before"]["step_ms"] == pytest.approx([10.0, 20.0] * 3)
    assert measured["after"]["step_ms"] == pytest.approx([10.0] * 6)
    assert measured["window"] == {"compilations": 0}
    switches = {"shapes": False, "stacks": False, "memory": False, "tensors": False}
    others = {"max_wait": 0, "stop": False, "every_call_of": None}
    assert metadata.pop("options") == SMALL | switches | others
    assert metadata.pop("before_ms") == pytest.approx([15.0] * 3)
    assert metadata.pop("after_ms") == pytest.approx([10.0] * 3)
    steps = {"unit": "optimizer step", "doubt": None, "recorded_steps": 3, "settled": True}
    assert metadata == steps | {"format": 2, "torch": "2", "rank": 0, "world": 1, "error": None}


@pytest.mark.parametrize("switch", ["shapes", "stacks", "memory"])
def test_a_switch_of_the_profiler_changes_no_other(switch: str, world: World, tmp_path: Path) -> None:
    world.run(session_in(tmp_path, **{switch: True}), 11)
    names = {"shapes": "record_shapes", "stacks": "with_stack", "memory": "profile_memory"}
    assert {key: world.asked[name] for key, name in names.items()} == {key: key == switch for key in names}


@pytest.mark.parametrize(
    ("steps", "recorded", "missing"),
    [
        (13, 0, "ended after 13 steps, and the first recorded step ends with step 14; lower --skip or "),
        (14, 1, "ended after 14 steps, so only 1 of 3 steps were recorded, and steps were not timed again"),
        (16, 3, "ended after 16 steps, so steps were not timed again"),
        (22, 3, "ended after 22 steps, so steps were not timed again"),
        (23, 3, None),
    ],
)
def test_a_program_that_ends_early_is_recorded_in_part(
    steps: int, recorded: int, missing: str | None, world: World, tmp_path: Path
) -> None:
    """After 23 steps three were timed again."""
    recording = session_in(tmp_path)
    world.run(recording, steps)
    recording.close()
    note = reported(tmp_path)[-1]
    if recorded:
        about = json.loads(Path(f"{note['raw']}.about.json").read_text())
        assert about["recorded"] == recorded
        assert (about["missing"] is None) is (missing is None)
        assert missing is None or missing in about["missing"]
    else:
        assert (note["event"], note["seen"]) == (NOTHING, steps)
        assert missing is not None
        assert missing in note["text"]
    assert len(world.when("stop")) == 1


def test_a_step_that_has_not_ended_loses_its_mark(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 14)
    recording.close()
    (about,) = (tmp_path / "notes").glob("*.about.json")
    assert json.loads(about.read_text())["cut_off"] == "ProfilerStep#3"


def test_steps_during_a_graph_capture_are_not_counted(world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, 5)
    world.capturing = True
    world.run(recording, 7)
    world.capturing = False
    world.run(recording, 21)
    assert (recording.seen, recording.closed) == (26, True)


@pytest.mark.parametrize(("seen", "again"), [(10, True), (11, False)])
def test_steps_are_recounted_until_it_runs(seen: int, again: bool, world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path)
    world.run(recording, seen)
    assert recording.restart() is again
    world.run(recording, 26 if again else 26 - seen)
    assert recording.closed
    assert len(metadata_of(tmp_path)["measured"]["before"]["step_ms"]) == 6


@pytest.mark.parametrize(("stop", "seen"), [(True, 26), (False, 30)])
def test_stop_ends_the_program_after_writing(stop: bool, seen: int, world: World, tmp_path: Path) -> None:
    recording = session_in(tmp_path, stop=stop)
    world.run(recording, 25)
    assert not recording.closed
    if stop:
        with pytest.raises(SystemExit) as ended:
            world.run(recording, 1)
        assert ended.value.code == 0
    else:
        world.run(recording, 1)
    assert recording.closed


@pytest.mark.parametrize(
    ("graphs", "cuda", "detached"),
    [(False, "12.4", "1"), (True, "12.4", None), (True, "12.6", "1"), (True, None, None), (True, "13.0", "1")],
)
def test_the_tracer_is_detached_unless_graphs_would_break(
    graphs: bool, cuda: str | None, detached: str | None, world: World, tmp_path: Path
) -> None:
    sys.modules["torch"].version.cuda = cuda
    recording = session_in(tmp_path)
    recording.graphs = graphs
    world.run(recording, 10)
    assert "TEARDOWN_CUPTI" not in os.environ
    world.run(recording, 1)
    assert os.environ.get("TEARDOWN_CUPTI") == detached


def test_user_tracer_settings_stay(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", "0")
    world.run(session_in(tmp_path), 11)
    assert os.environ["TEARDOWN_CUPTI"] == "0"


def test_the_window_waits_until_step_times_settle(world: World, tmp_path: Path) -> None:
    """As of a program that compiles in its first 15 steps."""
    world.times_ms = [900.0] * 8 + [100.0] * 7
    world.run(session_in(tmp_path, max_wait=60.0), 40)
    assert world.when("start") == [22]
    assert metadata_of(tmp_path)["settled"] is True
    assert metadata_of(tmp_path)["measured"]["before"]["step_ms"] == pytest.approx([10.0] * 6)


def test_the_wait_for_settled_times_has_an_end(world: World, tmp_path: Path) -> None:
    world.times_ms = [1000.0 * 0.9**step for step in range(60)]
    recording = session_in(tmp_path, max_wait=5.0)
    world.run(recording, 60)
    (about,) = (tmp_path / "notes").glob("*.about.json")
    notes = json.loads(about.read_text())["notes"]
    assert notes == ["step times had not settled after 5 s; raise --max-wait or --skip"]
    assert metadata_of(tmp_path)["settled"] is False


def test_short_steps_are_timed_in_groups_and_never_awaited(world: World, tmp_path: Path) -> None:
    """Of 0.25 ms, the later ones of less, by chance: a program of few steps is recorded, too."""
    world.times_ms = [0.25] * 8 + [0.1] * 30
    world.run(session_in(tmp_path, max_wait=60.0), 26)
    assert world.when("start") == [10]
    assert len(metadata_of(tmp_path)["measured"]["before"]["step_ms"]) == 3


def test_long_steps_are_skipped_and_timed_less(world: World, tmp_path: Path) -> None:
    world.times_ms = [25_000.0] * 40
    world.run(session_in(tmp_path, skip=10, timed=24), 17)
    metadata = metadata_of(tmp_path)
    assert len(metadata["measured"]["before"]["step_ms"]) == 3
    assert metadata["recorded_steps"] == 2


def test_ranks_record_the_same_steps_whatever_they_take(world: World, tmp_path: Path) -> None:
    world.rank_and_world = (1, 2)
    world.times_ms = [25_000.0] * 10 + [0.1] * 30
    world.run(session_in(tmp_path, max_wait=60.0), 26)
    assert world.when("start") == [10]
    assert (metadata_of(tmp_path)["rank"], metadata_of(tmp_path)["world"]) == (1, 2)


def test_the_rank_is_remembered_after_the_job_has_ended(world: World, tmp_path: Path) -> None:
    world.rank_and_world = (1, 2)
    recording = session_in(tmp_path)
    world.run(recording, 14)
    world.rank_and_world = (0, 1)
    recording.close()
    (about,) = (tmp_path / "notes").glob("*.about.json")
    assert json.loads(about.read_text())["path"] == str(tmp_path / "t-rank1.json")


@pytest.mark.parametrize(
    ("tensors", "world_size", "step_ms", "observed"),
    [(None, 1, 10, [15]), (None, 2, 10, []), (True, 2, 10, [15]), (False, 1, 10, []), (True, 1, 6000, [])],
)
def test_an_execution_trace_follows_the_recorded_steps(
    tensors: bool | None, world_size: int, step_ms: float, observed: list[int], world: World, tmp_path: Path
) -> None:
    """Of a single process, or where it is wanted; never of steps that take over 5 s."""
    world.rank_and_world = (0, world_size)
    world.times_ms = [step_ms] * 40
    world.run(session_in(tmp_path, tensors=tensors), 29)
    assert world.when("observe") == observed
    assert ("tensors.json" in files_in(tmp_path)) is bool(observed)


def test_steps_are_timed_where_no_execution_trace_can_begin(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a program that has an observer of its own."""

    def refused(folder: str) -> None:
        raise RuntimeError("another observer runs")

    monkeypatch.setattr("traceanalyzer.recorder.session.Tensors", refused)
    world.run(session_in(tmp_path, tensors=True), 26)
    assert len(metadata_of(tmp_path)["measured"]["after"]["step_ms"]) == 6
    told = [note["text"] for note in reported(tmp_path) if note["event"] == "noted"]
    assert told == ["no execution trace is recorded: another observer runs"]


def test_profile_writes_in_process(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = session_in(tmp_path, notes=False, tensors=True)
    world.run(recording, 29)
    assert recording.written == str(tmp_path / "t.json")
    assert files_in(tmp_path) == ["t.et.json.gz", "t.json"]
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["traceEvents"] == [{"name": "a{b"}]
    assert document[METADATA]["recorded_steps"] == 3
    assert capsys.readouterr().err == f"traceanalyzer record: {tmp_path / 't.json'}: 3 steps recorded\n"
