"""Traces of several ranks in one file: as SGLang, TraceFusion and Triton-distributed merge them, and unmarked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest

from tests.cli.commands import diagnosed, refused
from tests.fuzz.cases import content
from tests.support.merged_traces import Event, fused, labelled, rank_trace, shifted, written
from tests.support.paths import SHARED
from tests.support.trace_builder import TraceBuilder, load_bytes
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.load import load, load_any, load_job
from traceanalyzer.read.merged import ranks_of_marks

Merge = Callable[[list[tuple[Event, list[Event]]]], Any]


def unlike(trace: Trace, other: Trace) -> list[str]:
    """The columns in which two traces differ, other than by the places of their events."""
    different = []
    for frame in ("cpu", "gpu", "memory", "python"):
        one, two = (getattr(of, frame).drop(columns="event_id") for of in (trace, other))
        different += [f"{frame}.{name}" for name in one if not _same(one[name], two[name])]
    return different


def _same(one: pd.Series[Any], other: pd.Series[Any]) -> bool:
    first, second = (side.astype(object).where(side.notna(), None).tolist() for side in (one, other))
    return first == second


@pytest.mark.parametrize("merge", [labelled, shifted, fused])
def test_a_merged_file_is_split_into_what_was_merged(merge: Merge, tmp_path: Path) -> None:
    ranks = [rank_trace(rank) for rank in (0, 1)]
    job = load_job(written(tmp_path / "merged.json", merge(ranks)))
    assert sorted(job) == [0, 1]
    for rank, (header, events) in enumerate(ranks):
        alone = load_bytes(json.dumps({**header, "traceEvents": events}).encode())
        assert unlike(job[rank], alone) == []
        assert job[rank].meta.rank == rank
        assert job[rank].meta.counted["of another rank"] == len(events)
        assert job[rank].meta.thread_names == alone.meta.thread_names


@pytest.mark.parametrize("merge", [labelled, shifted, fused])
def test_recorded_ranks_come_back_from_a_merged_file(merge: Merge, tmp_path: Path) -> None:
    paths = [SHARED / "ddp" / f"overlap.rank{rank}.json.gz" for rank in (0, 1)]
    if not paths[0].exists():
        pytest.skip("the larger collection is not there")
    job = load_job(written(tmp_path / "merged.json", merge([content(path) for path in paths])))
    for rank, path in enumerate(paths):
        assert unlike(job[rank], load(path)) == []


@pytest.mark.parametrize(
    ("marks", "ranks"),
    [
        (["PP1-DP0", "PP0-DP1"], [1, 0]),
        (["DP1-TP0", "DP0-TP1"], [0, 1]),  # the numbers in tensor parallelism tell them apart
        (["DP1-TP0", "DP0-TP1", "DP0-TP0"], [2, 1, 0]),  # here they do not
        (["TP0", "TP5", "DP1"], [0, 1, 2]),
        (["EP2", "EP10"], [0, 1]),
        ([4, 2], [4, 2]),
    ],
)
def test_merged_ranks_are_numbered_by_label_or_stage_order(marks: list[Any], ranks: list[int]) -> None:
    assert ranks_of_marks(marks) == dict(zip(marks, ranks, strict=True))


def test_event_ids_are_places_in_the_merged_file(tmp_path: Path) -> None:
    merged = labelled([rank_trace(rank) for rank in (0, 1)])
    for trace in load_job(written(tmp_path / "merged.json", merged)).values():
        names = [merged["traceEvents"][event]["name"] for event in trace.cpu["event_id"]]
        assert names == trace.cpu["name"].tolist()


def test_one_rank_alone_is_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", labelled([rank_trace(0)]))
    assert load(path).meta.rank == 0
    assert isinstance(load_any(path), Trace)


def test_ranks_that_are_no_numbers_leave_nothing_to_read(tmp_path: Path) -> None:
    """The marks of a merged file are there, but damaged in each event."""
    merged = fused([rank_trace(rank) for rank in (0, 1)])
    for event in merged["traceEvents"]:
        if "rank" in event.get("args", {}):
            event["args"]["rank"] = "damaged"
    path = written(tmp_path / "merged.json", merged)
    with pytest.raises(UnreadableTrace, match="no event of the merged ranks is readable"):
        load_any(path)


def test_several_ranks_are_no_trace_but_a_job(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", labelled([rank_trace(rank) for rank in (0, 1)]))
    with pytest.raises(UnreadableTrace, match="traces of several ranks, merged"):
        load(path)
    assert isinstance(load_any(path), Job)
    assert [trace["rank"] for trace in json.loads(diagnosed(path, "--format", "json"))["traces"]] == [0, 1]
    assert "merged file cannot be drawn" in refused("annotate", path, "-o", tmp_path / "out.pftrace")


def test_ranks_merged_without_a_mark_are_refused(tmp_path: Path) -> None:
    events = [event for rank in (0, 1) for event in rank_trace(rank)[1]]
    with pytest.raises(UnreadableTrace, match=r"2 processes, and 3 correlation .* merged without a mark") as error:
        load(written(tmp_path / "merged.json", {"traceEvents": events}))
    assert "each rank's own file" in str(error.value.remedy)


def test_processes_without_correlations_are_not_merged_ranks(tmp_path: Path) -> None:
    """0 is what a call has that starts no work: no id that two share."""
    header, events = rank_trace(0)
    made = TraceBuilder()
    for pid in (100, 300):
        made.launch("cudaStreamIsCapturing", 200, 100, 0, pid=pid, tid=pid)
    trace = load(written(tmp_path / "two.json", {**header, "traceEvents": [*events, *made.events]}))
    assert set(trace.cpu["pid"]) == {100, 300, -1}


def test_a_merged_pipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = orjson.dumps(labelled([rank_trace(rank) for rank in (0, 1)]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(UnreadableTrace, match="read twice"):
        load("-")


def test_what_a_merge_keeps_beside_an_event_is_none_of_its_args(tmp_path: Path) -> None:
    header, events = rank_trace(0)
    numbered = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100, "ts": 1.0, "dur": 1.0}
    ranks = [(header, [*events, {**numbered, "id": 5}]), rank_trace(1)]
    job = load_job(written(tmp_path / "merged.json", fused(ranks)))
    alone = load_bytes(json.dumps({**header, "traceEvents": events}).encode())
    assert job[0].meta.other_args == alone.meta.other_args


@pytest.mark.parametrize("merge", [labelled, shifted, fused])
def test_ranks_come_in_their_order_though_another_is_met_first(merge: Any, tmp_path: Path) -> None:
    """Of each its own events alone, in the order in which they were written."""
    whole = merge([rank_trace(rank) for rank in (0, 1, 2)])
    whole["traceEvents"].reverse()
    job = load_job(written(tmp_path / "merged.json", whole))
    assert list(job) == [0, 1, 2]
    assert [trace.meta.rank for trace in job.values()] == [0, 1, 2]
    for rank, trace in job.items():
        kernels = trace.gpu[trace.gpu["category"] == "kernel"]
        assert sorted(kernels["start_ns"]) == [20_000 + 1_000 * rank + 100_000 * step for step in range(3)]


def test_events_without_a_mark_are_of_no_rank(tmp_path: Path) -> None:
    """They count as those of other ranks do."""
    whole = labelled([rank_trace(0), rank_trace(1)])
    own = len(whole["traceEvents"]) // 2
    plain = {"ph": "X", "cat": "cpu_op", "name": "aten::odd", "pid": 9, "tid": 9, "ts": 1.0, "dur": 1.0}
    whole["traceEvents"].insert(0, plain)
    job = load_job(written(tmp_path / "merged.json", whole))
    for trace in job.values():
        assert "aten::odd" not in set(trace.cpu["name"])
        assert trace.meta.counted["of another rank"] == own + 1


@pytest.mark.parametrize(("pids", "merged"), [((100, 100), False), ((100, 101), True)])
def test_launches_of_one_number_in_two_processes_were_merged(
    pids: tuple[int, int], merged: bool, tmp_path: Path
) -> None:
    events = []
    for pid, shift in zip(pids, (0, 0.5), strict=True):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid}
        events.append({**call, "ts": 5.0 + shift, "dur": 0.1, "args": {"correlation": 4}})
    path = written(tmp_path / "trace.json", {"traceEvents": events})
    if not merged:
        assert len(load(path).cpu) == 2
        return
    with pytest.raises(UnreadableTrace, match="launches of 2 processes, and 1 correlation ids"):
        load(path)


def test_partly_rank_named_processes_are_not_merged(tmp_path: Path) -> None:
    """Though one of them has a number as large as those that a merge gives."""
    made = TraceBuilder()
    for pid, name in ((1_000, "train_rank0"), (100_001_000, "loader")):
        made.op("aten::mm", 0, 10_000, pid=pid, tid=pid)
        made.event(ph="M", name="process_name", pid=pid, tid=0, ts=0, args={"name": name})
    trace = load(made.write(tmp_path / "one.json"))
    assert trace.meta.rank is None
    assert sorted(trace.cpu["pid"]) == [1_000, 100_001_000]
