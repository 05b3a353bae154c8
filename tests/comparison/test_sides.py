"""Sides and baselines: captures, ranks, folders, and what is stored of them."""

import importlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.comparison.built_sides import fault, host, row, side, snapshot
from tests.comparison.programs import ADDED, MM, built, pairs
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import BadOption, UnreadableTrace, compare
from traceanalyzer.comparison import baseline
from traceanalyzer.comparison.baseline import baseline_bytes, baseline_path, load_baseline
from traceanalyzer.comparison.compare import side_of, timed
from traceanalyzer.comparison.jobs import job_notes, other_work, rank_changes
from traceanalyzer.comparison.reasons import fault_changes
from traceanalyzer.comparison.result import Word
from traceanalyzer.comparison.sides import other_inputs
from traceanalyzer.comparison.snapshot import TABLES, Captures, KnownFault, Side, Snapshot, StepTime
from traceanalyzer.comparison.step_axis import changed_calls, counted, host_pace, most_changed

sides = importlib.import_module("traceanalyzer.comparison.compare")


def ranked(path: Path, rank: int) -> Path:
    made = TraceBuilder(distributedInfo={"rank": rank, "world_size": 2})
    made.op("aten::mm", 0, 9_000)
    made.launched((1_000, 2_000), (5_000, 9_000), 1)
    return made.write(path)


@pytest.mark.parametrize(
    ("ranks", "captures"), [((0, 1), [[0, 1]]), ((0, 0), [[None], [None]])], ids=["job", "captures"]
)
def test_jobs_and_captures(ranks: tuple[int, int], captures: list[list[int | None]], tmp_path: Path) -> None:
    for at, rank in enumerate(ranks):
        ranked(tmp_path / f"{at}.json", rank)
    assert [list(one) for one in side_of(tmp_path)] == captures


def test_a_list_has_all_captures_of_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        inner = {"name": "cuLaunchKernel", "cat": "cuda_driver", "ts": event["ts"] + 1, "dur": event["dur"] - 2}
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


def test_a_counter_of_one_side_alone_is_none_on_the_other() -> None:
    columns = ["counter", "count", "least", "most"]
    sides: list[Any] = [
        SimpleNamespace(tables={"totals": pd.DataFrame(rows, columns=columns)}, recorded=())
        for rows in ([("launches", 4.0, 4.0, 4.0)], [("launches", 4.0, 4.0, 4.0), ("memsets", 2.0, 2.0, 2.0)])
    ]
    found = [(one.counter, one.base, one.new, one.word) for one in counted(sides[0], sides[1], (), ())]
    assert found == [("launches", 4, 4, Word.SAME), ("memsets", 0, 2, Word.MORE)]
    back = [(one.counter, one.base, one.new, one.word) for one in counted(sides[1], sides[0], (), ())]
    assert back[1] == ("memsets", 2, 0, Word.FEWER)


@pytest.mark.parametrize(
    ("counter", "kind"),
    [("d2d copies", "copy_d2d"), ("h2d bytes", "copy_h2d"), ("memsets", "memset"), ("kernels", "compute")],
)
def test_counters_of_work_changed_where_its_rows_did(counter: str, kind: str) -> None:
    kinds = ("copy_d2d", "copy_h2d", "memset", "compute", "communication")
    rows = [row(1, 3, kind=one, outer=f"aten::{one}") for one in kinds]
    assert most_changed(counter, [], rows) == (f"aten::{kind}",)


def test_ops_that_launch_nothing_are_listed_after_what_waits() -> None:
    columns = ["counter", "outer", "op", "name", "count", "least", "most"]
    rows = [
        ("ops", "", "aten::view", "", 90.0, 90, 90),
        ("launches", "", "aten::mm", "k", 2.0, 2, 2),
        ("synchronisations", "", "aten::item", "s", 5.0, 5, 5),
    ]
    tables = (pd.DataFrame(one, columns=columns) for one in ([], rows))
    sides: list[Any] = [SimpleNamespace(tables={"calls": one}) for one in tables]
    found = [(one.counter, one.base, one.new) for one in changed_calls(sides[0], sides[1])]
    assert found == [("synchronisations", 0, 5), ("launches", 0, 2), ("ops", 0, 90)]


def test_a_fault_has_its_saving_on_both_sides() -> None:
    (one,) = fault_changes([fault("a", "x", 1_000)], [fault("a", "x", 3_000)], None)
    assert (one.base_ns, one.new_ns) == (1_000, 3_000)
    found = fault_changes([fault("a", "x", 1_000)], [fault("b", "y", 2_000)], None)
    assert [(each.base_ns, each.new_ns) for each in found] == [(1_000, None), (None, 2_000)]


