"""Files and folders: which traces they give, and in what words they are refused."""

import gc
import gzip
import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.read.same import assert_same
from tests.read.samples import everything
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.errors import TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.load import load, load_job


def of_rank(rank: int | None) -> TraceBuilder:
    header = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    trace = TraceBuilder(**header)
    trace.op("aten::mm", 1_001, 500)
    return trace


def test_a_folder_gives_its_traces_by_rank(tmp_path: Path) -> None:
    for rank in (2, 0, 1):
        of_rank(rank).write(tmp_path / f"host_{9 - rank}.pt.trace.json")
    (tmp_path / "rank3.JSON.GZ").write_bytes(gzip.compress(of_rank(3).to_json()))
    (tmp_path / "notes.txt").write_text("{")
    (tmp_path / "sub.json").mkdir()
    traces = load_job(tmp_path)
    assert isinstance(traces, Job)
    assert sorted(traces) == [0, 1, 2, 3]
    assert all(trace.meta.rank == rank for rank, trace in traces.items())


def test_empty_frames_have_the_columns_of_the_schema() -> None:
    trace = of_rank(0).load()
    for name, frame in FRAMES.items():
        made = getattr(trace, name)
        assert {column.name: column.storage.dtype for column in frame.columns} == made.dtypes.astype(str).to_dict()
        assert isinstance(made.index, pd.RangeIndex)
    assert [len(getattr(trace, name)) for name in Trace.FRAMES] == [1, 0, 0, 0, 0]


def test_a_copy_of_a_frame_can_be_changed() -> None:
    """Null columns share their memory, so writing into the frame itself is refused rather than seen elsewhere."""
    trace = everything().load()
    cpu = trace.cpu.copy()
    cpu.loc[0, "comm_seq"] = 7
    cpu["tid"] = cpu["tid"] + 1
    assert cpu.loc[0, "comm_seq"] == 7
    assert cpu["group_size"].isna().all()
    assert trace.cpu["comm_seq"].isna().all()
    with pytest.raises(ValueError, match="read-only"):
        trace.cpu.loc[0, "comm_seq"] = 7


def test_the_lazy_frames_are_made_once() -> None:
    trace = everything().load()
    assert trace.python is trace.python
    assert trace.memory["bytes"].tolist() == [512, 1024, 1536]


# -- one trace, or the traces of one job -----------------------------------------------------------------


def test_load_gives_a_trace_also_of_a_folder_with_one(tmp_path: Path) -> None:
    path = of_rank(3).write(tmp_path / "trace.json")
    (tmp_path / "table.json").write_text('{"rows": []}')
    trace = load(tmp_path)
    assert trace.meta.source == str(path)
    assert [damage.kind for damage in trace.meta.damage] == ["skipped files"]


def test_folder_with_several_traces_names_the_remedy(tmp_path: Path) -> None:
    for rank in range(3):
        of_rank(rank).write(tmp_path / f"{rank}.json")
    with pytest.raises(
        UnreadableTrace, match=r"holds several traces: 0\.json and 1\.json\n.*such as .*0\.json\."
    ) as error:
        load(tmp_path)
    assert error.value.where == str(tmp_path)


def test_files_and_folders_are_one_job(tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    for rank, place in ((0, folder), (5, folder), (2, tmp_path)):
        of_rank(rank).write(place / f"{rank}.json")
    job = load_job(tmp_path / "2.json", folder)
    assert list(job) == [2, 0, 5]
    assert job.skipped == ()
    assert load_job(tmp_path / "2.json").keys() == {2}


@pytest.mark.parametrize("content", [b"", b"\x80 garbage", b'{"a": 1}', b'{"traceEvents": []}'])
def test_one_bad_file_of_a_folder_is_passed_over_and_said(tmp_path: Path, content: bytes) -> None:
    of_rank(0).write(tmp_path / "a.json")
    (tmp_path / "b.json").write_bytes(content)
    of_rank(1).write(tmp_path / "c.json")
    job = load_job(tmp_path)
    assert sorted(job) == [0, 1]
    (skipped,) = job.skipped
    assert skipped.path == str(tmp_path / "b.json")
    assert job[0].meta.damage[0].message == f"b.json was skipped: {skipped.problem}"
    assert job[1].meta.damage == ()
    with pytest.raises(TraceAnalyzerError, match=r"b\.json"):
        load_job(tmp_path / "a.json", tmp_path / "b.json")


def test_a_folder_of_bad_files_says_what_is_wrong_with_each(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "other.json").write_bytes(b"{}")
    with pytest.raises(UnreadableTrace, match=r"among 2 JSON files; empty\.json: the file is empty; other\.json: is"):
        load_job(tmp_path)


def test_of_many_bad_files_the_first_five_are_named(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(UnreadableTrace, match=r"among 6 JSON files; 0\.json: .*; 4\.json: the file is empty\n"):
        load_job(tmp_path)


# -- frames and the garbage collector --------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_copies_of_a_trace_share_its_frames_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = everything().write(tmp_path / "trace.json")
    trace = [load(path, cache=cached) for _ in range(2)][-1]
    other = replace(trace, meta=replace(trace.meta, source="other"))
    for name in ("memory", "python", "counters"):
        first, second = (trace, other) if name == "python" else (other, trace)
        assert getattr(first, name) is getattr(second, name)
    assert len(replace(other).python) == 3


def test_trace_pickles_before_and_after_making_frames() -> None:
    trace = everything().load()
    for _ in range(2):
        assert_same(pickle.loads(pickle.dumps(trace)), trace)
        assert_same(deepcopy(trace), trace)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(tmp_path: Path, enabled: bool) -> None:
    path = everything().write(tmp_path / "trace.json")
    (tmp_path / "bad.json").write_text("{")
    seen: list[bool] = []
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        load(path, progress=lambda *_: seen.append(gc.isenabled()))
        assert gc.isenabled() is enabled
        with pytest.raises(UnreadableTrace):
            load(tmp_path / "bad.json")
        with pytest.raises(ZeroDivisionError):
            load(path, progress=lambda *_: 1 // 0)  # type: ignore[arg-type, return-value]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert set(seen) == {False}


# -- counters --------------------------------------------------------------------------------------------


def test_counter_events_are_samples() -> None:
    trace = of_rank(0)
    common = {"ph": "C", "ts": 2.5}
    trace.event(**common, name="SM Clock (MHz)", pid="GPU 1 Counters", args={"": 1980})
    trace.event(**common, name="NVLink", cat="hardware_counters", pid=2, args={"rx": 1.5, "tx": 2, "unit": "GB"})
    trace.event(**common, name="odd", pid="x", args={})
    trace.event(**common, name="known", cat="cpu_op", pid=1000, args={"": "7"})
    loaded = trace.load()
    made = loaded.counters
    assert made["event_id"].tolist() == [1, 2, 4]
    assert made["name"].tolist() == ["SM Clock (MHz)", "NVLink", "known"]
    assert made["key"].tolist() == ["", "rx", ""]
    assert made["value"].tolist() == [1980.0, 1.5, 7.0]
    assert made["start_ns"].tolist() == [2500] * 3
    assert made["device"].tolist()[:2] == [1, 2]
    assert made["device"].isna().tolist() == [False, False, True]
    assert made["other_args"].tolist()[1] == '{"others":{"tx":2,"unit":"GB"}}'
    assert loaded.meta.counted == {"no value": 1}
    assert loaded.meta.unknown_categories == {}
    assert loaded.meta.rows["counters"] == {"None": 1, "cpu_op": 1, "hardware_counters": 1}
