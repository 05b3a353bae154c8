"""Traces of several ranks in one file: as SGLang, TraceFusion and Triton-distributed merge them, and unmarked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
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
from traceanalyzer.read.merged import _ranks, _shifted_back
from traceanalyzer.read.text.batches import Batches

Merge = Callable[[list[tuple[Event, list[Event]]]], Any]


def unlike(trace: Trace, other: Trace) -> list[str]:
    """The columns in which two traces differ, other than by the places of their events."""
    different = []
    for frame in ("cpu", "gpu", "memory", "python"):
        one, two = (getattr(of, frame).drop(columns="event_id") for of in (trace, other))
        different += [f"{frame}.{name}" for name in one if not _same(one[name], two[name])]
    return different


def _same(one: pd.Series[Any], other: pd.Series[Any]) -> bool:
    return (
        one.astype(object).where(one.notna(), None).tolist()
        == other.astype(object).where(other.notna(), None).tolist()
    )


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


def test_ranks_are_numbered_by_stage_first() -> None:
    """As torch.distributed's device mesh orders them: of a stage all its tensor-parallel ranks."""
    marks = ["TP0-PP0", "TP0-PP1", "TP1-PP0", "TP1-PP1"]
    assert _ranks(list(reversed(marks))) == {marks[0]: 0, marks[2]: 1, marks[1]: 2, marks[3]: 3}


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
    assert _ranks(marks) == dict(zip(marks, ranks, strict=True))


def test_event_ids_are_places_in_the_merged_file(tmp_path: Path) -> None:
    merged = labelled([rank_trace(rank) for rank in (0, 1)])
    for trace in load_job(written(tmp_path / "merged.json", merged)).values():
        names = [merged["traceEvents"][event]["name"] for event in trace.cpu["event_id"]]
        assert names == trace.cpu["name"].tolist()


def test_one_rank_alone_is_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", labelled([rank_trace(0)]))
    assert load(path).meta.rank == 0
    assert isinstance(load_any(path), Trace)


def test_several_ranks_are_no_trace_but_a_job(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", labelled([rank_trace(rank) for rank in (0, 1)]))
    with pytest.raises(UnreadableTrace, match="traces of several ranks, merged"):
        load(path)
    assert isinstance(load_any(path), Job)
    assert [trace["rank"] for trace in json.loads(diagnosed(path, "--format", "json"))["traces"]] == [0, 1]
    assert "merged file cannot be drawn" in refused("annotate", path, "-o", tmp_path / "out.pftrace")


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        (("TP03", "TP01"), [1, 3]),
        (("TP00-DP00", "TP00-DP01"), [0, 1]),
        (("TP01-PP01", "TP00-PP01", "TP01-PP00", "TP00-PP00"), [0, 1, 2, 3]),
        (("Unknown",), [0]),
    ],
)
def test_labels_tell_ranks(labels: tuple[str, ...], ranks: list[int], tmp_path: Path) -> None:
    events = []
    for number, label in enumerate(labels):
        _, own = rank_trace(number)
        events += [{**event, "pid": f"[{label}] {event['pid']}"} for event in own]
    assert sorted(load_job(written(tmp_path / "merged.json", {"traceEvents": events}))) == ranks


def test_ranks_merged_without_a_mark_are_refused(tmp_path: Path) -> None:
    events = [event for rank in (0, 1) for event in rank_trace(rank)[1]]
    with pytest.raises(
        UnreadableTrace, match=r"2 processes, and 3 correlation .* merged without a mark"
    ) as error:
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


@pytest.mark.parametrize(
    ("event", "rank", "restored"),
    [
        ({"pid": 100_000_005, "tid": 100_000_007}, 1, {"pid": 5, "tid": 7}),
        ({"pid": 99_999_999, "tid": 200_000_000}, 1, {"pid": -1, "tid": 100_000_000}),
        ({"pid": -1, "tid": 3}, 0, {"pid": -1, "tid": 3}),
        ({"pid": "Spans_200000000", "tid": "a_200000000"}, 2, {"pid": "Spans", "tid": "a"}),
        ({"pid": "Spans_0", "tid": "a_b"}, 0, {"pid": "Spans", "tid": "a_b"}),
        (
            {"ph": "M", "pid": 100_000_005, "args": {"labels": "GPU 3_1"}},
            1,
            {"ph": "M", "pid": 5, "args": {"labels": "GPU 3"}},
        ),
        (
            {"ph": "M", "pid": 5, "args": {"name": "run_1_rank0"}},
            0,
            {"ph": "M", "pid": 5, "args": {"name": "run_1"}},
        ),
        (
            {"ph": "X", "pid": 5, "args": {"name": "run_rank0"}},
            0,
            {"ph": "X", "pid": 5, "args": {"name": "run_rank0"}},
        ),
        ({"pid": "Spans"}, None, {"pid": "Spans"}),
    ],
)
def test_what_was_moved_by_rank_is_moved_back(event: Event, rank: int | None, restored: Event) -> None:
    assert _shifted_back(event) == rank
    assert event == restored


def test_process_name_with_rank_suffix_is_not_a_merge(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10_000)
    trace.event(ph="M", name="process_name", pid=1_000, tid=0, ts=0, args={"name": "train_rank3"})
    assert load(trace.write(tmp_path / "one.json")).meta.rank is None


def test_what_a_merge_keeps_beside_an_event_is_none_of_its_args(tmp_path: Path) -> None:
    header, events = rank_trace(0)
    numbered = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::add",
        "pid": 100,
        "tid": 100,
        "ts": 1.0,
        "dur": 1.0,
    }
    ranks = [(header, [*events, {**numbered, "id": 5}]), rank_trace(1)]
    job = load_job(written(tmp_path / "merged.json", fused(ranks)))
    alone = load_bytes(json.dumps({**header, "traceEvents": events}).encode())
    assert job[0].meta.other_args == alone.meta.other_args


def test_events_of_other_ranks_are_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 is met when blocks of rank 0 have been read already."""
    monkeypatch.setattr("traceanalyzer.read.merged.Batches", partial(Batches, batch_bytes=500))
    ranks = [rank_trace(rank) for rank in (0, 1)]
    whole = labelled(ranks)
    job = load_job(written(tmp_path / "merged.json", whole))
    for rank, trace in job.items():
        assert trace.meta.counted["of another rank"] == len(ranks[1 - rank][1])
        names = [whole["traceEvents"][event]["name"] for event in trace.cpu["event_id"]]
        assert names == trace.cpu["name"].tolist()