def test_the_mean_step_is_of_the_captures_that_have_one() -> None:
    tables = {name: pd.DataFrame({column: [] for column in TABLES[name]}) for name in TABLES}
    captures = []
    for ns in (None, 100, 300):
        one = side(there=False)
        step = None if ns is None else StepTime(ns, ns, ns, ns, True)
        captures.append(type(one)("a.json", None, (), {}, (), "window", None, None, 1, step, None, tables))
    merged = Captures.of(captures)
    assert merged.together.step is not None
    assert (len(merged), merged.together.step.ns) == (3, 200)


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (("decode", 4), ("decode", 4), ""),
        (("decode", 4), ("decode", 8), "the steps are of decode with 4 requests and of decode with 8 requests"),
        (("prefill", 4), ("decode", 4), "the steps are of prefill with 4 requests and of decode with 4 requests"),
        ((None, None), ("decode", 0), "the steps are of no phase and of decode with 0 requests"),
    ],
)
def test_other_phases_have_other_inputs(base: tuple[Any, Any], new: tuple[Any, Any], said: str) -> None:
    sides: list[Any] = [SimpleNamespace(phase=phase, batch=batch) for phase, batch in (base, new)]
    assert other_inputs([], (sides[0], sides[1])) == said


def test_the_pace_is_of_the_same_part_of_an_op() -> None:
    """Before its first child and after it: 10 -> 20 us of part 0 and 40 -> 80 us of part 1."""
    sides = [host(("mm", 1, us), ("mm", 1, 4 * us)) for us in (10, 20)]
    for one in sides:
        one.tables["host"]["part"] = [0, 1]
    assert host_pace(*sides) == 2.0


@pytest.mark.parametrize(
    ("base", "new", "other"),
    [
        (("mm", "add"), ("mm", "add"), ()),
        (("mm", "add"), ("add", "mm"), (0, 1)),
        (("mm", "add"), ("relu", "sum"), ()),  # all is new: other kernels
        (("mm",), ("mm", "add"), ()),
    ],
)
def test_other_work_is_what_another_rank_did(base: Any, new: Any, other: tuple[int, ...]) -> None:
    sides: Any = [{at: {op: 1.0} for at, op in enumerate(ops)} for ops in (base, new)]
    assert tuple(rank for rank in range(3) if other_work(rank, *sides)) == other


def kept(rank: int | None, *, step: StepTime | None, **more: Any) -> Snapshot:
    tables = {
        name: pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in columns.items()})
        for name, columns in TABLES.items()
    }
    totals = pd.DataFrame([(f"of {rank}", 1.0, 1.0, 1.0)], columns=[*TABLES["totals"]])
    told: dict[str, Any] = {"gpus": ("H100", "H200"), "versions": {"torch": "2.11"}, "recorded": ("shapes",)}
    told |= {
        "step_kind": "ProfilerStep",
        "phase": "decode",
        "batch": 8,
        "steps": 3,
        "waiting_ns": 7,
        "faults": (),
    } | more
    return Snapshot("a.json", rank, step=step, tables={**tables, "totals": totals}, **told)


STEP = StepTime(100, 90, 120, 150, True, 60, "cpu", ((0.5, 70.0), (2.0, 180.0)), (140, 160))


def test_all_that_a_snapshot_says_comes_back(tmp_path: Path) -> None:
    fault = KnownFault("k", ("a", "b"), "a: x", "high", 0.2, 0.1, 0.3, 20)
    first, second = (kept(0, step=STEP, faults=(fault,)), kept(3, step=None, phase=None, batch=None, culprit=True))
    path = tmp_path / "job.parquet"
    path.write_bytes(baseline_bytes([{0: first, 3: second}]))
    (found,) = load_baseline(str(path))
    assert list(found) == [0, 3]
    plain = [name for name in Snapshot.__slots__ if name not in ("tables", "strip", "functions")]
    for one, loaded in ((first, found[0]), (second, found[3])):
        assert [getattr(loaded, name) for name in plain] == [getattr(one, name) for name in plain]
        assert loaded.tables["totals"]["counter"].tolist() == [f"of {one.rank}"]


@pytest.mark.parametrize("name", ["a b", "a/b", "", "../a"])
def test_a_name_with_other_letters_is_none(name: str) -> None:
    with pytest.raises(BadOption, match="not a name"):
        baseline_path(name)


def test_timed_step_has_its_time_and_no_interval() -> None:
    """Of each rank that has a step; 0.0000996 ms are 100 ns."""
    ranks: Side = [{0: kept(0, step=STEP), 1: kept(1, step=None)}]
    (found,) = timed(ranks, 0.0000996)
    step = found[0].step
    assert step is not None
    assert (step.ns, step.low_ns, step.high_ns, step.measured, step.recorded_ns) == (100, 100, 100, True, 150)
    assert found[1].step is None
    assert timed(ranks, None) is ranks


def saved(path: Path, *captures: object) -> str:
    path.write_bytes(baseline_bytes(side_of(list(captures))))  # type: ignore[arg-type]
    return f"baseline:{path}"


def test_a_baseline_says_what_the_trace_says(tmp_path: Path) -> None:
    trace = built([MM, ADDED], syncs=1).load()
    name = saved(tmp_path / "main.parquet", trace)
    (capture,) = load_baseline(str(tmp_path / "main.parquet"))
    (told,) = side_of(trace)
    for table in TABLES:
        assert capture[None].tables[table].equals(told[None].tables[table]), table
    assert capture[None].step == told[None].step
    assert capture[None].faults == told[None].faults
    assert capture[None].recorded == told[None].recorded == ("nanoseconds", "shapes")
    assert compare(name, trace).verdict.word is Word.IDENTICAL


