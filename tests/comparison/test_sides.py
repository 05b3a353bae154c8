"""What a side is made of: files, folders, baselines and lists of them, and the tables of the steps that count."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.built_sides import snapshot
from tests.comparison.programs import ADDED, MM, built, pairs
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.comparison.baseline import baseline_bytes, load_baseline
from traceanalyzer.comparison.compare import side_of

sides = importlib.import_module("traceanalyzer.comparison.compare")


def ranked(path: Path, rank: int) -> Path:
    made = TraceBuilder(distributedInfo={"rank": rank, "world_size": 2})
    made.op("aten::mm", 0, 9_000)
    made.launch("cudaLaunchKernel", 1_000, 2_000, 1)
    made.kernel(5_000, 9_000, 1)
    return made.write(path)


@pytest.mark.parametrize(
    ("ranks", "captures"), [((0, 1), [[0, 1]]), ((0, 0), [[None], [None]])], ids=["job", "captures"]
)
def test_files_of_one_rank_each_are_a_job_and_others_captures(
    ranks: tuple[int, int], captures: list[list[int | None]], tmp_path: Path
) -> None:
    for at, rank in enumerate(ranks):
        ranked(tmp_path / f"{at}.json", rank)
    assert [list(one) for one in side_of(tmp_path)] == captures


def test_a_list_has_every_capture_of_each_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "snapshots", lambda traces: {None: traces})
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for at in range(2):
            built([MM], steps=3).write(tmp_path / name / f"{at}.json")
    assert len(side_of([tmp_path / "first", tmp_path / "second" / "0.json"])) == 3
    assert len(side_of([tmp_path / "first", tmp_path / "second"])) == 4


def test_ranks_of_several_captures_are_kept_apart(tmp_path: Path) -> None:
    one = snapshot(built([MM], steps=3))
    jobs: Any = [{rank: replace(one, rank=rank, steps=steps) for rank in range(2)} for steps in (3, 4)]
    (tmp_path / "kept.parquet").write_bytes(baseline_bytes(jobs))
    kept = load_baseline(str(tmp_path / "kept.parquet"))
    assert [[(rank, own.steps) for rank, own in capture.items()] for capture in kept] == [
        [(rank, steps) for rank in range(2)] for steps in (3, 4)
    ]


def test_a_remainder_is_not_given_to_another_op_s_region() -> None:
    """Four of ten are left, which stay with the six; three of the same inner op with other shapes are new."""
    other = {"outer": "aten::addmm", "dims": "[9]", "kernel": "other", "count": 3.0}
    assert pairs([{}], [{"count": 6.0}, other]) == [("path", {0: 1.0}, {0: 1.0}), ("none", {}, {1: 1.0})]


@pytest.mark.parametrize(("dims", "rung"), [("[8, 8]", "op"), ("", "region")])
def test_without_shapes_an_op_matches_by_region_alone(dims: str, rung: str) -> None:
    changed = {"dims": dims, "outer": "aten::matmul", "kernel": "other"}
    assert pairs([{"dims": dims}], [changed]) == [(rung, {0: 1.0}, {0: 1.0})]


def test_the_drawn_step_begins_with_its_first_work() -> None:
    drawn = snapshot(built([MM, ADDED], steps=3)).strip
    assert drawn is not None
    assert len(drawn.pieces) == 2
    assert all(0 <= one.start_ns <= one.start_ns + one.dur_ns <= drawn.length_ns for one in drawn.pieces)


def test_what_the_host_does_after_the_last_step_is_of_none() -> None:
    """Three ops and launches 1 ms after it, without any work on the device."""
    trace = built([MM, ADDED], steps=3)
    for at in range(3):
        begin = 100_000_000 + at * 20_000
        trace.op("aten::mm", begin, 9_000)
        trace.launch("cudaLaunchKernel", begin + 1_000, 2_000, 9_000 + at)
    totals = snapshot(trace).tables["totals"].set_index("counter")
    for counter in ("launches", "ops"):
        assert totals.loc[[counter]].to_numpy().tolist() == [[2, 2, 2]]


def test_driver_call_inside_a_runtime_call_is_no_launch() -> None:
    trace = built([MM, ADDED], steps=3)
    for event in [one for one in trace.events if one.get("name") == "cudaLaunchKernel"]:
        inner = {
            "name": "cuLaunchKernel",
            "cat": "cuda_driver",
            "ts": event["ts"] + 1,
            "dur": event["dur"] - 2,
        }
        trace.events.append({**event, **inner, "args": {}})
    totals = snapshot(trace).tables["totals"].set_index("counter")
    assert totals.loc[["launches"]].to_numpy().tolist() == [[2, 2, 2]]


def test_work_of_another_device_is_not_in_the_main_step() -> None:
    """In each step 500 us on device 0, and beside it 100 us on device 1."""
    trace = TraceBuilder(devices=({"id": 0, "name": "H200"}, {"id": 1, "name": "H200"}))
    for at in range(4):
        begin = at * 600_000
        for device, (name, dur) in enumerate((("aten::mm", 500_000), ("aten::add", 100_000))):
            start, number = begin + device * 20_000, 2 * at + device + 1
            trace.op(name, start, 9_000)
            trace.launch("cudaLaunchKernel", start + 1_000, 3_000, number)
            trace.kernel(start + 10_000, dur, number, name=f"on{device}", device=device)
        trace.step(at, begin, 599_000)
    table = snapshot(trace).tables["work"].set_index("op")
    assert table[["ns", "exposed_ns"]].to_dict("index") == {
        "aten::mm": {"ns": 500_000, "exposed_ns": 500_000},
        "aten::add": {"ns": 100_000, "exposed_ns": 0},
    }
