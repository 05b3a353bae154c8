"""Files and folders: which traces they give, and in what words they are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from tests.builder import TraceBuilder
from tests.read.samples import everything
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.load import load_job


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


def test_traces_without_a_rank_are_numbered(tmp_path: Path) -> None:
    for name in ("b.json", "a.json"):
        of_rank(None).write(tmp_path / name)
    traces = load_job(tmp_path)
    assert isinstance(traces, Job)
    assert {rank: Path(trace.meta.source).name for rank, trace in traces.items()} == {
        0: "a.json",
        1: "b.json",
    }


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        of_rank(1).write(tmp_path / name)
    with pytest.raises(UnreadableTrace, match=r"two traces of rank 1: .*a\.json and .*b\.json"):
        load_job(tmp_path)


def test_other_json_in_a_folder_is_left_out_and_said(tmp_path: Path) -> None:
    of_rank(0).write(tmp_path / "trace.json")
    (tmp_path / "table.json").write_text('{"rows": []}')
    traces = load_job(tmp_path)
    assert isinstance(traces, Job)
    (damage,) = traces[0].meta.damage
    assert (damage.kind, damage.message.split(":")[0]) == ("skipped files", "table.json")


def test_frames_are_as_the_schema_declares_also_where_they_are_empty() -> None:
    trace = of_rank(0).load()
    for name, frame in FRAMES.items():
        made = getattr(trace, name)
        assert {column.name: column.kind.dtype for column in frame.columns} == made.dtypes.astype(
            str
        ).to_dict()
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