@pytest.mark.parametrize("late", [0, 1, None])
def test_a_baseline_of_ranks_tells_which_the_others_wait_for(late: int | None, tmp_path: Path) -> None:
    """Compared with a job in which they wait for no rank; each rank waits as long as before."""
    (one,) = (capture[None] for capture in side_of(built([MM]).load()))
    waits = [3_000_000 * (rank != late) for rank in range(2)]
    ranks = {rank: replace(one, rank=rank, waiting_ns=ns) for rank, ns in enumerate(waits)}
    side: Side = [{rank: replace(snapshot, culprit=rank == late) for rank, snapshot in ranks.items()}]
    path = tmp_path / "job.parquet"
    path.write_bytes(baseline_bytes(side))
    (loaded,) = load_baseline(str(path))
    told = [(rank, kept.rank, kept.waiting_ns) for rank, kept in loaded.items()]
    assert told == [(rank, rank, ns) for rank, ns in enumerate(waits)]
    before, after = ({rank: Captures.of([kept]) for rank, kept in part.items()} for part in (loaded, ranks))
    more = "others waited up to 3.00 ms a step more than it"
    told = [] if late is None else [f"rank {late} is late no more: {more}"]
    assert job_notes(before, after, rank_changes(before, after)) == told


def test_the_same_captures_give_the_same_bytes() -> None:
    side = side_of([built([MM, ADDED], jitter=seed).load() for seed in (7, 11, 13)])
    assert baseline_bytes(side) == baseline_bytes(side)


def test_several_captures_stay_apart(tmp_path: Path) -> None:
    captures = [built([MM, ADDED], jitter=seed).load() for seed in (7, 11, 13)]
    name = saved(tmp_path / "three.parquet", *captures)
    found = compare(name, captures)
    assert found.axes.step is not None
    assert found.axes.step.captures == (3, 3)
    assert found.verdict.word is Word.IDENTICAL


def test_a_large_baseline_keeps_fewer_durations_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    side = side_of(built([MM, ADDED], steps=40).load())
    whole = len(baseline_bytes(side))
    monkeypatch.setattr(baseline, "MAX_BYTES", whole - 1)
    assert len(baseline_bytes(side)) < whole
    monkeypatch.setattr(baseline, "MAX_BYTES", 100)
    with pytest.raises(BadOption, match="more than 100"):
        baseline_bytes(side)


def test_names_are_files_below_the_folder_or_paths() -> None:
    assert baseline_path("main") == Path(".traceanalyzer/main.parquet")
    assert baseline_path("a/b.parquet") == Path("a/b.parquet")
    with pytest.raises(BadOption, match="not a name"):
        baseline_path("../main")


def test_what_is_no_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no such baseline"):
        compare(f"baseline:{tmp_path / 'none.parquet'}", "new.json")
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(UnreadableTrace, match="not a Parquet file"):
        load_baseline(str(text))
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(UnreadableTrace, match="is no baseline"):
        load_baseline(str(other))


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    saved(path, built([MM]).load())
    table = pq.read_table(path)
    key = b"traceanalyzer.baseline"
    described = json.loads(table.schema.metadata[key]) | {"schema": 0, "version": "0.0.1\udfff"}
    pq.write_table(table.replace_schema_metadata({key: json.dumps(described).encode()}), path)
    with pytest.raises(UnreadableTrace, match=r"made by traceanalyzer 0\.0\.1.udfff"):
        load_baseline(str(path))


@pytest.mark.parametrize("changed", [b'"sum": "0', b'"heads": [0, '])
def test_a_changed_baseline_is_refused(changed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "main.parquet"
    saved(path, built([MM]).load())
    table = pq.read_table(path)
    key = b"traceanalyzer.baseline"
    begin = changed.partition(b": ")[0] + b": " + (b'"' if b"sum" in changed else b"[")
    described = table.schema.metadata[key].replace(begin, changed)
    pq.write_table(table.replace_schema_metadata({key: described}), path)
    with pytest.raises(UnreadableTrace, match="not as it was saved"):
        load_baseline(str(path))
    pq.write_table(table.slice(1), path)
    with pytest.raises(UnreadableTrace, match="not as it was saved"):
        load_baseline(str(path))


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """One byte of the name of a column, wherever the file has it, as a disk may leave it."""
    path = tmp_path / "kept.parquet"
    saved(path, built([MM]).load())
    whole = path.read_bytes()
    at = [place for place in range(len(whole)) if whole.startswith(b"samples", place)]
    assert len(at) > 1
    errors = []
    for place in at:
        path.write_bytes(whole[: place + 3] + b"\xff" + whole[place + 4 :])
        with suppress(UnreadableTrace):  # a name of the footer alone is not read
            load_baseline(str(path))
            continue
        errors.append(place)
    assert errors
